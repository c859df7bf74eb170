"""Put the public names into reference/python.md, for mkdocstrings to fill in; list all pages in
llms.txt, for language models.

mkdocs calls `on_page_markdown` and `on_post_build`. The names are those of
tests/contract/public_names.txt, without the modules that only repeat upstream's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = Path(__file__).resolve().parents[1] / "tests/contract/public_names.txt"
MARK = "<!-- public names -->"
# Upstream documents its own names; errors have a page.
LEFT_OUT = (
    *(
        "etscope.backend_debug",
        "etscope.bundled_program.",
        "etscope.compat",
        "etscope.debug_format",
    ),
    *("etscope.errors", "etscope.etdump", "etscope.inspector", "etscope.intermediate_output_tap"),
    *("etscope.pte_tool", "etscope.reporting", "etscope.scripts", "etscope.size_analysis_tool"),
    "etscope.visualization",
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with a reference of each module's classes and functions."""
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown


def reference() -> str:
    """One heading a module, one `:::` a class or function, in the order of the list."""
    found: dict[str, list[str]] = {}
    for dotted in NAMES.read_text().split():
        module, _, name = dotted.rpartition(".")
        if not (dotted.startswith(LEFT_OUT) or name.isupper() or name.startswith("_")):
            found.setdefault(module, []).append(f"::: {dotted}")
    return "\n\n".join("\n\n".join([f"## {module}", *entries]) for module, entries in found.items())


def on_post_build(config: Any) -> None:
    """Write llms.txt (llmstxt.org): the title and address of each page of the navigation."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for entry in config["nav"]:
        ((section, pages),) = entry.items()
        lines.append(f"## {section}")
        for page in [{section: pages}] if isinstance(pages, str) else pages:
            ((title, path),) = page.items()
            address = path.removesuffix("index.md").removesuffix(".md")
            lines.append(f"- [{title}]({config['site_url'] or ''}{address and f'{address}/'})")
        lines.append("")
    (Path(config["site_dir"]) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
