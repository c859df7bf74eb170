"""The `etscope` command group; the one place that turns errors into stderr text and exit codes.

Exit codes: 0 fine; 1 a finding (regressed, out of tolerance); 2 wrong usage; 3 bad or mismatched
input; 4 nothing could be measured; 5 the environment (a package, the runtime, a device);
70 a bug in etscope; 130 interrupted; 141 the reader of standard output closed it.

To add a verb: write a module in `etscope.cli.verbs` with a click command named `command`, and
add a line to `_VERBS`. The command writes its result and returns its exit code, or
None for 0. A command of another package has an entry point in the group "etscope.commands" and a
line in `COMMANDS`.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from etscope._version import __version__
from etscope.errors import PAGE, EtscopeError, EtscopeWarning, MissingDependencyError
from etscope.support import exits

__all__ = ["COMMANDS", "COMPLETE_VARIABLE", "CommandSpec", "LazyGroup", "cli", "main"]

ENTRY_POINTS = "etscope.commands"
COMPLETE_VARIABLE = "_ETSCOPE_COMPLETE"  # click's convention for a program named etscope

_USAGE, _BUG, _INTERRUPTED = 2, 70, 130


class CommandSpec(NamedTuple):
    """Location of a command and the line that its group's `--help` shows.

    module: "package.module" for its attribute `command`, or "package.module:attribute"; "" for the
    entry point of the command's name, which the extra of that name installs.
    section: the heading that the command stands under.
    """

    module: str
    help: str
    section: str = "Commands"


class LazyGroup(click.Group):
    """A click group that imports a command only to run it, complete it or show its help."""

    def __init__(self, *arguments: Any, specs: Mapping[str, CommandSpec], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._specs = specs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._specs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        spec = self._specs.get(cmd_name)
        if spec is None:
            return None
        if not spec.module:
            return _command_of_extra(cmd_name)
        module, _, attribute = spec.module.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._specs and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, self._specs)
            advice = (
                f"Did you mean {close[0]!r}?" if close else f"Commands: {', '.join(self._specs)}."
            )
            raise click.UsageError(f"No such command {name!r}. {advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._specs))
        for heading in dict.fromkeys(spec.section for spec in self._specs.values()):
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (f"{name:{width}}", spec.help)
                        for name, spec in self._specs.items()
                        if spec.section == heading
                    ]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=spec.help)
            for name, spec in self._specs.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def _command_of_extra(name: str) -> click.Command:
    """Return the command that an extra of etscope installs. Raises `MissingDependencyError`."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=name):
        command: click.Command = entry.load()
        return command
    raise MissingDependencyError(
        f"`etscope {name}` is not installed", hint=f"pip install 'etscope[{name}]'"
    )


_VERBS = {  # by their heading in the help
    "Run a model": {
        "export": "Export a PyTorch model to ExecuTorch.",
        "run": "Run a model or a program, and show where the time goes.",
        "generate": "Generate tokens with a language model, and measure its speed.",
        "matrix": "Compare backends, quantizations and threads in one table.",
        "replay": "Run one operator of a run alone, on each backend.",
        "calibrate": "Measure the peak compute and memory rates of this machine.",
    },
    "Understand a run": {
        "inspect": "Show the time of each operator, and its line of Python.",
        "explain": "Show why a run is slow, and what to do.",
        "diff": "Compare runs, or programs.",
        "check": "Check a run against a baseline, for a pull request.",
        "info": "Show what a file holds, its size, or its memory.",
        "graph": "Show graphs, modules and nodes, and their times.",
    },
    "Check the numbers": {
        "numerics": "Find the operator with wrong numbers, and its line of Python.",
        "evaluate": "Run a dataset or a text, and compare the outputs with PyTorch.",
        "bisect": "Find the smallest part of a model that fails.",
        "sensitivity": "Find the layers that quantization hurts.",
    },
    "Keep and share": {
        "runs": "List, show, remove and import runs.",
        "report": "Write or serve an HTML report of runs.",
        "doctor": "Show what is installed, and how to install the rest.",
        "agent": "Let a coding agent use etscope.",
        "convert": "Convert a run to Perfetto, Chrome, speedscope, Parquet or CSV.",
    },
}
COMMANDS = {
    verb: CommandSpec(f"etscope.cli.verbs.{verb}", help, section)
    for section, verbs in _VERBS.items()
    for verb, help in verbs.items()
} | {"lab": CommandSpec("", "Run and compare models on many devices.", "Keep and share")}


@dataclass
class _Session:
    """Options given before the verb."""

    debug: bool = False
    color: str = "auto"


def _print_completion(ctx: click.Context, option: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    writer = get_completion_class(shell)
    assert writer is not None  # of click's own shells
    click.echo(writer(cli, {}, "etscope", COMPLETE_VARIABLE).source())
    ctx.exit()


@click.group(
    cls=LazyGroup,
    specs=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Exit codes: 0 fine, 1 finding, 2 usage, 3 bad input, 4 no data, 5 missing.",
)
@click.version_option(__version__, message="etscope %(version)s")
@click.option(
    "--debug", is_flag=True, hidden=True, help="Show tracebacks; also with ETSCOPE_DEBUG=1."
)
@click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="Color tables.",
)
@click.option(
    "--completion",
    type=click.Choice(("bash", "zsh", "fish")),
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    hidden=True,  # etscope doctor shows the line that installs it
    help="Print the completion script for a shell.",
)
@click.pass_obj
def cli(session: _Session, debug: bool, color: str) -> None:
    """Profile, debug and compare models that run on ExecuTorch."""
    session.debug, session.color = session.debug or debug, color


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (default: the process's own) and return its exit code."""
    if COMPLETE_VARIABLE in os.environ:
        with suppress(MissingDependencyError):  # of a command that is not installed
            cli.main(prog_name="etscope", complete_var=COMPLETE_VARIABLE)
        return 0
    _collect_less_garbage()
    _exit_on_sigterm()
    exits.write_utf8()
    session = _Session(debug=os.environ.get("ETSCOPE_DEBUG", "") not in ("", "0"))
    with _one_line_warnings():
        try:
            code = _run(list(sys.argv[1:] if args is None else args), session)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            exits.discard_unwritten_output()
            return exits.BROKEN_PIPE
        except (KeyboardInterrupt, click.Abort):
            return _INTERRUPTED
        except click.ClickException as error:
            error.show()
            return _USAGE
        except EtscopeError as error:
            if session.debug:
                traceback.print_exc()
            print(f"error: {error}\n  see: {PAGE}#{error.slug}", file=sys.stderr)
            exits.discard_unwritten_output()
            return error.exit_code
        except Exception as error:
            # An error about a file has its name; an error about standard output does not.
            if (
                isinstance(error, OSError)
                and error.errno in (errno.ENOSPC, errno.EDQUOT)
                and error.filename is None
                and not session.debug
            ):
                print(f"error: cannot write standard output: {error.strerror}", file=sys.stderr)
                exits.discard_unwritten_output()
                return _USAGE
            traceback.print_exc()
            print("error: this is a bug in etscope; please report it", file=sys.stderr)
            exits.discard_unwritten_output()
            return _BUG
    return code


def _run(args: list[str], session: _Session) -> int:
    try:
        with cli.make_context("etscope", args, obj=session) as context:
            result: Any = cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return 0 if result is None else int(result)


def _collect_less_garbage() -> None:
    """Collect cycles of objects less often, and none at the end of the process.

    Nearly all objects of a short command stay: imports and readers alone would trigger a hundred
    collections. These, and the last one, would be a fifth of its time.
    """
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _exit_on_sigterm() -> None:
    """Make SIGTERM an exception, so that child processes are ended and temporary files removed."""
    import signal
    import threading

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show etscope's own warnings as one line, without the line of code that raised them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, EtscopeWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                show(message, category, *where)

        warnings.showwarning = show_warning  # type: ignore[assignment]
        yield
