"""`etscope graph --format dot | graph-json | model-explorer | node-data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.files import open_trace

if TYPE_CHECKING:
    from etscope.analysis.graphs.views import GraphView
    from etscope.analysis.profile.scale import Scale
    from etscope.analysis.profile.trace import Trace


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """The files of a graph and of its run, by the options of the verb."""

    record: str
    dump: str | None
    program: str | None
    debug_buffer: str | None
    inputs: str | None
    force: bool


def is_graph_format(format: str | None, output: Path | None) -> bool:
    """Whether a graph is to be written, and not a table."""
    from etscope.views import GRAPH_VIEWS

    if format is not None:
        return format in GRAPH_VIEWS
    name = "" if output is None else str(output).lower()
    return any(name.endswith(spec.suffix) for spec in GRAPH_VIEWS.values())


def write_graph_files(
    files: GraphFiles,
    name: str | None,
    scale: Scale,
    overlay: str | None,
    into_delegates: bool,
    format: str | None,
    output: Path | None,
) -> None:
    """Write the graph called `name`, or all, in a format of `GRAPH_VIEWS`."""
    from etscope.analysis.graphs.flow import without_delegates
    from etscope.views import GRAPH_VIEWS, format_of, save_graphs

    path = "-" if output is None else str(output)
    chosen = format or format_of(path, GRAPH_VIEWS, default="graph-json")
    if overlay is not None and chosen != "node-data":
        raise click.UsageError("--columns tells what --format node-data holds.")
    views = _views(files, name)
    if not into_delegates:
        views = [without_delegates(view) for view in views]
    options: dict[str, Any] = {} if chosen != "node-data" else {"overlay": overlay or "avg"}
    save_graphs(views, path, chosen, scale=scale, **options)


def _views(files: GraphFiles, name: str | None) -> list[GraphView]:
    from etscope.analysis.graphs.errors import with_errors
    from etscope.analysis.graphs.views import graph_views, view_keys
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.identify import PTE, identify
    from etscope.formats.program.program_file import read_program_file

    is_program = identify(files.record) == PTE
    program = files.record if is_program else files.program
    etrecord = None if is_program else files.record
    trace = None
    if files.dump is not None:
        trace = open_trace(files.dump, etrecord, files.debug_buffer, program, force=files.force)
    record = None if etrecord is None else read_etrecord(etrecord)
    opened = None if program is None else read_program_file(program)[0]
    known = view_keys(record, trace, opened)
    only = list(known) if name is None else [_found(name, known)]
    numerics = [] if trace is None or files.debug_buffer is None else _numerics(trace, files)
    # A row of numerics is of the edge graph: from there it gets to the others.
    made = graph_views(record, trace, opened, only=list(known) if numerics else only)
    for found in numerics:
        made = with_errors(made, found)
    return [view for view in made if view.key in only]


def _numerics(trace: Trace, files: GraphFiles) -> list[Any]:
    from etscope.cli.options.files import read_inputs
    from etscope.cli.output.progress import progress
    from etscope.formats.program.program_file import read_program_file
    from etscope.quiet import quiet
    from etscope.reporting.tensorboard import numerics_if_known

    inputs = files.inputs
    given = None if inputs is None else lambda method: read_inputs(trace, method, inputs)
    bundle = None if files.program is None else read_program_file(files.program)[1]
    with progress("computing the reference"), quiet():
        return numerics_if_known(trace, given, bundle)


def _found(name: str, known: tuple[str, ...]) -> str:
    """The key that a person calls `name`: "edge", "edge/forward", "forward"."""
    from etscope.errors import MissingDataError, UsageError

    if name in known:
        return name
    found = [key for key in known if name in (key.partition("/")[0], key.rpartition("/")[2])]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"several graphs could be meant by {name!r}", hint="name one of: " + ", ".join(found)
        )
    raise MissingDataError(f"no graph {name!r}", hint="graphs are: " + ", ".join(known))
