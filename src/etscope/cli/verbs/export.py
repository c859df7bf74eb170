"""`etscope export`: from a PyTorch model to a program, its ETRecord and a bundled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from etscope.cli.options.files import FILE
from etscope.views import TABLE_VIEWS

if TYPE_CHECKING:
    from etscope.export import Exported, Source
    from etscope.model.table import Table

__all__ = ["command", "export_options", "exported"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

BACKENDS = ("portable", "xnnpack")  # those of etscope.bridge.lowering.export, without its imports
_WHAT = {
    ".pte": "the program",
    ".etrecord": "its ETRecord: graphs, source lines, debug handles",
    ".bpte": "the program with its example inputs and the outputs to expect",
}


def export_options(function: _Function) -> _Function:
    """Add `--backend --quantize --tap --keep-float --calibration --inputs --strict --seed`:
    parameters of `exported` by these names; `--tap` is `taps`."""
    for decorator in (
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Seed of torch's random numbers, set before the model is made.",
        ),
        click.option(
            "--strict/--no-strict",
            default=None,
            help="How torch.export traces. Default: strictly, else not strictly with a warning.",
        ),
        click.option(
            "--inputs",
            type=FILE,
            metavar="FILE",
            help="Example inputs: .npz, .npy, .safetensors or .pt.",
        ),
        click.option(
            "--calibration",
            type=FILE,
            metavar="FILE",
            multiple=True,
            help="Inputs to set int8 ranges by, one set a FILE. Default: the example inputs.",
        ),
        click.option(
            "--keep-float",
            metavar="SELECTOR",
            multiple=True,
            help="What --quantize leaves in float: 'op:conv* and module:head'. Repeatable.",
        ),
        click.option(
            "--tap",
            "taps",
            metavar="SELECTOR",
            multiple=True,
            help="Make intermediate values outputs: 'op:conv* and module:head'. Repeatable.",
        ),
        click.option("--quantize", "-q", is_flag=True, help="int8 weights and activations."),
        click.option(
            "--backend",
            "-b",
            type=click.Choice(BACKENDS),
            default="portable",
            show_default=True,
            help="What operators run on.",
        ),
    ):
        function = decorator(function)
    return function


def exported(
    model: str,
    *,
    backend: str,
    quantize: bool,
    calibration: Sequence[str],
    keep_float: Sequence[str],
    taps: Sequence[str],
    inputs: str | None,
    strict: bool | None,
    seed: int,
) -> tuple[Source, Exported]:
    """The model of that name, and its export."""
    import logging
    import sys
    from contextlib import redirect_stdout

    from etscope.cli.output.progress import progress
    from etscope.export import load_model
    from etscope.optional import require
    from etscope.quiet import quiet

    with progress("loading PyTorch and ExecuTorch"), quiet():
        # Now, so that their notices do not stand among those of the user's own code.
        require("torch", wanted_by="export")
        require("executorch.exir", wanted_by="export")
    # torchao's enums, which other packages import too.
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
    with progress(f"loading {model}"), redirect_stdout(sys.stderr):
        source = load_model(model, inputs=inputs, seed=seed)
        sets = [source.read_inputs(file) for file in calibration] or None
    with progress(f"exporting {source.name}"), quiet():
        return source, source.export(
            backend=backend,
            quantize=quantize,
            calibration=sets,
            keep_float=keep_float,
            taps=taps,
            strict=strict,
        )


@click.command(short_help="Export a PyTorch model: .pte, ETRecord and .bpte in one go.")
@click.argument("model", metavar="MODEL")
@export_options
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the files. Default: one of the model's name.",
)
@click.option("--name", default="model", show_default=True, help="Name of the files.")
@click.option("--no-bundle", is_flag=True, help="Write no .bpte.")
@click.option(
    "--format",
    "-f",
    type=click.Choice(list(TABLE_VIEWS)),
    help="Form of the list of files. Default: table.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour the table; auto: on a terminal, unless NO_COLOR is set.",
)
def command(
    model: str,
    output: Path | None,
    name: str,
    no_bundle: bool,
    format: str | None,
    color: str,
    **options: Any,
) -> None:
    """Export MODEL to ExecuTorch: write NAME.pte, NAME.etrecord and NAME.bpte to a folder.

    MODEL is package.module:attribute, path/to/file.py:attribute or a .pt2 file of
    torch.export.save. The attribute is a torch.nn.Module or a class of one, an ExportedProgram, or
    a function without arguments that returns one of these or (module, example_inputs).

    Python code that MODEL names is run. A .pt2 file is not: what might run code is refused.
    """
    from etscope.cli.output.output import write_tables
    from etscope.errors import BundleError, UsageError

    source, result = exported(model, **options)
    try:
        paths = result.save(output or Path(source.name), name, bundle=not no_bundle)
    except BundleError as error:
        raise UsageError(
            f"cannot write the .bpte: {error.message}", hint="write the other files: --no-bundle"
        ) from error
    write_tables([_files(paths)], None, None, format, None, color)


def _files(paths: Sequence[Path]) -> Table:
    from etscope.model.table import Column, Kind, Table

    return Table(
        columns=(Column("file", Kind.PATH), Column("what"), Column("bytes", Kind.COUNT)),
        values={
            "file": [str(path) for path in paths],
            "what": [_WHAT[path.suffix] for path in paths],
            "bytes": [path.stat().st_size for path in paths],
        },
    )
