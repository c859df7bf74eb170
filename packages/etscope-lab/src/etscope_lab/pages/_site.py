"""Templates, headers, assets and error pages of all pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from etscope import __version__
from etscope.errors import EtscopeError
from etscope.units import format_bytes, format_duration, format_share
from etscope.views.tables.cells import visible
from etscope_lab.server.errors import status_of

NOTHING = "\N{EN DASH}"
_UNITS = (("ns", 1e-6), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3))
_HERE = Path(__file__).parent
# Folder and media type by name. `_built` is made by hatch_build.py.
ASSETS = {
    "lab.css": (_HERE / "assets", "text/css; charset=utf-8"),
    "theme.js": (_HERE / "assets", "text/javascript; charset=utf-8"),
    "lab.js": (_HERE / "_built", "text/javascript; charset=utf-8"),
    "charts.css": (_HERE / "_built", "text/css; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def duration(milliseconds: Any) -> str:
    """Format a time in a suitable unit: 0.0123 is "12.300 µs"."""
    if not _is_number(milliseconds):
        return NOTHING
    if milliseconds == 0:
        return "0 ms"
    unit, factor = next(
        (found for found in reversed(_UNITS) if abs(milliseconds) >= found[1]), _UNITS[0]
    )
    return f"{format_duration(milliseconds / factor, unit)} {unit}"


def amount(value: Any, unit: str) -> str:
    """Format a number of a history in its unit; a time in a suitable one."""
    return duration(value) if unit == "ms" else f"{value:,.4g} {unit}"


def size(count: Any) -> str:
    """Format a number of bytes in a suitable unit."""
    return format_bytes(count) if _is_number(count) else NOTHING


def share(value: Any) -> str:
    """Format a fraction of 1 as a percentage."""
    return format_share(value) if _is_number(value) else NOTHING


def seconds(value: Any) -> str:
    """Format a length of time: 3,725 is "1 h 2 min"."""
    if not _is_number(value):
        return NOTHING
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def between(first: datetime | None, second: datetime | None) -> str:
    """Format the time between two moments; the second defaults to now."""
    if first is None:
        return NOTHING
    return seconds(((second or datetime.now(timezone.utc)) - first).total_seconds())


def when(value: datetime | None) -> Markup | str:
    """Return a moment as an element that the script shows in the reader's time zone."""
    if value is None:
        return NOTHING
    plain = value.astimezone(timezone.utc)
    text = plain.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{} UTC</time>').format(plain.isoformat(), text)


def lines(text: str) -> Markup:
    """Return a log as HTML with its lines; control characters are escaped."""
    return Markup("\n").join(escape(visible(line)) for line in text.split("\n"))


def plain(value: Any) -> str:
    """Format a value of an environment or a specification."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plain(one)}" for key, one in value.items()) or NOTHING
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value)) or NOTHING
    return str(value)


def fact(value: Any, name: Any) -> str:
    """Format a value by the unit in its name: `memory_bytes` is a size, `load_ms` a time."""
    if str(name).endswith("_bytes"):
        digits = value if not isinstance(value, str) else int(value) if value.isdecimal() else None
        return plain(value) if digits is None else size(digits)
    return duration(value) if str(name).endswith("_ms") and _is_number(value) else plain(value)


def fact_name(name: Any) -> str:
    """Return a name without the unit that `fact` shows."""
    return word(str(name).removesuffix("_bytes").removesuffix("_ms"))


def word(value: Any) -> str:
    """Format a state or another identifier: "user_error" is "user error"."""
    return str(value).replace("_", " ")


def part(value: Any) -> str:
    """Quote a text as one part of a path, or one value of a query."""
    return quote(str(value), safe="")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "amount": amount,
    "between": between,
    "duration": duration,
    "fact": fact,
    "fact_name": fact_name,
    "lines": lines,
    "part": part,
    "plain": plain,
    "seconds": seconds,
    "share": share,
    "size": size,
    "when": when,
    "word": word,
}


class Site:
    """Renders templates. Every text is escaped, invisible characters too."""

    def __init__(self, csrf_token: Callable[[Request], str]) -> None:
        self._csrf_token = csrf_token
        self._templates = Environment(
            loader=PackageLoader("etscope_lab.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_escape_invisible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(asset=asset_path, version=__version__)

    def page(
        self,
        request: Request,
        template: str,
        /,
        status: int = 200,
        *,
        framed: bool = False,
        **context: Any,
    ) -> HTMLResponse:
        """Render a template. framed: allow another page of the lab to show it in a frame.

        In the template, `base` is the prefix of every path, and `csrf()` the token of forms.
        """
        base = str(request.scope.get("root_path", "")).rstrip("/")
        path = str(request.scope.get("path", "/"))
        if base and path.startswith(f"{base}/"):
            path = path[len(base) :]
        text = self._templates.get_template(template).render(
            base=base,
            path=path,
            csrf=lambda: self._csrf_token(request),
            **context,
        )
        policy = POLICY.replace("ancestors 'none'", "ancestors 'self'") if framed else POLICY
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
        return HTMLResponse(text, status, headers)

    def failure(self, request: Request, error: EtscopeError) -> HTMLResponse:
        """Return the page of an error."""
        status = status_of(error)
        return self.page(request, "failure.html", status, error=error, status_code=status)


def asset(name: str) -> Response | None:
    """Return a file of the pages; None if it does not exist."""
    folder, media_type = ASSETS.get(name, (None, ""))
    if folder is None or not (folder / name).is_file():
        return None
    # The address has a hash of the content.
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response((folder / name).read_bytes(), media_type=media_type, headers=kept)


@cache
def asset_path(name: str) -> str:
    """Return the path of an asset, which changes with its content."""
    path = ASSETS[name][0] / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "missing"
    return f"/assets/{name}?{digest}"


def _escape_invisible(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value
