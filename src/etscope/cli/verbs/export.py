"""`etscope export`: write a PyTorch model's program, ETRecord and bundled program."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from etscope.cli.options.common import output_options, path_option
from etscope.cli.options.export import (
    ExportCommand,
    export_options,
    exported,
    inputs_or_types_option,
    seed_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import setting, switch
from etscope.cli.verb import verb

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
        "Files": ("--output", "--format"),
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
@setting("name", default="model", help="Name of the files.")
@switch("bundle", True, "Write a .bpte, too.")
@lambda function: output_options(function, to_file=False)
def command(
    model: str,
    folder: Path | None,
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

    source, result = exported(model, **options)
    try:
        paths = result.save(folder or Path(source.name), name, bundle=bundle)
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
    output.write_tables([table])
