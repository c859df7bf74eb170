"""`etscope export`: write a PyTorch model's program, ETRecord and bundled program."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import output_options, path_option
from etscope.cli.options.export import (
    ExportCommand,
    export_options,
    exported,
    inputs_or_types_option,
    load_torch,
    seed_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import setting, switch
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.export import ExportProfile

_CONTENT = {
    ".pte": "the program",
    ".etrecord": "its ETRecord: graphs, source lines, debug handles",
    ".bpte": "the program with its example inputs and the expected outputs",
}


_DETAILS = """\
MODEL is package.module:attribute, path/to/file.py:attribute, a .pt2 file of
torch.export.save, a config.json of a language model of transformers, or its folder, or a .yaml
config of export_llm. The attribute is a torch.nn.Module or a class of one, an ExportedProgram,
or a function without arguments that returns one of these or (module, example_inputs).

A model of transformers that generates text, without example inputs, becomes a program with a
KV cache for ExecuTorch's runners and etscope generate.

Python code that MODEL names is run. A .pt2 file is only read; one that could run code is
rejected.
"""


@verb(
    {
        "Model": ("--backend", "--quantize", "--inputs", "-X"),
        "Files": ("--output", "--profile", "--format"),
    },
    details=_DETAILS,
    cls=ExportCommand,
)
@click.argument("model", metavar="MODEL")
@export_options
@inputs_or_types_option
@seed_option
@path_option(
    "--output",
    "-o",
    "folder",
    metavar="DIR",
    help="Folder for the files. Default: the model's name.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Show time and peak memory of each stage and pass, and which made the graph grow; keep "
    "them in NAME.profile.json. Formats for programs have these rows.",
)
@setting("name", default="model", help="Name of the files.")
@switch("bundle", True, "Write a .bpte, too.")
@lambda function: output_options(function, to_file=False)
def command(
    model: str,
    folder: Path | None,
    profile: bool,
    name: str,
    bundle: bool,
    output: OutputOptions,
    **options: Any,
) -> None:
    """Export MODEL to ExecuTorch: NAME.pte, its ETRecord and a bundled program, in one folder.

    \b
    etscope export model.py:Model --backend xnnpack
    etscope export model.py:Model --backend xnnpack --quantize
    etscope export model.py:Model --inputs float32[1,3,224,224] -o out
    etscope export model.py:Model --backend xnnpack -X export.toml
    """
    from etscope.analysis.faults.faults import program_faults, told
    from etscope.analysis.matching.export import Export
    from etscope.errors import BundleError, EtscopeWarning, UsageError
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.program.pte import read_pte
    from etscope.model.table import Column, Kind, Table

    with _profiled(output) if profile else nullcontext() as profiled:
        source, result = exported(model, **options)
        folder = folder or Path(source.name)
        try:
            paths = result.save(folder, name, bundle=bundle)
        except BundleError as error:
            raise UsageError(
                f"cannot write the .bpte: {error.message}",
                hint="without a .bpte, the other files can be written: -X bundle=false",
            ) from error
    saved = Export(read_pte(paths[0]), read_etrecord(paths[1]))
    for fault in program_faults(saved):
        warnings.warn(told(fault), EtscopeWarning, stacklevel=1)
    table = Table.of(
        {
            Column("file", Kind.PATH): [str(path) for path in paths],
            Column("what"): [_CONTENT[path.suffix] for path in paths],
            Column("bytes", Kind.COUNT): [path.stat().st_size for path in paths],
        },
        # For a person it is among the warnings.
        notes=() if output.chosen_format == "table" else tuple(result.undelegated()),
    )
    tables = [table]
    if profiled is not None:
        profiled.save(folder / f"{name}.profile.json")
        tables = [table, profiled.table(short=True)] if output.is_text else [profiled.table()]
    output.write_tables(tables)


@contextmanager
def _profiled(output: OutputOptions) -> Iterator[ExportProfile]:
    """Profile the export inside. If it ends early, show the stages so far, and name the last."""
    from etscope.export import profiling

    load_torch("export")
    try:
        with profiling() as found:
            yield found
    except BaseException:
        if found.stopped is not None:
            click.echo(f"stopped in {found.stopped}", err=True)
            output.write_tables([found.table(short=output.is_text)])
        raise
