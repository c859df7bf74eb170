"""`%etscope` and `%%etscope`: commands in the cells of a notebook, with tables as HTML."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import click

from etscope.cli._app import cli

__all__ = ["load_ipython_extension"]

_TO_A_FILE = {"-o", "--output", "-f", "--format", "--serve", "--tensorboard"}
_WIDTH = "140"  # columns of texts


def load_ipython_extension(shell: Any) -> None:
    """Add the magic to an IPython shell: `%load_ext etscope`."""

    def etscope(line: str, cell: str = "") -> None:
        """Run a command of etscope, and those of further lines: `%etscope explain @1`."""
        for one in (line, *cell.splitlines()):
            if words := shlex.split(one, comments=True):
                _show(words, in_terminal=getattr(shell, "kernel", None) is None)

    shell.register_magic_function(etscope, "line_cell")


def _show(words: Sequence[str], *, in_terminal: bool) -> None:
    """Run a command and show its tables as HTML if it offers that, a report as a widget, and
    anything else as text."""
    from IPython.display import display

    verb, *arguments = words
    is_usual = _TO_A_FILE.isdisjoint(word.partition("=")[0] for word in arguments)
    if in_terminal or not is_usual:
        _run(words)
    elif verb == "report":
        from etscope.reporting.notebook import ReportWidget

        with tempfile.TemporaryDirectory(prefix="etscope-") as folder:
            path = Path(folder) / "report.json"
            _run([*words, "-o", str(path)], unsaid=f"wrote {path}\n")
            if path.exists():  # --help writes none
                display(ReportWidget(json.loads(path.read_text(encoding="utf-8"))))
    elif _writes_html(verb):
        html = _run([verb, "-f", "html", *arguments], shown=False)
        lines = (re.sub(r"<[^>]*>", " ", line) for line in html.splitlines())
        text = "\n".join(unescape(line).strip() for line in lines)
        if html.startswith("<"):  # --help does not
            display({"text/html": html, "text/plain": text}, raw=True)
        else:
            print(html, end="")
    else:
        _run(words)


def _writes_html(verb: str) -> bool:
    command = cli.get_command(click.Context(cli), verb)
    kinds = (option.type for option in command.params) if command is not None else ()
    return any(isinstance(kind, click.Choice) and "html" in kind.choices for kind in kinds)


def _run(words: Sequence[str], *, shown: bool = True, unsaid: str = "") -> str:
    """Run a command in a separate process and return its output; show it, too, if `shown`, and
    what it says of itself but for `unsaid`.

    Raises IPython's `UsageError`, which has no traceback and stops "Run all", for an error; a
    finding (exit code 1) is none.
    """
    from IPython.core.error import UsageError

    done = subprocess.run(
        [sys.executable, "-m", "etscope", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env={"COLUMNS": _WIDTH, **os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    if shown and done.stdout:
        print(done.stdout, end="")
    print(done.stderr.replace(unsaid, ""), end="", file=sys.stderr)
    if done.returncode > 1 or done.returncode < 0:
        raise UsageError(f"etscope {words[0]} ended with exit code {done.returncode}")
    return done.stdout
