"""The code blocks of a documentation page, and a process that runs them.

    python -m tests.support.docs.pages PAGE      runs the blocks of PAGE, in order, in the current
    folder

In a page, `python` blocks share one namespace, and the lines of a `console` block that start with
`$ ` are run by one bash a block; each must succeed. HTML comments direct the runner, all but the
first kind right above a block::

    <!-- files: cnn_xnnpack -->     puts model.pte, model.etrecord, run.etdp, debug.bin there first;
                                    the files of more artefacts into folders of their names
    <!-- no-run: why -->            this block is not run
    <!-- file: runner.cpp -->       this block, of any language, is written to that file
    <!-- output -->                 the console block before printed these lines; "…" is left out
"""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NOTE = re.compile(r"<!-- (no-run|file|files|output)(?:: (.+?))? -->")
BAR = re.compile(r"\s+[█-▏]+$")  # beside a share; the page leaves it out
FENCE = re.compile(r"^( *)```(\w*)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `line` is the number of its first line of code in the page."""

    language: str
    code: str
    line: int
    note: tuple[str, str] | None = None

    @property
    def runs(self) -> bool:
        if self.note is not None:
            return self.note[0] == "file"
        return self.language in ("python", "console")

    @property
    def commands(self) -> list[str]:
        """The command lines of a console block, continuation lines joined."""
        found: list[str] = []
        for line in self.code.splitlines():
            if found and found[-1].endswith("\\"):
                found[-1] += "\n" + line
            elif line.startswith("$ "):
                found.append(line[2:])
        return found


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of the page."""
    return list(_blocks(page.read_text().splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    note: tuple[str, str] | None = None
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        if fence := FENCE.match(line):
            body = []
            for _, inner in numbered:
                if inner.strip() == "```":
                    break
                body.append(inner)
            code = textwrap.dedent("\n".join(body)) + "\n"
            yield Block(fence[2], code, number + 1, note)
            note = None
        elif found := NOTE.search(line):
            note = (found[1], found[2] or "")
        elif line.strip():
            note = None


def wanted_artifacts(page: Path) -> list[str]:
    """The artefacts that a page's `files` comment names."""
    found = re.search(r"<!-- files: ([\w ]+) -->", page.read_text())
    return found[1].split() if found else []


def not_printed(shown: str, printed: str) -> str | None:
    """Return the first line of `shown` that is not where it should be in `printed`: right below the
    line before, or further down after "…". None if all are there."""
    lines = [BAR.sub("", line).rstrip() for line in printed.splitlines()]
    at, anywhere = 0, True
    for line in shown.splitlines():
        if line == "…":
            anywhere = True
            continue
        places = range(at, len(lines)) if anywhere else range(at, min(at + 1, len(lines)))
        found = next((place for place in places if lines[place] == line.rstrip()), None)
        if found is None:
            return line
        at, anywhere = found + 1, False
    return None


def run(page: Path) -> None:
    """Run all blocks of a page; the first that fails raises."""
    _let_tracebacks_show(page)
    namespace: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": f"{_commands(Path(folder))}:{os.environ['PATH']}"}
        printed = ""
        for block in blocks(page):
            if block.note is not None and block.note[0] == "output":
                line = not_printed(block.code, printed)
                if line is not None:
                    raise SystemExit(f"{page}:{block.line}: not printed: {line!r}, but\n{printed}")
            elif block.runs:
                printed = _run_block(page, block, namespace, environment)


def _run_block(
    page: Path, block: Block, namespace: dict[str, object], environment: dict[str, str]
) -> str:
    """Run a block; return what a console block printed."""
    if block.note is not None:
        written = Path(block.note[1])
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(block.code)
    elif block.language == "python":
        code = "\n" * (block.line - 1) + block.code
        exec(compile(code, str(page), "exec"), namespace)
    else:
        # One shell a block, so that a variable set in one line is there in the next; -x names
        # the line that fails.
        bash = ["bash", "-euxo", "pipefail", "-c", "\n".join(block.commands)]
        done = subprocess.run(bash, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        sys.stdout.write(done.stdout)
        if done.returncode:
            raise SystemExit(f"{page}:{block.line}: exit code {done.returncode}")
        return done.stdout
    return ""


def _commands(folder: Path) -> Path:
    """A folder with this very Python and this very etscope as commands."""
    # Scripts, not links: a link would lose the virtual environment of the interpreter.
    serve = " -c 'from etscope.run.native import serve; raise SystemExit(serve())'"
    commands = {"etscope": " -m etscope", "etdb": " -m etscope.etdb", "python": "", "python3": ""}
    commands["etdb-server"] = serve
    for name, arguments in commands.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        script.chmod(0o755)
    return folder


def _let_tracebacks_show(page: Path) -> None:
    """Give tracebacks, and tools that read source lines, the page's own lines."""
    text = page.read_text()
    linecache.cache[str(page)] = (len(text), None, text.splitlines(keepends=True), str(page))


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve())
