"""The prompt: history, completion and editing on a terminal; plain lines without one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etscope.etdb.output import Output, error_text, folded, write_output
from etscope.etdb.session import Result, Session
from etscope.etdb.ui.complete import Completer
from etscope.optional import available
from etscope.views.tables.text_cells import visible

PROMPT = "(etdb) "


def show(result: Result, *, echo: bool = False, color: bool | None = None) -> None:
    """Write what came of a line: the answer to standard output, an error to standard error."""
    if echo:
        print(f"{PROMPT}{visible(result.line)}")
    _write(result.answer, color)
    if result.error is not None:
        sys.stdout.flush()
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        for line in error_text(result.error).split("\n"):
            print(*folded(line, width), sep="\n", file=sys.stderr)


def _write(answer: Output, color: bool | None) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if os.environ.get("COLUMNS", "").isdecimal():
        width = int(os.environ["COLUMNS"]) or None
    fold = width if sys.stdout.isatty() else None
    write_output(answer, sys.stdout, width=width, color=color, fold=fold)


def interact(session: Session, color: bool | None = None) -> int:
    """Read lines until `quit` or the end of the input; the exit code of the session."""
    if sys.stdin.isatty() and sys.stdout.isatty() and available("prompt_toolkit"):
        lines = _edited_lines(session)
    elif sys.stdin.isatty():
        lines = _plain_lines()
    else:
        # A script on standard input.
        return session.run_script(sys.stdin, lambda result: show(result, color=color))
    for line in lines:
        try:
            result = session.execute(line)
            show(result, color=color)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            continue
        if result.answer.ends:
            break
    return 0


def _plain_lines() -> Iterator[str]:
    while True:
        try:
            yield input(PROMPT)
        except EOFError:  # noqa: PERF203
            print()
            return
        except KeyboardInterrupt:
            print()


def _edited_lines(session: Session) -> Iterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer as Base
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    own = Completer(session.debugger)

    class Words(Base):
        def get_completions(self, document: Any, event: Any) -> Iterator[Completion]:
            word, found = own.complete(document.text_before_cursor)
            for text in found:
                yield Completion(text, start_position=-len(word))

    path = _history_file()
    prompt: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if path is None else FileHistory(str(path)),
        completer=Words(),
        complete_while_typing=False,
    )
    while True:
        try:
            yield prompt.prompt(PROMPT)
        except EOFError:  # noqa: PERF203
            return
        except KeyboardInterrupt:
            continue


def _history_file() -> Path | None:
    """Where lines are kept for the next session: $XDG_STATE_HOME/etscope/etdb_history."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(home).expanduser() / "etscope"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / "etdb_history"
