"""`etscope profile`: from a PyTorch model to where its time goes, in one call."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import output_options, table_options
from etscope.cli.options.run import VERIFICATION, RunOptions, run_options
from etscope.cli.output.profiles import GROUPINGS, EventsView
from etscope.cli.verbs.export import export_options, exported
from etscope.cli.verbs.run import finish

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
    from etscope.cli.output.output import for_people
    from etscope.cli.output.progress import progress

    options.check(for_people(format, output))
    view = EventsView(by, select, columns, sort, limit, unit)
    _, result = exported(model, **export)
    with ExitStack() as until_the_end:
        folder = options.save or Path(until_the_end.enter_context(tempfile.TemporaryDirectory()))
        verifies = VERIFICATION in options.show
        paths = _saved(result, folder, bundle=verifies or options.save is not None)
        if verifies and ".bpte" in paths:
            source, calls = paths[".bpte"], None
        else:
            source, calls = paths[".etrecord"], _calls(result, options.method)
        with progress(f"running {model}"):
            run = options.run(source, calls, etrecord=paths[".etrecord"])
        if options.save is not None:
            for path in paths.values():
                click.echo(f"wrote {path}", err=True)
        return finish(run, options, view, format, output, color)


def _saved(result: Exported, folder: Path, *, bundle: bool) -> dict[str, Path]:
    """The files of the export by suffix. What no bundled program can hold is warned of."""
    import warnings

    from etscope.errors import BundleError, EtscopeWarning

    try:
        paths = result.save(folder, bundle=bundle)
    except BundleError as error:
        warnings.warn(f"no .bpte is written: {error.message}", EtscopeWarning, stacklevel=2)
        paths = result.save(folder, bundle=False)
    return {path.suffix: path for path in paths}


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
