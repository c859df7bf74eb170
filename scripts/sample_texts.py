"""Draw texts for a readers' test: `python scripts/sample_texts.py --seed 1`.

Prints 60 messages (errors, hints, findings, notes), 40 docstrings of public names and 20 paragraphs
of the docs, numbered, without the code around them. A reader who does not know the code says of
each whether it is understood at first reading.
"""

from __future__ import annotations

import argparse
import ast
import random
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [ROOT / "src/etscope", ROOT / "packages/etscope-lab/src/etscope_lab"]
COUNTS = {"message": 60, "docstring": 40, "paragraph": 20}


def message(node: ast.AST) -> str | None:
    """Return a string or f-string as a person reads it, its values as the code names them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = (
        f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else message(part)
        for part in node.values
    )
    return "".join(part or "" for part in parts)


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of at least six words that a module passes to a call or returns."""
    for node in ast.walk(tree):
        given: list[ast.AST] = []
        if isinstance(node, ast.Call):
            given = [*node.args, *(word.value for word in node.keywords)]
        elif isinstance(node, ast.Return) and node.value is not None:
            given = [node.value]
        for one in given:
            text = message(one)
            if text is not None and len(text.split()) >= 6:
                yield text


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield "name: docstring" of the public functions and classes of a module."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            text = ast.get_docstring(node)
            if text and not node.name.startswith("_"):
                yield f"{node.name}: {text}"


def paragraphs(page: str) -> Iterator[str]:
    """Yield the paragraphs of prose of a page, of at least fifteen words."""
    for block in page.split("\n\n"):
        if block[:1].isalpha() and len(block.split()) >= 15:
            yield block


def main() -> None:
    """Print the sample of a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    draw = random.Random(parser.parse_args().seed)
    found: dict[str, list[str]] = {kind: [] for kind in COUNTS}
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found["message"] += messages(tree)
            found["docstring"] += docstrings(tree)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.name != "cli.md":
            found["paragraph"] += paragraphs(path.read_text(encoding="utf-8"))
    for kind, count in COUNTS.items():
        for number, text in enumerate(draw.sample(sorted(set(found[kind])), count), 1):
            print(f"{kind} {number}\n{textwrap.indent(text.strip(), '    ')}\n")


if __name__ == "__main__":
    main()
