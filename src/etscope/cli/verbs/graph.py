"""`etscope graph`: show graphs, modules and nodes, and their times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    FILE,
    TABLE_OPTIONS,
    GivenFiles,
    add_options,
    all_runs_option,
    as_one_parameter,
    as_view,
    given_inputs,
    inputs_option,
    numerics_of_graphs,
    output_options,
    run_files_options,
    select_option,
)
from etscope.cli.output.tables import (
    OutputOptions,
    ViewOptions,
    check_numbers,
    nothing_matches,
    nothing_selected,
)
from etscope.cli.settings import switch
from etscope.cli.verb import verb
from etscope.errors import MissingDataError, UsageError
from etscope.views import GRAPH_VIEWS, TABLE_VIEWS, format_of, save_graphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etscope.analysis.graphs.linked_graph import LinkedGraph
    from etscope.analysis.graphs.node_costs import NodeTimes
    from etscope.analysis.profile.trace import Capture
    from etscope.formats.program.native import NativePackage
    from etscope.model.table import Table


_DETAILS = """\
NAME may be short: "edge", "exported", "edge/forward". "executed" is the program with its
delegates opened. With a dump, or with --tree, --node or --select, the default is the edge graph,
if the record has one. Nodes are in order of execution. The nodes of branches and of lowered
modules follow the node that calls them.

--partition shows the delegate call that computes each node of the edge program, the reasons
why partitioners refused the others, and what crosses the borders between backends. NAME is then
a method or an edge graph. Default: all of them.

Of a program alone, the instructions of its methods are shown, or of the method NAME.

--format dot, graph-json, model-explorer and node-data write graphs instead of a table: all of
them, or the graph NAME. --columns names the number of node-data: avg, p50, p90, min, max, first,
bytes, live_bytes, flops, moved_bytes, intensity, total_error or local_error.
"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Parts of a graph to show. inputs: the file of the run's inputs, for the errors of nodes."""

    tree: bool
    node: str | None
    partition: bool
    all_runs: bool
    inputs: str | None
    into_delegates: bool


@verb(
    {
        "Nodes": ("--select", "--tree", "--node", "--partition"),
        "Run": ("--all-runs",),
        "Output": ("--sort", "--limit", "--format", "--output", "-X"),
    },
    details=_DETAILS + ABOUT_RUN,
)
@partial(run_files_options, metavar="[RUN]... [NAME]")
@select_option
@click.option("--tree", is_flag=True, help="Show the modules of the graph as a tree.")
@click.option("--node", metavar="NODE", help="Show everything about one node.")
@click.option(
    "--partition",
    is_flag=True,
    help="Show the backend of each node, the reasons for refused nodes, and the borders.",
)
@click.option("--dump", type=FILE, metavar="DUMP", hidden=True, help="The ETDump of a run.")
@all_runs_option
@inputs_option
@switch("into_delegates", True, "Show the nodes of lowered modules, too.")
@partial(add_options, options=TABLE_OPTIONS)
@partial(output_options, formats=(*TABLE_VIEWS, *GRAPH_VIEWS))
@as_view("select", "columns", "sort", "limit", "unit")
@partial(as_one_parameter, parameter="asked", make=_Asked)
def command(
    files: GivenFiles,
    dump: str | None,
    asked: _Asked,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """List the graphs of RUN, or show the nodes of the graph NAME with their times. RUN may be an
    ETRecord or a program alone.

    \b
    etscope graph
    etscope graph @1 edge --select 'op:conv*'
    etscope graph model.etrecord forward --partition
    """
    view = replace(view, source_unit=files.source_unit)
    files, name = _without_name(files)
    if (package := _native_package(files)) is not None:
        from etscope.analysis.info.native_info import native_nodes

        output.write_tables(native_nodes(package), view.columns)
        return
    if dump is not None:
        files = replace(files, given=(*files.given, dump))
    if asked.partition:
        if asked.tree or asked.node or view.columns or view.sort:
            raise UsageError(
                "--partition does not go with --tree, --node, --columns and --sort",
                hint="use --select and --limit to choose the rows",
            )
        _write_partitions(files, name, view, output)
        return
    suffixes = tuple(spec.suffix for spec in GRAPH_VIEWS.values())
    by_name = output.format is None and output.path.lower().endswith(suffixes)
    if by_name or output.format in GRAPH_VIEWS:
        if asked.tree or asked.node or view.select or view.sort or view.limit is not None:
            raise UsageError(
                "--tree, --node, --select, --sort and --limit are for tables",
                hint="a graph is written whole: leave these options out, or write a table",
            )
        _write_graphs(files, name, asked, view, output)
        return
    if files.debug_buffer or asked.inputs:
        raise UsageError(
            "--inputs and logged values are for errors in graphs",
            hint="--format graph-json or node-data writes graphs",
        )
    _write_tables(files, name, asked, view, output)


def _write_tables(
    files: GivenFiles, name: str | None, asked: _Asked, view: ViewOptions, output: OutputOptions
) -> None:
    """Write the list of graphs, the instructions of a program, or the graph called `name`."""
    from etscope.model.report import filled_columns

    run = files.of_graphs
    if run.record is None and not _is_executed(name):
        if asked.tree or asked.node or view.select or view.sort or run.dump is not None:
            raise UsageError(
                "a program has instructions, but not graphs",
                hint="name the ETRecord of the same export, too",
            )
        output.write_tables(_instructions(files.open_graphs(), name, view.limit), view.columns)
        return
    if name is None and not (asked.tree or asked.node or view.select or run.dump):
        from etscope.analysis.graphs.linked_graph import graph_list

        table = graph_list(files.open_graphs().needed_record)
        output.write_tables([table], view.columns, filled_columns(table))
        return
    if asked.tree and view.sort:
        raise UsageError("--sort does not go with --tree, which shows modules in order of use")
    rows = asked.tree or view.select or view.columns or view.sort or view.limit is not None
    if asked.node and rows:
        raise UsageError(
            "--node goes with --format only", hint="--node shows everything about one node"
        )
    linked, times = _linked_graph(files.open_graphs(), name or "edge", all_runs=asked.all_runs)
    if asked.node:
        from etscope.analysis.graphs.node_info import SCHEMA, find_node, node_info

        report = node_info(linked, find_node(linked, asked.node), times, view.scale)
        output.write_reports([report], SCHEMA)
        return
    table, default = _graph_table(linked, times, view, asked)
    output.write_tables([table], view.columns, default)


def _without_name(files: GivenFiles) -> tuple[GivenFiles, str | None]:
    """Split off NAME: the last argument after a RUN, unless a file or a folder has that name."""
    *paths, last = files.given
    if not paths or Path(last).exists():
        return files, None
    return replace(files, given=tuple(paths)), last


def _native_package(files: GivenFiles) -> NativePackage | None:
    """Return the package of the native backend if it is the only file."""
    from etscope.formats.identify import is_ptn
    from etscope.formats.program.native import read_ptn

    path = files.given[0] if len(files.given) == 1 else None
    return read_ptn(path) if path and Path(path).is_file() and is_ptn(path) else None


_ROWS = 30  # of each table of a partition, in a text: fits a screen


def _write_partitions(
    files: GivenFiles, name: str | None, view: ViewOptions, output: OutputOptions
) -> None:
    """Write the partition of each method of a record, or of the one that `name` means."""
    from etscope.analysis.graphs.partition import partition
    from etscope.analysis.graphs.partition_report import SCHEMA, partition_report, place_fields
    from etscope.model.selector import Selector

    if output.format in GRAPH_VIEWS:
        raise UsageError(f"--partition is a table, which {output.format} cannot hold")
    if files.of_graphs.record is None:
        raise UsageError(
            "a program does not say which nodes a delegate took, or why not",
            hint="name the ETRecord of the same export, too",
        )
    capture = files.open_graphs()
    keys = [f"edge/{method}" for method in capture.needed_record.edge_methods]
    only = keys if name is None else _only_key(keys, name)
    found = [partition(capture, key.partition("/")[2]) for key in only]
    if not found:
        raise MissingDataError(
            "the record has no edge program, which --partition needs",
            hint="export again: etscope export records the edge program",
        )
    check_numbers(view.select)
    keep = None if view.select is None else Selector(view.select).matches
    reports = [partition_report(one, keep) for one in found]
    if view.select is not None and not any(report.section("nodes") for report in reports):
        known = (place_fields(one, place) for one in found for place in one.places)
        raise nothing_matches(view.select, known)
    output.write_reports(reports, SCHEMA, limit=view.limit, text_limit=_ROWS)


def _instructions(capture: Capture, method: str | None, limit: int | None) -> list[Table]:
    """Return the tables of the instructions of a program's methods, or of one method."""
    from etscope.analysis.work.program_work import instruction_table

    program = capture.recorded_program
    assert program is not None  # without a record there is one
    methods = [m.name for m in program.methods] if method is None else [method]
    tables = [instruction_table(program, name) for name in methods]
    return [table.take(range(len(table))[:limit]) for table in tables]


def _linked_graph(
    capture: Capture, name: str, *, all_runs: bool
) -> tuple[LinkedGraph, NodeTimes | None]:
    """Return the graph called `name`, and the times of its nodes if there is a dump."""
    from etscope.analysis.graphs.linked_graph import find_graph, linked_graph
    from etscope.analysis.graphs.node_costs import node_times
    from etscope.analysis.profile.profile import profile_of
    from etscope.analysis.profile.trace import Trace

    if _is_executed(name):
        from etscope.analysis.graphs.views import graph_views, view_names

        if capture.recorded_program is None:
            raise MissingDataError(
                "the executed graph is a graph of the program, which is missing",
                hint="name the .pte too, or a record of etscope export, which stores it",
            )
        (key,) = _only_key(tuple(view_names(capture)), name)
        linked = graph_views(capture, only=[key])[0].linked
    else:
        linked = linked_graph(capture, find_graph(capture.needed_record, name))
    if not isinstance(capture, Trace):
        return linked, None
    if all_runs:
        capture = replace(capture, all_runs=True)
    profiles = capture.profiles()
    profile = profile_of(profiles, linked.method)
    if profile is None:
        ran = ", ".join(str(p.method) for p in profiles if p.method) or "unknown"
        raise MissingDataError(
            f"the dump has no run of the graph's method {linked.method!r}",
            hint=f"methods that ran: {ran}",
        )
    times = node_times(linked, profile)
    if not times.at:
        raise MissingDataError(
            f"no instruction of the run matches a node of the graph {name!r}",
            hint="the nodes of the edge graph have debug handles: etscope graph RUN edge"
            if profile.rows
            else "the run logged no instructions: profile all events, not only the method",
        )
    return linked, times


def _is_executed(name: str | None) -> bool:
    return name is not None and name.partition("/")[0] == "executed"


def _only_key(keys: Sequence[str], name: str) -> list[str]:
    """Return the keys for a key ("edge/forward") or a part of one ("edge"): exactly one."""
    if name in keys:
        return [name]
    only = [key for key in keys if name in (key.partition("/")[0], key.rpartition("/")[2])]
    if not only:
        raise MissingDataError(f"there is no graph {name!r}", hint="graphs are: " + ", ".join(keys))
    if len(only) > 1:
        raise UsageError(f"{name!r} fits several graphs", hint="name one of: " + ", ".join(only))
    return only


def _graph_table(
    linked: LinkedGraph,
    times: NodeTimes | None,
    view: ViewOptions,
    asked: _Asked,
) -> tuple[Table, Sequence[str]]:
    """Return the table of a graph's nodes or modules, and the columns to show by default. Raises
    `MissingDataError` if the selector matches nothing."""
    from etscope.analysis.graphs.node_costs import work_notes
    from etscope.analysis.graphs.node_table import (
        NUMBERS,
        NodeTables,
        default_columns,
    )
    from etscope.model.report import filled_columns
    from etscope.model.selector import Selector

    check_numbers(view.select, NUMBERS)
    if times is None and view.select is not None and "share" in Selector(view.select).keys:
        raise UsageError("share needs the times of a run", hint="name its dump, too")
    keep = None if view.select is None else Selector(view.select).matches
    tables = NodeTables(linked, keep, asked.into_delegates, times, view.scale)
    if asked.tree:
        whole = tables.modules()
        table = whole.take(range(len(whole))[: view.limit])
        if cut := len(whole) - len(table):
            note = f"{cut:,} more {'module is' if cut == 1 else 'modules are'} not shown."
            table = replace(table, notes=(*table.notes, note))
    else:
        table = tables.nodes(view.sort, view.limit)
        shown = {*(view.columns or ()), (view.sort or "").removeprefix("-")}
        if not shown.isdisjoint(("flops", "FLOPs", "bytes")):
            table = replace(table, notes=(*table.notes, *work_notes(linked)))
    if view.select is not None and not len(table):
        raise nothing_selected(view.select, lambda keep: replace(tables, keep=keep).nodes())
    return table, filled_columns(table) if asked.tree else default_columns(table)


def _write_graphs(
    files: GivenFiles, name: str | None, asked: _Asked, view: ViewOptions, output: OutputOptions
) -> None:
    """Write the graph called `name`, or all, in a format of `GRAPH_VIEWS`. `name` is a key
    ("edge/forward") or a part of one ("edge")."""
    from etscope.analysis.graphs.flow import without_delegates
    from etscope.analysis.graphs.views import graph_views, view_names, with_errors

    columns = view.columns
    if columns is not None and len(columns) != 1:
        raise UsageError("--format node-data shows one number", hint="name one with --columns")
    chosen = output.format or format_of(output.path, GRAPH_VIEWS, default="graph-json")
    if columns is not None and chosen != "node-data":
        raise UsageError(f"--columns is for tables and node-data, not for {chosen}")
    capture = files.open_graphs()
    keys = list(view_names(capture))
    only = keys if name is None else _only_key(keys, name)
    numerics = numerics_of_graphs(capture, given_inputs(asked.inputs), files.of_graphs.bundle)
    # Errors belong to the edge graph; the other graphs take them from it.
    views = graph_views(capture, only=keys if numerics else only)
    for one in numerics:
        views = with_errors(views, one)
    shown = [one for one in views if one.key in only]
    if not asked.into_delegates:
        shown = [without_delegates(one) for one in shown]
    options: dict[str, Any] = {}
    if chosen == "node-data":
        options["overlay"] = "avg" if columns is None else columns[0]
    save_graphs(shown, output.path, chosen, scale=view.scale, **options)
