"""The files that a verb reads, and the trace made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace

__all__ = [
    "FILE",
    "force_option",
    "open_trace",
    "read_inputs",
    "source_unit_option",
    "trace_options",
]

_SOURCE_UNITS = ("ns", "us", "ms", "s", "cycles")
_Function = TypeVar("_Function", bound=Callable[..., Any])

# A path that the shell completes. Whether it is there, and a file, the readers find out and say.
FILE = click.Path()

source_unit_option = click.option(
    "--source-unit",
    type=click.Choice(_SOURCE_UNITS),
    default="ns",
    show_default=True,
    help="Unit of the runtime's clock.",
)
force_option = click.option(
    "--force", is_flag=True, help="Go on though files do not belong together."
)


def trace_options(function: _Function) -> _Function:
    """Add the argument DUMP and `--etrecord --debug-buffer --program --force --source-unit`."""
    for decorator in (
        source_unit_option,
        force_option,
        click.option(
            "--program", "-p", type=FILE, metavar="PTE", help="The .pte or .bpte that ran."
        ),
        click.option(
            "--debug-buffer", "-b", type=FILE, metavar="BIN", help="The file of logged tensors."
        ),
        click.option(
            "--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of the export."
        ),
        click.argument("dump", type=FILE),
    ):
        function = decorator(function)
    return function


def open_trace(
    dump: str,
    etrecord: str | None = None,
    debug_buffer: str | None = None,
    program: str | None = None,
    *,
    force: bool = False,
) -> Trace:
    """The trace of the named files, refused unless they belong together or `force` is given."""
    from etscope.analysis.profile.trace import Trace
    from etscope.formats.etdump.debug_values import DebugBuffer
    from etscope.formats.etdump.reader import read_etdump
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.program.bpte import read_program_file

    trace = Trace(
        dump=read_etdump(dump),
        record=None if etrecord is None else read_etrecord(etrecord),
        debug_buffer=None if debug_buffer is None else DebugBuffer.open(debug_buffer),
        program=None if program is None else read_program_file(program)[0],
        forced=force,
    )
    trace.check_debug_buffer()
    if not force:
        trace.verify()
    return trace


def read_inputs(trace: Trace, method: str, path: str) -> list[Any]:
    """The inputs of a run from a file, in the order of the method's."""
    from etscope.run.inputs import file_inputs

    return file_inputs(path, trace.recorded_program, trace.record, method)
