"""Hide the notices of torch, of packages that load with it, and of the runtime's C++."""

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

__all__ = ["quiet"]

_STDERR = 2


@contextmanager
def quiet() -> Iterator[None]:
    """Hide output to standard error and standard output.

    --debug shows it, and so does an exception other than `EtscopeError` and Ctrl-C. Warnings of
    etscope follow at the end.
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
            with _hidden_stderr(), redirect_stdout(sys.stderr):
                yield
        finally:
            for warning in ours:
                show(*warning)


@contextmanager
def _hidden_stderr() -> Iterator[None]:
    """Redirect the file descriptor, as C++ does not use `sys.stderr`."""
    sys.stderr.flush()
    terminal = os.dup(_STDERR)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), _STDERR)
        try:
            yield
        except (EtscopeError, KeyboardInterrupt):
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
