"""The command `etdb`: options, scripts, and the prompt with history and completion."""

from __future__ import annotations

import io
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope._version import __version__
from etscope.errors import PAGE, EtscopeError, EtscopeWarning
from etscope.support import exits
from etscope.support.optional import available

if TYPE_CHECKING:
    from etscope.etdb.session import Result, Session

_REFRESH = 0.5  # seconds between two looks at whether the reference is loaded
_USAGE, _BUG, _INTERRUPTED = 2, 70, 130
_ORDER = "etscope.etdb.order"  # key of the context's meta


class _CommandWithOrder(click.Command):
    """A command that keeps the names of its parameters in the given order, once for each time:
    click groups the values of a repeatable option and loses their order among others."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(context).parse_args(list(args))
        context.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(context, args)


@click.command(
    cls=_CommandWithOrder,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Exit codes: 0 fine, 1 a run stopped at a condition, 2 usage, 3 bad or mismatched "
    "input, 4 not there, 5 environment.",
)
@click.version_option(__version__, message="etdb of etscope %(version)s")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[RUN]...")
@click.option("--debug-buffer", "-b", type=click.Path(), metavar="BIN", help="The debug buffer.")
@click.option(
    "--inputs",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Inputs of a run. Repeatable: a file for each call of a model that keeps state.",
)
@click.option(
    "--command", "-ex", "commands", multiple=True, metavar="CMD", help="Run this first. Repeatable."
)
@click.option(
    "--script",
    "-x",
    "scripts",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Run this file's commands. Repeatable; in order with -ex.",
)
@click.option("--batch", is_flag=True, help="Exit after the given commands.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per command.")
@click.option("--dap", is_flag=True, help="Serve an editor (Debug Adapter Protocol) on stdio.")
@click.option(
    "--listen", type=int, metavar="PORT", help="With --dap: serve one editor on 127.0.0.1:PORT."
)
@click.option("--force", is_flag=True, help="Continue if files do not belong together.")
@click.option(
    "--source-unit",
    type=click.Choice(["ns", "us", "ms", "s", "cycles"]),
    default="ns",
    help="Unit of the runtime's clock.",
)
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    debug_buffer: str | None,
    inputs: tuple[str, ...],
    commands: tuple[str, ...],
    scripts: tuple[str, ...],
    batch: bool,
    as_json: bool,
    dap: bool,
    listen: int | None,
    force: bool,
    source_unit: str,
) -> int:
    """Debug a model as gdb debugs a program: etdb MODEL.etrecord RUN.etdp [BUFFER.bin] walks a
    recorded run, and etdb MODEL.etrecord MODEL.pte -ex 'target runtime' the program itself.

    FILES are an ETRecord, an ETDump, its debug buffer, a .pte or .bpte, each by itself or together.
    A folder of `etscope run --save` stands for its dump and buffer; without FILES, etdb debugs the
    last run (etscope runs).

    Commands come from -ex and -x in the order given, then from the prompt, or from standard input
    if it is not a terminal. The command help lists them.
    """
    if dap or listen is not None:
        return _serve_editor(listen, alone=dap and not (files or commands or scripts))
    from etscope.etdb.commands.targets import read_inputs
    from etscope.etdb.debugger import PLAIN_COLUMNS
    from etscope.etdb.session import Session, given_or_last

    given = read_inputs(*inputs) if inputs else None
    paths = given_or_last(files)
    if paths and not files:
        print(f"the last run: {paths[0]}", file=sys.stderr)
    session = Session(
        *paths, inputs=given, force=force, debug_buffer=debug_buffer, source_unit=source_unit
    )
    first = _first_lines(context.meta[_ORDER], commands, scripts)
    try:
        if sys.stdout.isatty() and not as_json:
            session.debugger.columns = lambda: _width() or PLAIN_COLUMNS
        over = batch

        def report(result: Result) -> None:
            nonlocal over
            over = over or result.answer.ends
            if as_json:
                _write_json(result, session)
            else:
                show(result, echo=not batch)

        code = session.run_script(first, report)
        if over:
            return code
        rest = session.run_script(sys.stdin, report) if as_json else interact(session)
        return code or rest
    finally:
        session.debugger.close()


def _serve_editor(listen: int | None, *, alone: bool) -> int:
    if not alone:
        raise click.UsageError("--dap takes nothing but --listen: the editor names the files")
    from etscope.etdb.dap.server import serve

    return serve(listen)


def _first_lines(
    order: Iterable[str | None], commands: Iterable[str], scripts: Iterable[str]
) -> list[str]:
    """Return the lines of -ex and -x in the order of the options."""
    from etscope.etdb.session import read_script

    lines = {
        "commands": ([line] for line in commands),
        "scripts": (read_script(path) for path in scripts),
    }
    return [line for name in order if name in lines for line in next(lines[name])]


def show(result: Result, *, echo: bool = False) -> None:
    """Write a result: the output to standard output, an error to standard error."""
    from etscope.etdb.output import error_text, folded, write_output
    from etscope.views.tables.cells import visible

    if echo:
        print(f"{result.prompt}{visible(result.line)}")
    width = _width()
    fold = width if sys.stdout.isatty() else None
    write_output(result.answer, sys.stdout, width=width, fold=fold)
    if result.error is not None:
        sys.stdout.flush()
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        for line in error_text(result.error).split("\n"):
            print(*folded(line, width), sep="\n", file=sys.stderr)


def _width() -> int | None:
    """Return the width of tables: $COLUMNS, or the terminal's; None without either."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"]) or None
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def interact(session: Session) -> int:
    """Read lines until `quit` or the end of the input. Returns the exit code of the session."""
    if sys.stdin.isatty() and sys.stdout.isatty() and available("prompt_toolkit"):
        lines = _edited_lines(session)
    elif sys.stdin.isatty():
        lines = _lines(session, lambda: input(session.prompt), print)
    else:
        return session.run_script(sys.stdin, show)
    for line in lines:
        try:
            result = session.execute(line)
            show(result)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            continue
        if result.answer.ends:
            break
    return 0


def _lines(session: Session, read: Callable[[], str], after: Callable[[], None]) -> Iterator[str]:
    """Yield lines up to the end of the input. after: called when Ctrl-C or Ctrl-D ends one."""
    while True:
        session.debugger.load_ahead()
        try:
            yield read()
        except EOFError:
            return after()
        except KeyboardInterrupt:
            session.debugger.block = None
            after()


def _edited_lines(session: Session) -> Iterator[str]:
    """Read lines with completion and a history that is kept for later sessions."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer as BaseCompleter
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory

    from etscope.etdb.session import Completer

    own = Completer(session.debugger)

    class PromptCompleter(BaseCompleter):
        def get_completions(self, document: Any, event: Any) -> Iterator[Completion]:
            word, found = own.complete(document.text_before_cursor)
            for text in found:
                yield Completion(text, start_position=-len(word))

    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    history: History = InMemoryHistory()
    try:
        folder = Path(home).expanduser() / "etscope"
        folder.mkdir(parents=True, exist_ok=True)
        history = FileHistory(str(folder / "etdb_history"))
    except OSError:
        pass
    prompt: PromptSession[str] = PromptSession(
        history=history, completer=PromptCompleter(), complete_while_typing=False
    )

    def loading() -> str:
        return "loading the reference" if session.debugger.is_loading else ""

    def read() -> str:
        return prompt.prompt(session.prompt, rprompt=loading, refresh_interval=_REFRESH)

    return _lines(session, read, lambda: None)


def _write_json(result: Result, session: Session) -> None:
    from etscope.views.output import dumps

    error, stop = result.error, session.debugger.stop
    document: dict[str, Any] = {
        "command": result.line,
        "ok": result.ok,
        "exit_code": result.exit_code,
        "finding": result.answer.finding,
        "answer": result.data,
        "stop": None,
        "stopped": None,
        "error": None,
    }
    if (stopped := session.debugger.stopped) is not None:
        document["stopped"] = {"reason": stopped.reason, "breakpoints": stopped.breakpoints}
    if stop is not None:
        document["stop"] = {
            "position": stop.position,
            "instruction": stop.instruction,
            "node": stop.node,
            "op": stop.op,
            "pass": stop.loop_pass,
            "module": stop.module,
            "source": [str(line) for line in stop.lines],
        }
    if error is not None:
        document["error"] = {"message": error.message, "hint": error.hint, "slug": error.slug}
    print(dumps(document, nan="NaN"))  # null is a value that is not known


def _show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, EtscopeWarning):
        print(f"warning: {message}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `etdb`. Returns the exit code, unless the reference is still being loaded: a thread in
    the middle of an import cannot be ended otherwise than with the process."""
    code = _exit_code(arguments)
    reference = sys.modules.get("etscope.etdb.targets.reference")
    if reference is not None and reference.Background.is_any_running():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


def _exit_code(arguments: Sequence[str] | None) -> int:
    args = list(sys.argv[1:] if arguments is None else arguments)
    # gdb writes `-ex CMD`, which click would read as `-e x`.
    args = ["--command" if argument == "-ex" else argument for argument in args]
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    exits.write_utf8()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # never fail on a character
            stream.reconfigure(errors="backslashreplace")
    try:
        with command.make_context("etdb", args) as context:
            result: Any = command.invoke(context)
        sys.stdout.flush()
        return 0 if result is None else int(result)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        return exits.BROKEN_PIPE
    except click.ClickException as error:
        error.show()
        return _USAGE
    except EtscopeError as error:
        from etscope.etdb.output import error_text

        print(f"{error_text(error)}\n  see: {PAGE}#{error.slug}", file=sys.stderr)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        print("error: this is a bug in etscope; please report it", file=sys.stderr)
        return _BUG


if __name__ == "__main__":
    raise SystemExit(main())
