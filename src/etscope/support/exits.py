"""End a command: with one line for an error, and quietly if a reader such as `head` has closed
standard output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from etscope.errors import EtscopeError

BROKEN_PIPE = 141  # as in a shell: 128 + SIGPIPE


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Exit with the code that `main` returns, with the code of the error that it raises, or with
    141 if the reader closed standard output."""
    code: str | int | None
    try:
        try:
            code = main()
        except SystemExit as stop:  # of argparse, after its help
            code = stop.code
        except EtscopeError as error:
            print(f"error: {error}", file=sys.stderr)
            code = error.exit_code
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_unwritten_output()
        code = BROKEN_PIPE
    sys.exit(code)


def write_utf8() -> None:
    """Write UTF-8 also into pipes and files on Windows, unless $PYTHONIOENCODING says otherwise.

    Before 3.15, Python writes the locale's encoding there, which has no arrows and no frames.
    """
    if sys.platform == "win32" and "PYTHONIOENCODING" not in os.environ:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")


def discard_unwritten_output() -> None:
    """Discard what standard output did not accept.

    The interpreter would write it again at exit, fail, and replace our exit code.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
