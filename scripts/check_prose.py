"""Check what people read: `python scripts/check_prose.py`, or with folders: `… src docs`.

A docstring starts with an imperative verb or with the noun that it returns, not with a subordinate
clause ("Whether the", "Of nodes without"). Docstrings, comments, messages and pages use few of the
turns of phrase in `IDIOMS`, which make a sentence hard to read. Each place is printed, and the exit
code is 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLAUSE = re.compile(r"(What|Whether|Which|Who|Whose|Where|Of|How|That|Those|Until)\b")
IDIOMS = re.compile(
    r"\b(that of|those of|tells?|told|of which|in which|by which|besides?|is no|are no|of its own"
    r"|of their own|as (?:many|much|it|they) (?:are|is|was|were)|it is (?:told|given|said)|whose"
    r"|thereof|nobody|somebody)\b",
    re.IGNORECASE,
)
# Each of these phrases is right now and then: a file may have this share of its words, and a short
# file this many.
IDIOMS_PER_10_000_WORDS = 15
IDIOMS_IN_A_SHORT_FILE = 7
FOLDERS = ("src", "packages/etscope-lab/src", "benchmarks", "examples", "docs", "scripts")


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment, docstring and message (a string of four words
    or more) of a Python file; each line of a page."""
    text = path.read_text(encoding="utf-8")
    lines = enumerate(text.splitlines(), 1)
    if path.suffix == ".md":
        yield from lines
        return
    yield from ((number, line.partition("#")[2]) for number, line in lines if "# " in line)
    for node in ast.walk(ast.parse(text, str(path))):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if len(node.value.split()) > 3:
            yield node.lineno, node.value


def clauses(path: Path) -> Iterator[str]:
    """Yield "file:line: first words" of each docstring that starts with a clause."""
    if path.suffix != ".py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            continue
        text = ast.get_docstring(node)
        if text and CLAUSE.match(text):
            line = getattr(node, "lineno", 1)
            start = " ".join(text.split()[:8])
            yield f"{path}:{line}: {start} …: start with a verb or a noun"


def idioms(path: Path) -> list[str]:
    """Return "file:line: phrase" of each idiom of a file that has too many."""
    found, words = [], 0
    for line, text in texts_of(path):
        words += len(re.findall(r"[A-Za-z']+", text))
        found += [
            f"{path}:{line + text.count(chr(10), 0, match.start())}: {match.group()!r}: say it "
            "plainly"
            for match in IDIOMS.finditer(text)
        ]
    allowed = max(IDIOMS_IN_A_SHORT_FILE, words * IDIOMS_PER_10_000_WORDS / 10_000)
    return found if len(found) > allowed else []


def main(arguments: list[str]) -> int:
    """Check the Python files and the pages below the given folders, by default `FOLDERS`."""
    arguments = arguments or [str(ROOT / folder) for folder in FOLDERS]
    # cli.md is made from the help; this file lists the idioms.
    skipped = ("cli.md", Path(__file__).name)
    paths = [
        path
        for name in arguments
        for path in sorted(Path(name).rglob("*"))
        if path.suffix in (".py", ".md") and path.name not in skipped
    ]
    if not paths:
        print(f"no files below {' '.join(arguments)}", file=sys.stderr)
        return 2
    found = [line for path in paths for line in (*clauses(path), *idioms(path))]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
