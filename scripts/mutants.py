"""Change one thing in each of some modules, and see whether the tests notice.

Run it before and after tests are deleted: what the old tests killed, the new ones must kill too.

    python scripts/mutants.py make --seed 31 --count 60 mutants.json
    python scripts/mutants.py run mutants.json contexts.db results.json

`make` draws modules at random and one place in each: a comparison that is another, an operand that
is dropped, two arguments that are exchanged, a condition that is inverted. `run` tries each mutant
on the tests that covered its line, the fastest first, and stops at the first failure. `contexts.db`
is the database of a coverage run whose contexts are test ids (`make coverage CONTEXTS=1`).
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "etscope"
OTHERS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def changes(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Each expression of a module that can be changed, what takes its place, and the kind."""
    for node in _executed(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            other = OTHERS[type(node.ops[0])]()
            yield node, ast.Compare(node.left, [other], node.comparators), "comparison"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            yield node, node.left, "dropped operand"
        elif isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
            first, second = node.args
            if not any(isinstance(one, ast.Starred) for one in node.args):
                yield node, ast.Call(node.func, [second, first], []), "exchanged arguments"
        elif isinstance(node, ast.BoolOp):
            op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, ast.BoolOp(op, node.values), "and for or"
        elif isinstance(node, ast.IfExp):
            yield node, ast.IfExp(node.test, node.orelse, node.body), "exchanged branches"


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes below functions, but for annotations and f-strings."""
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in inside:
        stack: list[ast.AST] = list(function.body)
        while stack:
            node = stack.pop()
            if isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.ClassDef):
                continue
            yield node
            stack += [
                child
                for name, field in ast.iter_fields(node)
                if name not in ("annotation", "returns")
                for child in (field if isinstance(field, list) else [field])
                if isinstance(child, ast.AST)
            ]


def make(seed: int, count: int) -> list[dict[str, Any]]:
    """Mutants of `count` modules: path, line, columns, kind, and both texts."""
    chosen = random.Random(seed)
    modules = sorted(SOURCES.rglob("*.py"))
    chosen.shuffle(modules)
    made: list[dict[str, Any]] = []
    for path in modules:
        if len(made) == count:
            break
        text = path.read_text(encoding="utf-8")
        # One line each: the change is a replacement of columns.
        found = [one for one in changes(ast.parse(text)) if one[0].lineno == one[0].end_lineno]
        if found:
            wanted = chosen.choice(sorted({kind for _, _, kind in found}))
            node, other, kind = chosen.choice([one for one in found if one[2] == wanted])
            line = text.splitlines()[node.lineno - 1].encode()
            made.append(
                {
                    "path": str(path.relative_to(ROOT)),
                    "line": node.lineno,
                    "columns": [node.col_offset, node.end_col_offset],
                    "kind": kind,
                    "before": line[node.col_offset : node.end_col_offset].decode(),
                    "after": f"({ast.unparse(ast.fix_missing_locations(other))})",
                    "in": line.decode(),
                }
            )
    return made


def _tests(database: Path, mutant: dict[str, Any], seconds: dict[str, float]) -> list[str]:
    """The tests that ran the mutant's line, the fastest first."""
    import coverage

    data = coverage.CoverageData(str(database))
    data.read()
    for file in data.measured_files():
        if file.endswith(mutant["path"]):
            contexts = data.contexts_by_lineno(file).get(mutant["line"], [])
            return sorted({one for one in contexts if "::" in one}, key=lambda t: seconds.get(t, 9))
    return []


def _applied(mutant: dict[str, Any], root: Path) -> bytes:
    """Write the mutant; return what the file had."""
    path = root / mutant["path"]
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    for at, line in enumerate(lines):  # the line may have moved since
        if line.rstrip(b"\n").decode() == mutant["in"] and (
            abs(at + 1 - mutant["line"])
            == min(abs(i + 1 - mutant["line"]) for i, one in enumerate(lines) if one == line)
        ):
            start, end = mutant["columns"]
            lines[at] = line[:start] + mutant["after"].encode() + line[end:]
            path.write_bytes(b"".join(lines))
            return before
    raise SystemExit(f"{mutant['path']}:{mutant['line']} is not there any more")


def run(mutant: dict[str, Any], tests: list[str], root: Path, limit: float) -> dict[str, Any]:
    """Try one mutant: which test killed it, or that none did."""
    before = _applied(mutant, root)
    try:
        for start in range(0, len(tests), 150):
            some = tests[start : start + 150]
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *some]
            try:
                done = subprocess.run(
                    command, cwd=root, capture_output=True, text=True, timeout=limit, check=False
                )
            except subprocess.TimeoutExpired:
                return {"killed": "timeout", "tried": start + len(some)}
            if done.returncode not in (0, 5):
                failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
                return {"killed": (failed or [done.stdout[-300:]])[0], "tried": start + len(some)}
    finally:
        (root / mutant["path"]).write_bytes(before)
    return {"killed": None, "tried": len(tests)}


def main() -> None:
    """Make mutants, or run them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("make", "run"))
    parser.add_argument("mutants", type=Path)
    parser.add_argument("database", type=Path, nargs="?")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--limit", type=float, default=300, help="seconds for 150 tests")
    parser.add_argument("--seconds", type=Path, help="a JSON file: test id to seconds")
    given = parser.parse_args()
    if given.action == "make":
        given.mutants.write_text(json.dumps(make(given.seed, given.count), indent=1) + "\n")
        return
    seconds = json.loads(given.seconds.read_text()) if given.seconds else {}
    results = []
    for mutant in json.loads(given.mutants.read_text()):
        tests = _tests(given.database, mutant, seconds)
        results.append(
            {**mutant, "tests": len(tests), **run(mutant, tests, given.root, given.limit)}
        )
        print(
            json.dumps({k: results[-1][k] for k in ("path", "line", "tests", "killed")}), flush=True
        )
        given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
