"""Change one thing in each of some modules, and see whether the tests notice.

Run it before and after tests are deleted: what the old tests killed, the new ones must kill too.
Of a checkout that may be thrown away (`git worktree add`), as it is written to::

    python scripts/mutants.py make mutants.json --seed 31 --count 60
    python scripts/mutants.py probe mutants.json --root CHECKOUT    # then run all tests there
    python scripts/mutants.py run mutants.json --root CHECKOUT --results results.json

`make` draws modules at random and one place in each: another comparison, a dropped operand,
exchanged arguments or branches, `and` for `or`. `probe` notes which tests come by these places, in
the folder $MUTANT_HITS. `run` takes the probes away, tries each mutant on those tests, and stops at
the first that fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
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


HIT = """

_seen = set()


def hit(number):
    import os

    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    folder = os.environ.get("MUTANT_HITS")
    if folder and (number, test) not in _seen:
        _seen.add((number, test))
        with open(f"{folder}/{os.getpid()}", "a") as file:
            file.write(f"{number} {test}\\n")
"""
PROBED = SOURCES / "_version.py"  # everything imports it


def probe(mutants: list[dict[str, Any]], root: Path) -> None:
    """Let the places of the mutants note the tests that come by."""
    for number, mutant in enumerate(mutants):
        module = '__import__("etscope._version", fromlist=["hit"])'
        _apply({**mutant, "after": f"({module}.hit({number}), {mutant['before']})[1]"}, root)
    path = root / PROBED.relative_to(ROOT)
    path.write_text(path.read_text() + HIT)


def _tests(number: int, hits: Path) -> list[str]:
    """The tests that came by a mutant's place, in order of their files."""
    found = set()
    for file in hits.iterdir():
        for line in file.read_text().splitlines():
            at, _, test = line.partition(" ")
            if int(at) == number and test:
                found.add(test)
    return sorted(found, key=lambda test: (not test.startswith("tests/unit"), test))


def _apply(mutant: dict[str, Any], root: Path) -> bytes:
    """Write the mutant; return what the file had. The line may have moved since it was drawn."""
    path = root / mutant["path"]
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if line.rstrip(b"\n").decode() == mutant["in"]]
    if not places:
        raise LookupError(f"{mutant['path']}:{mutant['line']} is not there any more")
    at = min(places, key=lambda place: abs(place + 1 - mutant["line"]))
    start, end = mutant["columns"]
    lines[at] = lines[at][:start] + mutant["after"].encode() + lines[at][end:]
    path.write_bytes(b"".join(lines))
    return before


def run(mutant: dict[str, Any], tests: list[str], root: Path, limit: float) -> dict[str, Any]:
    """Try one mutant: which test killed it, or that none did."""
    before = _apply(mutant, root)
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    pytest = [str(root / ".venv/bin/python"), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        for start in range(0, len(tests), 100):
            some = tests[start : start + 100]
            try:
                done = subprocess.run(
                    [*pytest, *some],
                    cwd=root,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return {"killed": "it does not end"}
            if done.returncode not in (0, 5):
                failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
                return {"killed": (failed or [done.stdout[-300:] + done.stderr[-300:]])[0]}
    finally:
        (root / mutant["path"]).write_bytes(before)
    return {"killed": None}


def main() -> None:
    """Make mutants, or run them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("make", "probe", "run"))
    parser.add_argument("mutants", type=Path)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that is changed")
    parser.add_argument("--hits", type=Path, help="the folder that was $MUTANT_HITS")
    parser.add_argument("--results", type=Path, help="where `run` writes")
    parser.add_argument("--limit", type=float, default=600, help="seconds for 100 tests")
    given = parser.parse_args()
    if given.action == "make":
        given.mutants.write_text(json.dumps(make(given.seed, given.count), indent=1) + "\n")
        return
    mutants = json.loads(given.mutants.read_text())
    if given.action == "probe":
        probe(mutants, given.root)
        return
    subprocess.run(["git", "checkout", "-q", "src"], cwd=given.root, check=True)
    results = []
    for number, mutant in enumerate(mutants):
        tests = _tests(number, given.hits)
        results.append(
            {**mutant, "tests": len(tests), **run(mutant, tests, given.root, given.limit)}
        )
        print(number, mutant["path"], len(tests), results[-1]["killed"], flush=True)
        given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
