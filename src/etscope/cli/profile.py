"""`etscope profile`: from a PyTorch model to where its time goes, in one call."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli._options import output_options, table_options
from etscope.cli._profiles import GROUPINGS
from etscope.cli._run_options import VERIFICATION, RunOptions, run_options
from etscope.cli.export import export_options, exported
from etscope.cli.run import show

if TYPE_CHECKING:
    from etscope.export import Exported


@click.command(short_help="Export a PyTorch model, run it, show its operators.")
@click.argument("model", metavar="MODEL")
@export_options
@run_options(inputs=False)
@click.option("--by", type=click.Choice(GROUPINGS), help="Roll the instructions up.")
@click.option("--select", "-s", metavar="SELECTOR", help="Show what matches: 'op:conv* and …'.")
@table_options
@output_options
def command(
    model: str,
    options: RunOptions,
    by: str | None,
    select: str | None,
    columns: tuple[str, ...] | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
    format: str | None,
    output: Path | None,
    color: str,
    **export: Any,
) -> int:
    """Export MODEL, run it on its example inputs, and show how long each operator took and which
    line of Python it is.

    MODEL is package.module:attribute, path/to/file.py:attribute or a .pt2 file, as for etscope
    export; the rest is as for etscope run. --save DIR keeps everything: the program, its ETRecord,
    the ETDump.
    """
    from etscope.cli._output import for_people
    from etscope.cli._progress import progress

    people = for_people(format, output)
    options.check(people)
    _, result = exported(model, **export)
    with ExitStack() as until_the_end:
        folder = options.save or Path(until_the_end.enter_context(tempfile.TemporaryDirectory()))
        paths = {path.suffix: path for path in result.save(folder)}
        if options.save is not None:
            for path in paths.values():
                click.echo(f"wrote {path}", err=True)
        with progress(f"running {model}"):
            if VERIFICATION in options.show:  # the bundle has what to verify
                run = options.run(paths[".bpte"], etrecord=paths[".etrecord"])
            else:
                run = options.run(paths[".etrecord"], _calls(result, options.method))
        options.write_files(run)
        show(run, options, by, select, columns, sort, limit, unit, format, output, color)
        return options.exit_code(run)


def _calls(result: Exported, method: str | None) -> list[Any]:
    """The example inputs of the methods to run: of all, unless one is named."""
    from etscope.errors import MissingDataError
    from etscope.run import Call

    inputs = {
        name: values for name, values in result.example_inputs.items() if method in (None, name)
    }
    if not inputs:
        raise MissingDataError(
            f"the model has no method {method!r}",
            hint=f"methods are: {', '.join(result.example_inputs)}",
        )
    return [Call(name, values) for name, values in inputs.items()]
