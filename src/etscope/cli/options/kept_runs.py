"""Kept runs on the command line: "@1" names one; without RUN, commands take the last one."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from etscope.errors import EtscopeError, EtscopeWarning, UsageError

NEXT = ("explain", "report", "inspect")  # what people do next with a run

SAVE_OPTIONS = (
    click.option(
        "--save",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Keep the run in DIR. Default: a new folder in .etscope/runs.",
    ),
    click.option("--no-save", is_flag=True, help="Do not keep the run."),
)


def kept_runs(default: int = 0) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that replaces "@1" and the like by the folders of kept runs.

    default: number of last runs to take without an argument, oldest first.
    """

    def found(context: click.Context, parameter: click.Parameter, given: Any) -> Any:
        if given or not default or context.resilient_parsing:
            return tuple(map(_folder, given)) if isinstance(given, tuple) else _folder(given)
        folders = last_runs(default)
        return folders[0] if parameter.nargs == 1 else folders

    return found


def last_runs(count: int = 1) -> tuple[str, ...]:
    """Return the folders of the last kept runs, oldest first, and print them.

    Raises `UsageError` if there are fewer.
    """
    folders = tuple(_folder(f"@{number}") for number in reversed(range(count)))
    click.echo(f"run: {' and '.join(folders)}", err=True)
    return folders


def _folder(text: Any) -> Any:
    if text is None or not text.startswith("@"):  # a path: spare the import
        return text
    from etscope.capture.kept_runs import path_of

    return path_of(text)


@contextmanager
def saved_run(
    save: Path | None, no_save: bool, name: str, next_commands: Sequence[str]
) -> Iterator[Path | None]:
    """Yield the folder for a saved run, or None if the run is not kept. At the end, print the
    folder; in the folder of a failed run, write why it failed.

    save, no_save: the values of `SAVE_OPTIONS`. name: the model's name. next_commands: verbs that
    show more of the run.
    """
    from etscope.capture.files import FAILURE_TXT
    from etscope.capture.kept_runs import KeptRuns, within

    runs = KeptRuns()
    if save is not None or no_save or runs.is_off():
        try:
            yield save
        except EtscopeError as error:
            if save is not None and save.is_dir():
                (save / FAILURE_TXT).write_text(f"{error}\n", encoding="utf-8")
            raise
        if save is not None:
            (save / FAILURE_TXT).unlink(missing_ok=True)
            click.echo(f"saved in {save}; next: {_commands(next_commands, str(save))}", err=True)
        return
    with ExitStack() as stack:
        try:
            run = stack.enter_context(runs.writing(name))
        except UsageError as error:  # a folder that cannot be written is no reason not to run
            warnings.warn(str(error), EtscopeWarning, stacklevel=2)
            yield None
            return
        yield run.path
    removed = runs.make_room()
    click.echo(f"kept in {run.kept}; next: {_commands(next_commands)}", err=True)
    if removed:
        names = ", ".join(one.path.name for one in removed)
        click.echo(
            f"removed {names}: the limit is {within(runs.cap)} (etscope runs cap changes it)",
            err=True,
        )


def _commands(verbs: Sequence[str], *run: str) -> str:
    return ", ".join(shlex.join(["etscope", verb, *run]) for verb in verbs)
