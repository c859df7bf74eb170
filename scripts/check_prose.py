"""Check the first words of docstrings: `python scripts/check_prose.py src benchmarks`.

A docstring starts with an imperative verb or with the noun that it returns. One that starts with
a subordinate clause ("What is known of", "Whether the", "Of nodes without") is reported with its
place, and the exit code is 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

CLAUSE = re.compile(r"(What|Whether|Which|Who|Whose|Where|Of|How|That|Those|Until)\b")


def clauses(path: Path) -> Iterator[str]:
    """Yield "file:line: first words" of each docstring that starts with a clause."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            continue
        text = ast.get_docstring(node)
        if text and CLAUSE.match(text):
            line = getattr(node, "lineno", 1)
            yield f"{path}:{line}: {' '.join(text.split()[:8])} …"


def main(arguments: list[str]) -> int:
    """Check the Python files below the given folders."""
    paths = [path for name in arguments for path in sorted(Path(name).rglob("*.py"))]
    if not paths:
        print(f"no Python files below {' '.join(arguments) or '(nothing given)'}", file=sys.stderr)
        return 2
    found = [line for path in paths for line in clauses(path)]
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} docstrings start with a clause; start with a verb or a noun")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
