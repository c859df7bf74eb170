"""`etscope graph`: show the graphs of an ETRecord, their modules, nodes and times."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    FILE,
    TABLE_OPTIONS,
    GraphFiles,
    add_options,
    as_one_parameter,
    as_view,
    debug_buffer_option,
    force_option,
    inputs_option,
    numerics_of_graphs,
    output_options,
    program_option,
    select_option,
    source_unit_option,
)
from etscope.cli.options.kept_runs import kept_runs
from etscope.cli.output.tables import (
    OutputOptions,
    ViewOptions,
    check_numbers,
    nothing_matches,
    nothing_selected,
    time_scale,
)
from etscope.cli.settings import switch
from etscope.cli.verb import verb
from etscope.errors import MissingDataError, UsageError
from etscope.views import GRAPH_VIEWS, TABLE_VIEWS, format_of, save_graphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etscope.analysis.graphs.linked_graph import LinkedGraph
    from etscope.analysis.graphs.node_times import NodeTimes
    from etscope.analysis.profile.scale import Scale
    from etscope.model.table import Table


_DETAILS = """\
NAME may be short: "edge", "exported", "edge/forward"; "executed" is the program with its
delegates opened. With --tree, --node, --select or --dump
it may be left out if the record has one edge graph. Nodes are listed in order of execution,
those of branches and lowered modules below the node that calls them.

--partition shows which delegate call computes each node of the edge program, who refused the
others and why, and the borders between backends: what crosses them, and what stands only
because of them. NAME is then a method, or one of the edge graphs; all without it.

For a .pte file the instructions of its methods are listed, or of the method NAME.

--format dot, graph-json, model-explorer and node-data write graphs instead of a table, all of
them unless one is named. For node-data --columns names the number: avg, p50, p90, min, max,
first, bytes, live_bytes, flops, moved_bytes, intensity, total_error or local_error.
"""


@verb(
    {
        "Nodes": ("--select", "--tree", "--node", "--partition"),
        "Run": ("--dump",),
        "Output": ("--sort", "--limit", "--format", "--output", "-X"),
    },
    details=_DETAILS,
)
@click.argument("record", type=FILE, required=False, callback=kept_runs(1))
@click.argument("name", required=False)
@select_option
@click.option("--tree", is_flag=True, help="Show the modules of the graph as a tree.")
@click.option("--node", metavar="NODE", help="Show all that is known of one node.")
@click.option(
    "--partition",
    is_flag=True,
    help="Show which backend took each node, who refused the others and why, and the borders.",
)
@click.option("--dump", type=FILE, metavar="DUMP", help="The ETDump of a run, for times.")
@program_option
@debug_buffer_option("The file of logged tensors, for errors in graphs.")
@inputs_option
@source_unit_option
@force_option
@switch("into_delegates", True, "Show the nodes inside lowered modules, below their calls.")
@partial(add_options, options=TABLE_OPTIONS)
@partial(output_options, formats=(*TABLE_VIEWS, *GRAPH_VIEWS))
@partial(
    as_one_parameter,
    parameter="files",
    make=GraphFiles,
    names=[field.name for field in fields(GraphFiles)],
)
@as_view("select", "columns", "sort", "limit", "unit")
def command(
    files: GraphFiles,
    name: str | None,
    view: ViewOptions,
    tree: bool,
    node: str | None,
    partition: bool,
    source_unit: str,
    into_delegates: bool,
    output: OutputOptions,
) -> None:
    """List the graphs of a run or an ETRecord, or show the nodes of the one called NAME, with
    their times.

    \b
    etscope graph
    etscope graph model.etrecord edge --select 'op:conv*'
    etscope graph model.etrecord forward --partition
    """
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.identify import PTE, identify
    from etscope.model.report import filled_columns

    files = files.of_run()
    scale = time_scale(source_unit, view.unit)
    for_lists = tree or node or view.select or view.sort
    suffixes = [spec.suffix for spec in GRAPH_VIEWS.values()]
    if partition:
        if tree or node or files.dump or view.columns or view.sort:
            raise click.UsageError(
                "--partition goes with --select, --limit and --format, not with --tree --node "
                "--dump --columns --sort."
            )
        _write_partitions(files, name, view, output)
        return
    by_name = output.format is None and output.path.lower().endswith(tuple(suffixes))
    if by_name or output.format in GRAPH_VIEWS:
        if for_lists or view.limit is not None:
            raise click.UsageError(
                "--tree --node --select --sort --limit are for tables: a graph is written whole."
            )
        _write_graphs(files, name, scale, view.columns, into_delegates, output)
        return
    if files.debug_buffer or files.inputs:
        raise click.UsageError(
            "--debug-buffer and --inputs are for errors in graphs: --format graph-json, node-data"
        )
    if identify(files.record) == PTE and not _is_executed(name):
        if for_lists or files.dump:
            raise UsageError(
                "a .pte file has instructions and no graphs: it can only be listed",
                hint="--tree --node --select --dump --sort work on the ETRecord of the same export",
            )
        output.write_tables(_instructions(files.record, name, view.limit), view.columns)
        return
    if name is None and not (tree or node or view.select or files.dump):
        from etscope.analysis.graphs.graph_names import graph_list

        table = graph_list(read_etrecord(files.record))
        output.write_tables([table], view.columns, filled_columns(table))
        return
    if tree and view.sort:
        raise click.UsageError("--sort does not go with --tree: modules are in order of use.")
    if node and (tree or view.select or view.columns or view.sort or view.limit is not None):
        raise click.UsageError("--node shows all of one node: it goes with --dump and --format.")
    linked, times = _linked_graph(files, name or "edge")
    if node:
        from etscope.analysis.graphs.node_info import SCHEMA, find_node, node_info

        output.write_reports([node_info(linked, find_node(linked, node), times, scale)], SCHEMA)
        return
    table, default = _graph_table(linked, times, scale, view, tree, into_delegates)
    output.write_tables([table], view.columns, default)


_ROWS = 30  # of each table of a partition, in a terminal


def _write_partitions(
    files: GraphFiles, name: str | None, view: ViewOptions, output: OutputOptions
) -> None:
    """Write the partition of the methods of a record, or of the one that `name` means."""
    from etscope.analysis.graphs.partition import partition
    from etscope.analysis.graphs.partition_report import SCHEMA, partition_report, place_fields
    from etscope.analysis.matching.export import Export
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.identify import PTE, identify
    from etscope.formats.program.pte import read_pte
    from etscope.model.selector import Selector

    if output.format in GRAPH_VIEWS:
        raise click.UsageError(f"--partition is a table: it is not written as {output.format}.")
    if identify(files.record) == PTE:
        raise UsageError(
            "a .pte file does not tell which nodes went into a delegate, or why not",
            hint="give the ETRecord of the same export",
        )
    record = read_etrecord(files.record)
    keys = [f"edge/{method}" for method in record.edge_methods]
    only = keys if name is None else _only_key(keys, name)
    program = None if files.program is None else read_pte(files.program)
    export = Export(program, record)
    found = [partition(export, key.partition("/")[2]) for key in only]
    if not found:
        raise MissingDataError(
            "the record has no edge program, whose partition could be shown",
            hint="export again with an ETRecord of the edge program",
        )
    check_numbers(view.select)
    keep = None if view.select is None else Selector(view.select).matches
    reports = [partition_report(one, keep) for one in found]
    if view.select is not None and not any(report.section("nodes") for report in reports):
        known = (place_fields(one, place) for one in found for place in one.places)
        raise nothing_matches(view.select, known)
    output.write_reports(reports, SCHEMA, limit=view.limit, text_limit=_ROWS)


def _instructions(path: str, method: str | None, limit: int | None) -> list[Table]:
    """Return the tables of the instructions of a program's methods, or of one method."""
    from etscope.analysis.work.program_work import instruction_table
    from etscope.formats.program.pte import read_pte

    program = read_pte(path)
    methods = [m.name for m in program.methods] if method is None else [method]
    tables = [instruction_table(program, name) for name in methods]
    return [table.take(range(len(table))[:limit]) for table in tables]


def _linked_graph(files: GraphFiles, name: str) -> tuple[LinkedGraph, NodeTimes | None]:
    """Return the graph called `name`, and the times of its nodes if there is a dump."""
    from etscope.analysis.graphs.graph_names import find_graph
    from etscope.analysis.graphs.linked_graph import linked_graph
    from etscope.analysis.graphs.node_times import node_times
    from etscope.analysis.profile.profile import profile_of
    from etscope.analysis.profile.trace import Trace

    capture, _ = files.open()
    if _is_executed(name):
        from etscope.analysis.graphs.views import graph_views, view_keys

        if capture.recorded_program is None:
            raise MissingDataError(
                "the executed graph is of a program, and none was given",
                hint="--program MODEL.pte, or the record of etscope export, which has it",
            )
        (key,) = _only_key(view_keys(capture), name)
        linked = graph_views(capture, only=[key])[0].linked
    else:
        linked = linked_graph(capture, find_graph(capture.needed_record, name))
    if not isinstance(capture, Trace):
        return linked, None
    profiles = capture.profiles()
    profile = profile_of(profiles, linked.method)
    if profile is None:
        ran = ", ".join(str(p.method) for p in profiles if p.method) or "none that is known"
        raise MissingDataError(
            f"no run of the graph's method {linked.method!r} in this dump",
            hint=f"methods that ran: {ran}",
        )
    times = node_times(linked, profile)
    if not times.at:
        raise MissingDataError(
            f"no instruction of the run matches a node of the graph {name!r}",
            hint="the nodes of the edge graph have debug handles: etscope graph RECORD edge"
            if profile.rows
            else "the run logged no instructions: profile all events, not the method alone",
        )
    return linked, times


def _is_executed(name: str | None) -> bool:
    return name is not None and name.partition("/")[0] == "executed"


def _only_key(keys: Sequence[str], name: str) -> list[str]:
    """Return the key that is meant by a key ("edge/forward") or a part of one ("edge")."""
    if name in keys:
        return [name]
    only = [key for key in keys if name in (key.partition("/")[0], key.rpartition("/")[2])]
    if not only:
        raise MissingDataError(f"no graph {name!r}", hint="graphs are: " + ", ".join(keys))
    if len(only) > 1:
        raise UsageError(f"{name!r} is ambiguous", hint="name one of: " + ", ".join(only))
    return only


def _graph_table(
    linked: LinkedGraph,
    times: NodeTimes | None,
    scale: Scale,
    view: ViewOptions,
    tree: bool,
    into_delegates: bool,
) -> tuple[Table, Sequence[str]]:
    """Return the table of a graph's nodes or modules, and the columns to show by default. Raises
    `MissingDataError` if the selector matches nothing."""
    from etscope.analysis.graphs.node_table import (
        NUMBERS,
        default_columns,
        module_tree,
        node_table,
    )
    from etscope.analysis.graphs.node_work import work_notes
    from etscope.model.report import filled_columns
    from etscope.model.selector import Selector

    check_numbers(view.select, NUMBERS)
    if times is None and view.select is not None and "share" in Selector(view.select).keys:
        raise UsageError("a share of the time is of a run", hint="add its dump: --dump RUN.etdp")
    options: dict[str, Any] = {
        "keep": None if view.select is None else Selector(view.select).matches,
        "into_delegates": into_delegates,
        "times": times,
        "scale": scale,
    }
    if tree:
        table = module_tree(linked, **options)
        whole = table
        table = whole.take(range(len(whole))[: view.limit])
        if cut := len(whole) - len(table):
            note = f"{cut:,} more {'module is' if cut == 1 else 'modules are'} not shown."
            table = replace(table, notes=(*table.notes, note))
    else:
        table = node_table(linked, sort=view.sort, limit=view.limit, **options)
        asked = {*(view.columns or ()), (view.sort or "").removeprefix("-")}
        if not asked.isdisjoint(("flops", "FLOPs", "bytes")):
            table = replace(table, notes=(*table.notes, *work_notes(linked)))
    if view.select is not None and not len(table):
        raise nothing_selected(
            view.select, lambda keep: node_table(linked, **{**options, "keep": keep})
        )
    return table, filled_columns(table) if tree else default_columns(table)


def _write_graphs(
    files: GraphFiles,
    name: str | None,
    scale: Scale,
    columns: tuple[str, ...] | None,
    into_delegates: bool,
    output: OutputOptions,
) -> None:
    """Write the graph called `name`, or all, in a format of `GRAPH_VIEWS`. `name` is a key
    ("edge/forward") or a part of one ("edge"). columns: the number of node-data."""
    from etscope.analysis.graphs.flow import without_delegates
    from etscope.analysis.graphs.views import graph_views, view_keys, with_errors

    if columns is not None and len(columns) != 1:
        raise click.UsageError("--columns names one number for --format node-data.")
    chosen = output.format or format_of(output.path, GRAPH_VIEWS, default="graph-json")
    if columns is not None and chosen != "node-data":
        raise click.UsageError("--columns names the number of --format node-data.")
    capture, bundle = files.open()
    keys = list(view_keys(capture))
    only = keys if name is None else _only_key(keys, name)
    numerics = numerics_of_graphs(capture, files.inputs, bundle)
    # Numeric errors are known for the edge graph, and carried over from it to the other graphs.
    views = graph_views(capture, only=keys if numerics else only)
    for one in numerics:
        views = with_errors(views, one)
    shown = [view for view in views if view.key in only]
    if not into_delegates:
        shown = [without_delegates(view) for view in shown]
    options: dict[str, Any] = {}
    if chosen == "node-data":
        options["overlay"] = "avg" if columns is None else columns[0]
    save_graphs(shown, output.path, chosen, scale=scale, **options)
