"""The command `etdb`, in this process."""

from __future__ import annotations

import contextlib
import io
import subprocess
import warnings

import pytest

from etscope.etdb import __main__ as main


def etdb(*arguments: object, input: str = "") -> subprocess.CompletedProcess[str]:
    """What the command says and how it ends; not as `main` ends it, which leaves a reference that
    is still being loaded behind with the process."""
    words = list(map(str, arguments))
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patched,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.resetwarnings()
        patched.setattr("sys.stdin", io.StringIO(input))
        code = main._exit_code(words)
    return subprocess.CompletedProcess(["etdb", *words], code, out.getvalue(), err.getvalue())


def ex(*lines: str) -> list[str]:
    """The options that give these commands."""
    return [word for line in lines for word in ("-ex", line)]
