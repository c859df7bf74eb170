"""Looking into a graph by node, module, type of operator or module, and weight; and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from etscope.analysis.graphs.graph_names import find_graph, short_name
from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.graphs.module_tree import module_tree
from etscope.analysis.graphs.node_info import find_node, node_info
from etscope.analysis.graphs.node_table import (
    PlacedNode,
    default_columns,
    node_table,
    placed_nodes,
    tensor_text,
)
from etscope.analysis.graphs.node_times import NodeTimes
from etscope.analysis.profile.correlate import graph_name, is_operator
from etscope.analysis.profile.source_location import module_path, module_type
from etscope.analysis.program.program import MethodInstructions, instructions
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.files import NO_RECORD, NO_RECORD_HINT
from etscope.etdb.output import Output, counted, operators, source_text
from etscope.formats.etrecord.reader import EXPORTED
from etscope.model.graph import Node
from etscope.model.report import filled_columns
from etscope.model.selector import Selector
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table

# The program: its instructions, and one operator in every dialect.


GROUP_program = "program"
_AROUND = 6


@command("disassemble [FIRST [LAST]|all]", group=GROUP_program, aliases=("disas",), words=("all",))
def disassemble(debugger: Debugger, rest: str) -> Output:
    """Show the program's instructions around the current one, in a range, or all of them.

    `values` are indices of the method's values: of the inputs, and what is written. On the runtime
    `print value(12)` shows one. `*` marks where the run stands.
    """
    program = debugger.files.any_program
    method = debugger.method
    if program is None:
        raise MissingDataError("there is no program", hint="load one: file MODEL.pte")
    if method not in (known.name for known in program.methods):
        names = ", ".join(known.name for known in program.methods)
        raise MissingDataError(f"the program has no method {method!r}", hint=f"it has: {names}")
    table = _with_indices(instructions(program, method))
    first, last = _range(debugger, rest, len(table))
    here = debugger.stop.instruction if debugger.stop is not None else None
    table = table.take(range(first, last + 1))
    numbers = table.values["instruction"]
    marked = replace(
        table,
        columns=(Column("at", title=" "), *table.columns),
        values={"at": ["*" if number == here else "" for number in numbers], **table.values},
    )
    return Output().table(marked)


def _with_indices(found: MethodInstructions) -> Table:
    """The instructions, with the indices of the values that they read and write."""
    table = found.table()
    indices = [
        f"{', '.join(map(str, record.inputs))} → {', '.join(map(str, record.outputs))}".strip()
        for record in found.records
    ]
    columns = list(table.columns)
    after = next((at + 1 for at, column in enumerate(columns) if column.name == "op"), 1)
    columns.insert(after, Column("values"))
    return replace(table, columns=tuple(columns), values={**table.values, "values": indices})


def _range(debugger: Debugger, rest: str, count: int) -> tuple[int, int]:
    words = rest.split()
    if rest == "all" or (not words and debugger.stop is None):
        return 0, count - 1
    if not words:
        here = debugger.here().instruction
        if here is None:
            return 0, count - 1
        return max(here - _AROUND, 0), min(here + _AROUND, count - 1)
    first = whole(words[0], what="the number of an instruction")
    last = whole(words[1]) if len(words) > 1 else first
    if not 0 <= first <= last or first >= count:
        raise UsageError(f"instructions are 0 to {count - 1}")
    return first, min(last, count - 1)


@command("crosswalk [HANDLE|NODE]", group=GROUP_program, aliases=("cross",), words=("node",))
def crosswalk(debugger: Debugger, rest: str) -> Output:
    """Show one operator in every dialect: exported program, edge program, instruction, delegate.

    HANDLE is a debug handle (`crosswalk 12` or `%12`); by default the current operator.
    """
    files, method = debugger.files, debugger.method
    edge = files.edge(method)
    nodes = _meant(debugger, edge, rest)
    rows: list[tuple[str, str, str, str]] = []
    record = files.record
    if record is not None:
        try:
            exported = files.linked(graph_name(record, EXPORTED, method))
            rows += [("exported", n.name, n.op, _line(n)) for n in exported.behind(nodes)]
        except MissingDataError:
            pass
    rows += [("edge", node.name, node.op, _line(node)) for node in nodes]
    numbers = dict.fromkeys(n for node in nodes for n in edge.instructions.get(id(node), ()))
    rows += [("instruction", f"{n}", _label(edge, n), "") for n in numbers]
    target = debugger.target
    ids = {id(node) for node in nodes}
    for stop in target.stops if target is not None else ():
        if stop.depth and stop.loop_pass == 0 and ids & {id(node) for node in stop.nodes}:
            rows.append(
                (f"{stop.backend or 'delegate'} event", stop.name, str(stop.delegate_id), "")
            )
    handles = sorted({n.debug_handle for n in nodes if n.debug_handle is not None})
    title = "debug handle " + ", ".join(map(str, handles)) if handles else "without debug handle"
    columns = (Column("dialect"), Column("name"), Column("op"), Column("source"))
    return Output().table(
        Table(
            columns,
            {c.name: [row[i] for row in rows] for i, c in enumerate(columns)},
            title=title,
        )
    )


def _meant(debugger: Debugger, edge: LinkedGraph, rest: str) -> tuple[Node, ...]:
    if not rest:
        nodes = debugger.here().nodes
        if not nodes:
            raise MissingDataError("no node is known for this operator", hint="load the ETRecord")
        return nodes
    word = rest.removeprefix("%")
    if word.isdecimal():
        nodes = tuple(n for n in edge.graph.walk() if n.debug_handle == int(word))
        if not nodes:
            raise UsageError(f"no node has the debug handle {word}", hint="info ops lists them")
        return nodes
    return (debugger.node_named(rest),)


def _line(node: Node) -> str:
    from etscope.analysis.profile.source_location import user_line

    line = user_line(node.stack_trace)
    return "" if line is None else source_text(line)


def _label(edge: LinkedGraph, number: int) -> str:
    return edge.labels[number] if 0 <= number < len(edge.labels) else ""


GROUP = "graph"
_STATISTICS = ("first", "avg", "min", "p10", "p50", "p90", "max")


@command("graph [NAME]", group=GROUP, aliases=("g",), words=("graph",))
def graph(debugger: Debugger, rest: str) -> Output:
    """Choose the graph that select and overview look at, or say which it is."""
    record = debugger.files.record
    if record is None:
        raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
    if rest:
        name = find_graph(record, rest)
        debugger.files.linked(name)
        debugger.graph = name
        debugger.selected, debugger.selected_at = [], -1
    linked = debugger.linked()
    return Output().say(f"{short_name(linked.name)}, {counted(len(linked.graph.nodes), 'node')}")


@command("overview", group=GROUP, aliases=("ov",))
def overview(debugger: Debugger, rest: str) -> Output:
    """Show a graph as a whole: its runs, counts, inputs, operators and modules, sums, outputs."""
    linked, times = debugger.linked(), _times(debugger)
    calls = _calls(linked)
    answer = Output()
    if times is not None:
        answer.table(_run_summary(debugger, times))
    modules = module_tree(linked, times=times, scale=debugger.scale)
    counts: dict[str, list[Any]] = {
        "graph": [short_name(linked.name)],
        "operators": [len(calls)],
        "modules": [max(len(modules) - 1, 0)],
        "weights": [len(linked.graph.parameters)],
        "inputs": [len(linked.graph.inputs) - len(linked.graph.parameters)],
        "outputs": [len(linked.graph.outputs)],
    }
    answer.table(Table(tuple(_count_column(name) for name in counts), counts, title="Counts"))
    answer.table(_values(linked, "Inputs", _inputs(linked)))
    top = modules.take([i for i, level in enumerate(modules.depth or ()) if level <= 1])
    answer.table(top, filled_columns(top))
    answer.table(_summaries(debugger, linked, times, calls, "op", lambda node: node.op))
    answer.table(_summaries(debugger, linked, times, calls, "module_type", module_type))
    return answer.table(_values(linked, "Outputs", linked.graph.outputs))


@command("select NAME", group=GROUP, aliases=("sel",), words=("node", "module", "op"))
def select(debugger: Debugger, rest: str) -> Output:
    """Look into a node, a module, a type of operator or module, a weight, an input or an output.

    A name that is none of these is taken for a selector (help selectors).
    """
    if not rest:
        raise UsageError("select what?", hint="a node, module, operator, type of module, or weight")
    answer = _selected(debugger, rest)
    debugger.selected = [*debugger.selected[: debugger.selected_at + 1], rest]
    debugger.selected_at = len(debugger.selected) - 1
    return answer


@command("back [N]", group=GROUP, repeats=True)
def back(debugger: Debugger, rest: str) -> Output:
    """Go back to what was selected before."""
    return _again(debugger, -whole(rest, 1))


@command("forward [N]", group=GROUP, aliases=("fwd",), repeats=True)
def forward(debugger: Debugger, rest: str) -> Output:
    """Go forward again, after back."""
    return _again(debugger, whole(rest, 1))


def _again(debugger: Debugger, by: int) -> Output:
    at = debugger.selected_at + by
    if not 0 <= at < len(debugger.selected):
        raise UsageError("there is nothing further " + ("back" if by < 0 else "forward"))
    answer = _selected(debugger, debugger.selected[at])
    debugger.selected_at = at
    return Output().say(f"selected: {debugger.selected[at]}").add(answer)


# -- what a name can be


def _selected(debugger: Debugger, name: str) -> Output:
    linked, times = debugger.linked(), _times(debugger)
    calls = _calls(linked)
    if name.startswith("%") and name[1:].isdecimal():
        nodes = [n for n in calls if n.debug_handle == int(name[1:])]
        if not nodes:
            raise UsageError(f"no node has the debug handle {name[1:]}")
        return _group(debugger, linked, times, f"debug handle {name[1:]}", nodes)
    placed = _placed(linked, name)
    if placed is not None:
        report = node_info(linked, placed, times, debugger.scale)
        return Output().report(report).table(_used(linked, placed))
    plain = name.removeprefix("[Sub Module] ")
    modules = {path for node in calls if (path := module_path(node)) is not None}
    if any(path == plain or path.startswith(f"{plain}.") for path in modules):
        inside = [n for n in calls if _inside(module_path(n), plain)]
        return _module(debugger, linked, times, plain, inside)
    of_op = [n for n in calls if name in (n.op, n.target)]
    if of_op:
        return _group(debugger, linked, times, name, of_op)
    of_type = [n for n in calls if module_type(n) == plain]
    if of_type:
        return _type(debugger, linked, times, plain, of_type)
    fqn = {fqn: placeholder for placeholder, fqn in linked.graph.parameters.items()}
    if name in fqn:
        return _selected(debugger, fqn[name])
    return _by_selector(debugger, linked, times, name, calls, modules)


def _by_selector(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    name: str,
    calls: Sequence[Node],
    modules: Iterable[str],
) -> Output:
    known = [n.name for n in linked.graph.nodes]
    known += [*dict.fromkeys(n.op for n in calls), *modules]
    known += [kind for n in calls if (kind := module_type(n))]
    try:
        keep = Selector(name).matches
    except UsageError:
        keep = None
    if keep is not None:
        table = node_table(linked, keep=keep, times=times, scale=debugger.scale)
        if len(table):
            return Output().table(table, default_columns(table))
    close = get_close_matches(name, known, 3)
    raise UsageError(
        f"{short_name(linked.name)} has nothing that is called {name!r}",
        hint=f"did you mean {' or '.join(close)}?" if close else "info ops, info modules",
    )


def _placed(linked: LinkedGraph, name: str) -> PlacedNode | None:
    try:
        return find_node(linked, name)
    except MissingDataError:
        return None


def _inside(path: str | None, module: str) -> bool:
    return path is not None and (path == module or path.startswith(f"{module}.") or not module)


def _module(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    module: str,
    inside: Sequence[Node],
) -> Output:
    parent = module.rpartition(".")[0] if module else ""
    answer = Output().say(f"module {module or '(root)'}, {operators(len(inside))}")
    answer.say(f"parent module: {parent or '(root)'}" if module else "the root")
    names = {n.name for n in inside}
    by_name = linked.graph.by_name
    read = dict.fromkeys(v for n in inside for v in n.inputs if v in by_name)
    coming = [v for v in read if by_name[v].name not in names]
    leaving = [
        n.name
        for n in inside
        if n.name in linked.graph.users
        and any(user not in names for user in linked.graph.users[n.name])
    ]
    answer.table(_elements(debugger, linked, times, inside))
    answer.table(_values(linked, "Inputs", coming))
    answer.table(_values(linked, "Outputs", leaving))
    return answer.table(_summary(debugger, linked, times, module or "(root)", inside))


def _group(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    name: str,
    nodes: Sequence[Node],
) -> Output:
    answer = Output().table(_summary(debugger, linked, times, name, nodes))
    return answer.table(_elements(debugger, linked, times, nodes))


def _type(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    kind: str,
    nodes: Sequence[Node],
) -> Output:
    paths = list(dict.fromkeys(path for n in nodes if (path := module_path(n)) is not None))
    groups = [[n for n in nodes if module_path(n) == path] for path in paths]
    answer = Output().say(
        f"{kind}: {counted(len(paths), 'module')}, {operators(len(nodes))} of their own"
    )
    return answer.table(
        _statistics_table(debugger, linked, times, "module", list(zip(paths, groups, strict=True)))
    )


# -- tables


def _elements(
    debugger: Debugger, linked: LinkedGraph, times: NodeTimes | None, nodes: Sequence[Node]
) -> Table:
    wanted = {id(node) for node in nodes}
    table = node_table(
        linked, keep=lambda fields: True, times=times, scale=debugger.scale, into_delegates=True
    )
    places = list(placed_nodes(linked.graph))
    rows = [i for i, place in enumerate(places) if id(place.node) in wanted]
    taken = replace(table.take(rows), title="Elements", notes=(), depth=None)
    return taken.select(default_columns(taken))


def _run_summary(debugger: Debugger, times: NodeTimes) -> Table:
    scale, total = debugger.scale, times.profile.total
    return _numbers_table(
        debugger, "run", [("Method::execute", len(total), scale(total))], title="Run summary"
    )


def _summary(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    name: str,
    nodes: Sequence[Node],
) -> Table:
    return _statistics_table(debugger, linked, times, "selection", [(name, nodes)])


def _summaries(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    calls: Sequence[Node],
    title: str,
    key: Any,
) -> Table:
    groups: dict[str, list[Node]] = {}
    for node in calls:
        groups.setdefault(key(node) or "(none)", []).append(node)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return _statistics_table(debugger, linked, times, title, ordered)


def _statistics_table(
    debugger: Debugger,
    linked: LinkedGraph,
    times: NodeTimes | None,
    title: str,
    groups: Sequence[tuple[str, Sequence[Node]]],
) -> Table:
    """Count and statistics of each group; a time of several nodes counts where it stands."""
    rows = []
    for name, nodes in groups:
        ticks = [times.at[id(n)].ticks for n in nodes if id(n) in times.at] if times else []
        samples = debugger.scale(np.sum(ticks, axis=0)) if ticks else None
        rows.append((name, len(nodes), samples))
    if times is not None:
        rows.sort(key=lambda row: -float(row[2].mean()) if row[2] is not None else 0.0)
    return _numbers_table(debugger, title, rows, timed=times is not None)


def _numbers_table(
    debugger: Debugger,
    head: str,
    rows: Sequence[tuple[str, int, Any]],
    *,
    timed: bool = True,
    title: str = "",
) -> Table:
    unit = debugger.scale.unit
    values: dict[str, list[Any]] = {
        head: [row[0] for row in rows],
        "count": [row[1] for row in rows],
    }
    columns = [Column(head), Column("count", Kind.COUNT)]
    for name in _STATISTICS if timed else ():
        # "coldstart" is what the first debugger called the first run.
        columns.append(
            Column(name, Kind.DURATION, unit, title="first run" if name == "first" else None)
        )
        values[name] = [None if row[2] is None else statistic(row[2], name) for row in rows]
    return Table(tuple(columns), values, title=title or f"By {head.replace('_', ' ')}")


def _values(linked: LinkedGraph, title: str, names: Iterable[str]) -> Table:
    """Values by name: what they are, who makes and who reads them."""
    graph = linked.graph
    rows = []
    for name in dict.fromkeys(names):
        node = graph.by_name.get(name)
        if node is None:
            continue
        spec = next((v.tensor for v in node.outputs if v.name == name), None)
        spec = spec or next((v.tensor for v in node.outputs), None)
        users = list(graph.users.get(node.name, ()))
        weight = graph.parameters.get(node.name)
        rows.append((name, tensor_text(spec) or None, weight, users))
    return Table(
        (Column("name"), Column("value"), Column("weight"), Column("used_by", Kind.LIST)),
        {
            key: [row[i] for row in rows]
            for i, key in enumerate(("name", "value", "weight", "used_by"))
        },
        title=title,
    )


def _used(linked: LinkedGraph, placed: PlacedNode) -> Table:
    graph = placed.graph
    names = [graph.by_name[v].name for v in placed.node.inputs if v in graph.by_name]
    below = replace(linked, name=graph.name, graph=graph)
    return _values(below, "Inputs", names)


def _inputs(linked: LinkedGraph) -> list[str]:
    return [name for name in linked.graph.inputs if name not in linked.graph.parameters]


def _calls(linked: LinkedGraph) -> list[Node]:
    return [node for node in linked.graph.walk() if is_operator(node)]


def _count_column(name: str) -> Column:
    return Column(name, Kind.TEXT if name == "graph" else Kind.COUNT)


def _times(debugger: Debugger) -> NodeTimes | None:
    linked = debugger.linked()
    profile = debugger.files.profiles.get(linked.method)
    if profile is None:
        return None
    return debugger.files.times_of(linked, profile)
