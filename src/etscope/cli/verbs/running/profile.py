"""`etscope profile`: export a PyTorch model, run it and show where its time goes."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from etscope.cli.options.common import output_options, view_options
from etscope.cli.options.export import ExportCommand, export_options, exported
from etscope.cli.options.run import VERIFICATION, RunArguments, run_options
from etscope.cli.output.tables import OutputOptions, ViewOptions


@click.command(cls=ExportCommand)
@click.argument("model", metavar="MODEL")
@export_options
@run_options(inputs=False)
@view_options
@output_options
def command(
    model: str, options: RunArguments, view: ViewOptions, output: OutputOptions, **export: Any
) -> int:
    """Export MODEL, run it on its example inputs, and show how long each operator took and which
    line of Python it is.

    MODEL is package.module:attribute, path/to/file.py:attribute or a .pt2 file, as for etscope
    export; the other options are those of etscope run. --save DIR keeps everything: the program,
    its ETRecord, the ETDump.
    """
    from etscope.analysis.profile.correlate import recorded_inputs
    from etscope.cli.output.progress import progress
    from etscope.errors import BundleError, EtscopeWarning, MissingDataError
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.run import Call

    options.check(output)
    _, result = exported(model, **export)
    with ExitStack() as stack:
        folder = options.save or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        verifies = VERIFICATION in options.show
        try:
            saved = result.save(folder, bundle=verifies or options.save is not None)
        except BundleError as error:
            warnings.warn(f"no .bpte is written: {error.message}", EtscopeWarning, stacklevel=2)
            saved = result.save(folder, bundle=False)
        paths = {path.suffix: path for path in saved}
        calls = None
        if not (verifies and ".bpte" in paths):
            record = read_etrecord(paths[".etrecord"])
            calls = [
                # Those of the record are taken from there, texts and all, also by who compares.
                Call(name, None if recorded_inputs(record, name) else values)
                for name, values in result.example_inputs.items()
                if options.method in (None, name)
            ]
            if not calls:
                raise MissingDataError(
                    f"the model has no method {options.method!r}",
                    hint=f"methods are: {', '.join(result.example_inputs)}",
                )
        source = paths[".bpte" if calls is None else ".etrecord"]
        with progress(f"running {model}"):
            run = options.run(source, calls, etrecord=paths[".etrecord"])
        if options.save is not None:
            for path in saved:
                click.echo(f"wrote {path}", err=True)
        return options.finish(run, view, output)
