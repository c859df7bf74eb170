"""The command `etdb`: options, scripts and the prompt around a session."""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from etscope._version import __version__
from etscope.errors import EtscopeError, EtscopeWarning

_USAGE, _BUG, _INTERRUPTED, _BROKEN_PIPE = 2, 70, 130, 141


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 a run stopped at what was looked for, 2 usage, 3 bad or "
    "mismatched input, 4 nothing there, 5 environment.",
)
@click.version_option(__version__, message="etdb of etscope %(version)s")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE]...")
@click.option("--debug-buffer", "-b", type=click.Path(), metavar="BIN", help="The logged tensors.")
@click.option("--inputs", type=click.Path(), metavar="FILE", help="What a run is given.")
@click.option(
    "--command", "-ex", "commands", multiple=True, metavar="CMD", help="Do this first. Repeatable."
)
@click.option("--script", "-x", type=click.Path(), metavar="FILE", help="Do this file's commands.")
@click.option("--batch", is_flag=True, help="Do the given commands, and end.")
@click.option("--json", "as_json", is_flag=True, help="Output with a JSON object a command.")
@click.option("--tui", is_flag=True, help="The full-screen face.")
@click.option("--force", is_flag=True, help="Go on though files do not belong together.")
@click.option(
    "--source-unit",
    type=click.Choice(["ns", "us", "ms", "s", "cycles"]),
    default="ns",
    show_default=True,
    help="Unit of the runtime's clock.",
)
def command(
    files: tuple[str, ...],
    debug_buffer: str | None,
    inputs: str | None,
    commands: tuple[str, ...],
    script: str | None,
    batch: bool,
    as_json: bool,
    tui: bool,
    force: bool,
    source_unit: str,
) -> int:
    """Debug a model as gdb debugs a program: etdb MODEL.etrecord RUN.etdp [BUFFER.bin] walks a
    recorded run, and etdb MODEL.etrecord MODEL.pte -ex 'target runtime' the program itself.

    FILES are an ETRecord, an ETDump, its debug buffer, a .pte or .bpte, each by itself or together.
    Commands come from -ex and -x, then from the prompt, or from standard input when it is no
    terminal. `help` lists them.
    """
    from etscope.etdb.files import Files
    from etscope.etdb.session import Session

    given = None
    if inputs is not None:
        from etscope.formats.torch_files.tensor_files import read_tensor_file

        given = read_tensor_file(inputs)
    paths = [*files, *([debug_buffer] if debug_buffer is not None else [])]
    opened = Files(forced=force).opened(*paths)
    session = Session.of(opened, inputs=given, source_unit=source_unit)
    first = [*commands, *([f"source {script}"] if script is not None else [])]
    try:
        if tui:
            return _full_screen(session, first)
        return _done(session, first, batch=batch, as_json=as_json)
    finally:
        session.debugger.close()


def _done(session: Any, first: Sequence[str], *, batch: bool, as_json: bool) -> int:
    """The commands of options, and then those that come in; the exit code."""
    from etscope.etdb.session import Result
    from etscope.etdb.ui.prompt import interact, show

    def say(result: Result) -> None:
        if as_json:
            _write_json(result, session.debugger)
        else:
            show(result, echo=not batch)

    code = 0
    ended = False
    for line in first:
        result = session.execute(line)
        say(result)
        code = code or result.exit_code
        if result.answer.ends:
            ended = True
            break
    if batch or ended:
        return code
    rest = session.run_script(sys.stdin, say) if as_json else interact(session)
    return code or rest


def _full_screen(session: Any, commands: Sequence[str]) -> int:
    from etscope.etdb.ui.prompt import interact, show

    if sys.stdin.isatty() and sys.stdout.isatty():
        from etscope.etdb.ui.tui import run_tui

        return run_tui(session, commands)
    print("no terminal: plain lines instead of --tui", file=sys.stderr)
    code = 0
    for line in commands:
        result = session.execute(line)
        show(result)
        code = code or result.exit_code
        if result.answer.ends:
            return code
    rest = interact(session)
    return code or rest


def _write_json(result: Any, debugger: Any) -> None:
    from etscope.views.strict_json import dumps

    error = result.error
    stop = debugger.stop
    document = {
        "command": result.line,
        "ok": result.ok,
        "exit_code": result.exit_code,
        "finding": result.answer.finding,
        "answer": result.data,
        "stop": None
        if stop is None
        else {
            "position": stop.position,
            "instruction": stop.instruction,
            "node": stop.node,
            "op": stop.op,
            "pass": stop.loop_pass,
            "module": stop.module,
            "source": [str(line) for line in stop.lines],
        },
        "error": None
        if error is None
        else {"message": error.message, "hint": error.hint, "slug": error.slug},
    }
    print(dumps(document))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `etdb`; the exit code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _say  # type: ignore[assignment]
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # no character is worth the end of a session
            stream.reconfigure(errors="backslashreplace")
    try:
        with command.make_context("etdb", _without_single_dash(args)) as context:
            result: Any = command.invoke(context)
        sys.stdout.flush()
        return 0 if result is None else int(result)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except click.ClickException as error:
        error.show()
        return _USAGE
    except EtscopeError as error:
        from etscope.etdb.output import error_text

        print(f"{error_text(error)}\n  see: docs/errors.md#{error.slug}", file=sys.stderr)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        print("error: this is a bug in etscope; please report it", file=sys.stderr)
        return _BUG


def _without_single_dash(arguments: list[str]) -> list[str]:
    """gdb writes `-ex CMD`, which click would read as `-e x`."""
    return ["--command" if argument == "-ex" else argument for argument in arguments]


def _say(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, EtscopeWarning):
        print(f"warning: {message}", file=sys.stderr)
