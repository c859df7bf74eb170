"""The command group, and the one place where errors become stderr text and exit codes.

Exit codes: 0 fine; 1 a finding (regressed, out of tolerance); 2 wrong usage; 3 bad or mismatched
input; 4 nothing could be measured; 5 the environment (a package, the runtime, a device);
70 a bug of etscope; 130 interrupted; 141 the reader of our output went away.

A verb is a module with a click command named `command`. Its function writes its result and returns
its exit code, or None for 0.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

import click

from etscope._version import __version__
from etscope.cli._lazy_group import CommandSpec, LazyGroup
from etscope.errors import EtscopeError, EtscopeWarning

__all__ = ["COMMANDS", "COMPLETE_VARIABLE", "CommandSpec", "cli", "main"]

COMPLETE_VARIABLE = "_ETSCOPE_COMPLETE"  # click's convention for a program named etscope

_USAGE, _BUG, _INTERRUPTED, _BROKEN_PIPE = 2, 70, 130, 141

COMMANDS: dict[str, CommandSpec] = {
    "export": CommandSpec(
        "etscope.cli.verbs.export", "Export a PyTorch model: .pte, ETRecord and .bpte in one go."
    ),
    "profile": CommandSpec(
        "etscope.cli.verbs.profile", "Export a PyTorch model, run it, show its operators."
    ),
    "run": CommandSpec(
        "etscope.cli.verbs.run", "Run a program on the runtime: times, outputs, values."
    ),
    "inspect": CommandSpec("etscope.cli.verbs.inspect", "Show what ran and how long it took."),
    "diff": CommandSpec("etscope.cli.verbs.diff", "Tell what got slower between two dumps."),
    "numerics": CommandSpec(
        "etscope.cli.verbs.numerics", "Find the operator whose numbers go wrong, and its line."
    ),
    "evaluate": CommandSpec(
        "etscope.cli.verbs.evaluate",
        "Run a dataset on the runtime, compare each sample with PyTorch.",
    ),
    "convert": CommandSpec(
        "etscope.cli.verbs.convert",
        "Export the events: Perfetto, Chrome, speedscope, Parquet, CSV…",
    ),
    "bisect": CommandSpec(
        "etscope.cli.verbs.bisect", "Find the smallest piece of a model that fails."
    ),
    "sensitivity": CommandSpec(
        "etscope.cli.verbs.sensitivity", "Find what to keep in float in a quantised model."
    ),
    "info": CommandSpec(
        "etscope.cli.verbs.info", "Tell what an ETDump, ETRecord, .pte or .bpte holds."
    ),
    "graph": CommandSpec("etscope.cli.verbs.graph", "Look into the graphs of an ETRecord."),
    "tensorboard": CommandSpec(
        "etscope.cli.verbs.tensorboard",
        "Show the graphs with times, memory and errors in TensorBoard.",
    ),
    "report": CommandSpec(
        "etscope.cli.verbs.report", "Write an HTML report: graphs, times, lines, memory, numerics."
    ),
    "serve": CommandSpec(
        "etscope.cli.verbs.serve", "Show reports in a browser; they follow their files."
    ),
    "lab": CommandSpec(
        "etscope.cli.lab.group", "Benchmark models on devices; keep and show results."
    ),
    "collect": CommandSpec(
        "etscope.cli.verbs.collect", "Take many dumps into a dataset for etscope sql."
    ),
    "sql": CommandSpec("etscope.cli.verbs.sql", "Ask a dataset of dumps in SQL."),
    "slim": CommandSpec("etscope.cli.verbs.slim", "Shrink an ETRecord to what attribution needs."),
    "completion": CommandSpec("etscope.cli.verbs.completion", "Print the shell completion script."),
}


@dataclass
class _Session:
    """What the options before the verb say."""

    debug: bool = False


@click.group(
    cls=LazyGroup,
    specs=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 finding, 2 usage, 3 bad or mismatched input, "
    "4 nothing measured, 5 environment.",
)
@click.version_option(__version__, message="etscope %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks (also: ETSCOPE_DEBUG=1).")
@click.pass_obj
def cli(session: _Session, debug: bool) -> None:
    """Profile, debug and compare models that run on ExecuTorch."""
    session.debug = session.debug or debug


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (default: the process's own) and return its exit code."""
    if COMPLETE_VARIABLE in os.environ:
        cli.main(prog_name="etscope", complete_var=COMPLETE_VARIABLE)
    _let_terminate_clean_up()
    session = _Session(debug=os.environ.get("ETSCOPE_DEBUG", "") not in ("", "0"))
    with _warnings_for_people():
        try:
            code = _run(list(sys.argv[1:] if args is None else args), session)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            _drop_unwritten()
            return _BROKEN_PIPE
        except (KeyboardInterrupt, click.Abort):
            return _INTERRUPTED
        except click.ClickException as error:
            error.show()
            return _USAGE
        except EtscopeError as error:
            if session.debug:
                traceback.print_exc()
            print(f"error: {error}\n  see: docs/errors.md#{error.slug}", file=sys.stderr)
            _drop_unwritten()
            return error.exit_code
        except Exception as error:
            if _is_full(error) and not session.debug:
                print(f"error: cannot write standard output: {error.strerror}", file=sys.stderr)
                _drop_unwritten()
                return _USAGE
            traceback.print_exc()
            print("error: this is a bug in etscope; please report it", file=sys.stderr)
            _drop_unwritten()
            return _BUG
    return code


def _is_full(error: Exception) -> TypeGuard[OSError]:
    """Whether it is of standard output: errors of files have their names."""
    return (
        isinstance(error, OSError)
        and error.errno in (errno.ENOSPC, errno.EDQUOT)
        and error.filename is None
    )


def _drop_unwritten() -> None:
    """Drop what standard output did not take: the interpreter would write it when it exits, fail,
    and give an exit code of its own."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _let_terminate_clean_up() -> None:
    """Make SIGTERM an exception, so that children are ended and temporary files removed."""
    import signal
    import threading

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


def _run(args: list[str], session: _Session) -> int:
    try:
        with cli.make_context("etscope", args, obj=session) as context:
            result: Any = cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return 0 if result is None else int(result)


@contextmanager
def _warnings_for_people() -> Iterator[None]:
    """Show our own warnings as one line, without the place in our code that raised them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def say(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, EtscopeWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                show(message, category, *where)

        warnings.showwarning = say  # type: ignore[assignment]
        yield
