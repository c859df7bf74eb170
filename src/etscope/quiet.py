"""Silence for the notices of torch, of packages that load with it, and of the runtime's C++."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click

from etscope.errors import EtscopeError, EtscopeWarning

_STDERR = 2


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what is written to standard error (and printed to standard output, where our own result
    goes) back. It is shown if something fails that etscope has no message for, and with --debug.

    Warnings of etscope are shown at the end.
    """
    session = click.get_current_context(silent=True)
    if session is not None and getattr(session.obj, "debug", False):
        with redirect_stdout(sys.stderr):
            yield
        return
    ours: list[tuple[Any, ...]] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, EtscopeWarning):
                ours.append((message, category, *where))
            else:
                show(message, category, *where)

        warnings.showwarning = keep  # type: ignore[assignment]
        try:
            with _stderr_kept(), redirect_stdout(sys.stderr):
                yield
        finally:
            for one in ours:
                show(*one)


@contextmanager
def _stderr_kept() -> Iterator[None]:
    """The file descriptor is exchanged: C++ does not know `sys.stderr`."""
    sys.stderr.flush()
    terminal = os.dup(_STDERR)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), _STDERR)
        try:
            yield
        except EtscopeError:
            raise
        except BaseException:
            sys.stderr.flush()
            log.seek(0)
            os.write(terminal, log.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(terminal, _STDERR)
            os.close(terminal)
