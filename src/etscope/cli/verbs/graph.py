"""`etscope graph`: the graphs of an ETRecord, their modules and nodes, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import graph_output_options, table_options
from etscope.cli.options.files import FILE, force_option, open_trace, source_unit_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from etscope.analysis.graphs.linked_graph import LinkedGraph
    from etscope.analysis.graphs.node_times import NodeTimes
    from etscope.analysis.graphs.views import GraphView
    from etscope.analysis.profile.scale import Scale
    from etscope.analysis.profile.trace import Trace
    from etscope.model.selector import Fields
    from etscope.model.table import Table


# `etscope graph --format dot | graph-json | model-explorer | node-data`.


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
    from etscope.formats.program.bpte import read_program_file

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
    from etscope.formats.program.bpte import read_program_file
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


@click.command(short_help="Look into the graphs of an ETRecord.")
@click.argument("record", type=FILE)
@click.argument("name", required=False)
@click.option("--select", "-s", metavar="SELECTOR", help="Show what matches: 'op:conv* and …'.")
@click.option("--tree", is_flag=True, help="Show the modules of the graph as a tree.")
@click.option("--node", metavar="NODE", help="Show all that is known of one node.")
@click.option("--dump", "-d", type=FILE, metavar="DUMP", help="The ETDump of a run, for times.")
@click.option("--program", "-p", type=FILE, metavar="PTE", help="The .pte file that ran.")
@click.option(
    "--debug-buffer", "-b", type=FILE, metavar="BIN", help="Logged tensors, for errors in graphs."
)
@click.option("--inputs", type=FILE, metavar="FILE", help="The inputs that ran, for the same.")
@source_unit_option
@force_option
@click.option(
    "--into-delegates/--no-into-delegates",
    default=True,
    show_default=True,
    help="Show the nodes inside lowered modules, below their calls.",
)
@table_options
@graph_output_options
def command(
    record: str,
    name: str | None,
    select: str | None,
    tree: bool,
    node: str | None,
    dump: str | None,
    program: str | None,
    debug_buffer: str | None,
    inputs: str | None,
    source_unit: str,
    force: bool,
    into_delegates: bool,
    columns: tuple[str, ...] | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """List the graphs of RECORD, or show the nodes of the one called NAME.

    NAME may be short: "edge", "exported", "edge/forward". With --tree, --node, --select or --dump
    it may be left out when the record has one edge graph. Nodes stand in order of execution, those
    of branches and lowered modules below the node that calls them.

    Of a .pte file the instructions of its methods are listed, or of the method NAME.

    --format dot, graph-json, model-explorer and node-data write graphs instead of a table, all of
    them unless one is named; "executed" is the program with its delegates opened. For node-data
    --columns names the number: avg, p50, p90, min, max, first, bytes, live_bytes, total_error or
    local_error.
    """
    from etscope.cli.output.output import write_reports, write_tables
    from etscope.errors import UsageError
    from etscope.formats.identify import PTE, identify
    from etscope.model.report import filled_columns

    if is_graph_format(format, output):
        if tree or node or select or sort or limit is not None:
            raise click.UsageError(
                "--tree --node --select --sort --limit are for tables: a graph is written whole."
            )
        if columns is not None and len(columns) != 1:
            raise click.UsageError("--columns names one number for --format node-data.")
        write_graph_files(
            GraphFiles(record, dump, program, debug_buffer, inputs, force),
            name,
            _scale(source_unit, unit),
            None if columns is None else columns[0],
            into_delegates,
            format,
            output,
        )
        return
    if debug_buffer or inputs:
        raise click.UsageError(
            "--debug-buffer and --inputs are for errors in graphs: --format graph-json, node-data"
        )
    if identify(record) == PTE:
        if tree or node or select or dump or sort:
            raise UsageError(
                "a .pte file has instructions and no graphs: only a list of them can be shown",
                hint="--tree --node --select --dump --sort work on the ETRecord of the same export",
            )
        write_tables(_instructions(record, name, limit), columns, None, format, output, color)
        return
    if name is None and not (tree or node or select or dump):
        from etscope.analysis.graphs.graph_names import graph_list
        from etscope.formats.etrecord.reader import read_etrecord

        listed = graph_list(read_etrecord(record))
        write_tables([listed], columns, filled_columns(listed), format, output, color)
        return
    if tree and sort:
        raise click.UsageError("--sort does not go with --tree: modules are in order of use.")
    if node and (tree or select or columns or sort or limit is not None):
        raise click.UsageError("--node shows all of one node: it goes with --dump and --format.")
    linked, times = _linked(record, name or "edge", dump, program, force)
    scale = _scale(source_unit, unit)
    if node:
        from etscope.analysis.graphs.node_info import SCHEMA, find_node, node_info

        report = node_info(linked, find_node(linked, node), times, scale)
        write_reports([report], SCHEMA, format, output, color)
        return
    keep = None if select is None else _keep(select)
    if tree:
        from etscope.analysis.graphs.module_tree import module_tree

        table = module_tree(
            linked, keep=keep, into_delegates=into_delegates, times=times, scale=scale
        )
        table = table.take(range(len(table))[:limit])
        default = filled_columns(table)
    else:
        from etscope.analysis.graphs.node_table import default_columns, node_table

        table = node_table(
            linked,
            keep=keep,
            into_delegates=into_delegates,
            times=times,
            scale=scale,
            sort=sort,
            limit=limit,
        )
        default = default_columns(table)
    if limit != 0:
        _check_matched(table, select)
    write_tables([table], columns, default, format, output, color)


def _instructions(path: str, method: str | None, limit: int | None) -> list[Table]:
    """The instructions of a program's methods, or of the one that is named."""
    from etscope.analysis.program.program import instructions
    from etscope.formats.program.pte import read_pte

    program = read_pte(path)
    methods = [m.name for m in program.methods] if method is None else [method]
    tables = [instructions(program, name).table() for name in methods]
    return [table.take(range(len(table))[:limit]) for table in tables]


def _linked(
    path: str, name: str, dump: str | None, program: str | None, force: bool
) -> tuple[LinkedGraph, NodeTimes | None]:
    """The graph called `name`, and the times of its nodes if there is a dump."""
    from etscope.analysis.graphs.graph_names import find_graph
    from etscope.analysis.graphs.linked_graph import linked_graph
    from etscope.formats.etrecord.reader import read_etrecord

    record = read_etrecord(path)
    full = find_graph(record, name)
    if dump is None:
        return linked_graph(record, full), None
    from etscope.analysis.graphs.node_times import kernel_labels, node_times
    from etscope.errors import MissingDataError

    trace = open_trace(dump, path, program=program, force=force)
    profiles = trace.profiles()
    labels = kernel_labels(trace, profiles)
    linked = linked_graph(record, full, trace.symbols, labels, trace.recorded_program)
    profile = next((profile for profile in profiles if profile.method == linked.method), None)
    if profile is None:
        ran = ", ".join(str(p.method) for p in profiles if p.method) or "none that is known"
        raise MissingDataError(
            f"no run of the graph's method {linked.method!r} in this dump",
            hint=f"methods that ran: {ran}",
        )
    times = node_times(linked, profile)
    if not times.at:
        raise MissingDataError(
            f"no instruction of the run can be joined to a node of the graph {name!r}",
            hint="the nodes of the edge graph have debug handles: etscope graph RECORD edge"
            if profile.rows
            else "the run logged no instructions: profile all events, not the method alone",
        )
    return linked, times


def _scale(source_unit: str, unit: str | None) -> Scale:
    from etscope.analysis.profile.scale import Scale
    from etscope.units import TimeScale

    default = "cycles" if source_unit == "cycles" else "ms"
    return Scale(TimeScale(source_unit), TimeScale(unit or default))


def _keep(select: str) -> Callable[[Fields], bool]:
    from etscope.model.selector import Selector

    return Selector(select).matches


def _check_matched(table: Table, select: str | None) -> None:
    """Nothing matched is never a result."""
    from etscope.errors import MissingDataError

    if select is not None and not len(table):
        raise MissingDataError(f"nothing matches {select!r}", hint="without --select all is shown")
