"""The program's instructions and the graphs of the record: look into them, and navigate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from etscope.analysis.graphs.linked_graph import LinkedGraph, find_graph, short_name
from etscope.analysis.graphs.node_costs import NodeTimes
from etscope.analysis.graphs.node_info import find_node, node_info
from etscope.analysis.graphs.node_table import (
    NodeTables,
    default_columns,
    placed_nodes,
    tensor_text,
)
from etscope.analysis.program.correlate import graph_name, is_operator
from etscope.analysis.program.program import (
    InstructionRecord,
    MethodInstructions,
    instructions,
)
from etscope.analysis.program.source_location import module_path, module_type, user_line
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.commands import command, whole
from etscope.etdb.commands.times import SHOWN_STATISTICS
from etscope.etdb.debugger import Debugger
from etscope.etdb.output import Output, operators, source_text
from etscope.etdb.targets.target import linked_once, open_record
from etscope.formats.etrecord.reader import EXPORTED
from etscope.model.graph import Node
from etscope.model.report import filled_columns
from etscope.model.selector import Selector
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table
from etscope.units import count as counted

_AROUND = 6  # instructions

# -- the program


@command("disassemble [FIRST [LAST]|all]", group="program", aliases=("disas",), words=("all",))
def disassemble(debugger: Debugger, rest: str) -> Output:
    """Show the program's instructions around the current one, in a range, or all of them.

    `values` are indices of the values that an instruction reads and writes. On the runtime,
    `print value(12)` shows one. `*` marks the current instruction.
    """
    found = instructions_of(debugger)
    table = found.table()
    here = debugger.stop.instruction if debugger.stop is not None else None

    words, count = rest.split(), len(table)
    if rest == "all" or (not words and here is None):
        first, last = 0, count - 1
    elif not words and here is not None:
        first, last = max(here - _AROUND, 0), min(here + _AROUND, count - 1)
    else:
        first = whole(words[0], what="the number of an instruction")
        last = whole(words[1]) if len(words) > 1 else first
        if not 0 <= first <= last or first >= count:
            raise UsageError(f"instructions are 0 to {count - 1}")
        last = min(last, count - 1)

    columns = [Column("at", title=" "), *table.columns]
    after = next((at + 1 for at, column in enumerate(columns) if column.name == "op"), 2)
    columns.insert(after, Column("values"))
    indices = list(map(values_text, found.records))
    marks = ["*" if number == here else "" for number in table.values["instruction"]]
    marked = replace(
        table, columns=tuple(columns), values={"at": marks, **table.values, "values": indices}
    )
    return Output().table(marked.take(range(first, last + 1)))


def instructions_of(debugger: Debugger) -> MethodInstructions:
    """The instructions of the method. Raises `MissingDataError` without a program."""
    program = debugger.program
    method = debugger.method
    if program is None:
        raise MissingDataError("no program is loaded", hint="load one: file MODEL.pte")
    if method not in (known.name for known in program.methods):
        names = ", ".join(known.name for known in program.methods)
        raise MissingDataError(f"the program has no method {method!r}", hint=f"it has: {names}")
    return instructions(program, method)


def values_text(record: InstructionRecord) -> str:
    """The values of an instruction by their indices: "3, 4 → 5"."""
    return f"{', '.join(map(str, record.inputs))} → {', '.join(map(str, record.outputs))}".strip()


@command("crosswalk [HANDLE|NODE]", group="program", aliases=("cross",), words=("node",))
def crosswalk(debugger: Debugger, rest: str) -> Output:
    """Show one operator in every dialect: exported program, edge program, instruction, delegate.

    HANDLE is a debug handle (`crosswalk 12` or `%12`); by default the current operator.
    """
    method = debugger.method
    edge = debugger.edge(method)
    word = rest.removeprefix("%")
    if not rest:
        nodes = debugger.here().nodes
        if not nodes:
            raise MissingDataError("no node is known for this operator", hint="load the ETRecord")
    elif word.isdecimal():
        nodes = tuple(n for n in edge.graph.walk() if n.debug_handle == int(word))
        if not nodes:
            raise UsageError(f"no node has the debug handle {word}", hint="info ops lists them")
    else:
        nodes = (debugger.node_named(rest),)

    rows: list[tuple[str, str, str, str]] = []

    def add(dialect: str, found: Iterable[Node]) -> None:
        for node in found:
            line = user_line(node.stack_trace)
            source = "" if line is None else source_text(line)
            rows.append((dialect, node.name, node.op, source))

    with suppress(MissingDataError):
        exported = graph_name(open_record(debugger.capture), EXPORTED, method)
        add("exported", linked_once(debugger.capture, exported).behind(nodes))
    add("edge", nodes)
    numbers = dict.fromkeys(n for node in nodes for n in edge.instructions.get(id(node), ()))
    labels = () if edge.run_nodes is None else edge.run_nodes.labels
    for number in numbers:
        label = labels[number] if 0 <= number < len(labels) else ""
        rows.append(("instruction", f"{number}", label, ""))
    target = debugger.target
    ids = {id(node) for node in nodes}
    for stop in target.stops if target is not None else ():
        if stop.depth and stop.loop_pass == 0 and ids & {id(node) for node in stop.nodes}:
            dialect = f"{stop.backend or 'delegate'} event"
            rows.append((dialect, stop.name, str(stop.delegate_id), ""))
    handles = sorted({n.debug_handle for n in nodes if n.debug_handle is not None})
    title = "debug handle " + ", ".join(map(str, handles)) if handles else "without debug handle"
    columns = tuple(map(Column, ("dialect", "name", "op", "source")))
    return Output().table(Table.of_rows(columns, rows, title=title))


# -- graphs


@command("graph [NAME]", group="graph", aliases=("g",), words=("graph",))
def graph(debugger: Debugger, rest: str) -> Output:
    """Choose the graph for select and overview, or name the current one."""
    record = open_record(debugger.capture)
    if rest:
        name = find_graph(record, rest)
        linked_once(debugger.capture, name)  # raises
        debugger.graph = name
        debugger.selected, debugger.selected_at = [], -1
    linked = debugger.linked()
    return Output().say(f"{short_name(linked.name)}, {counted(len(linked.graph.nodes), 'node')}")


@command("overview", group="graph", aliases=("ov",))
def overview(debugger: Debugger, rest: str) -> Output:
    """Show a graph as a whole: its runs, counts, inputs, operators and modules, sums, outputs."""
    view = _graph_view(debugger)
    graph, output = view.linked.graph, Output()
    if view.times is not None:
        total = view.times.profile.total
        row = ("Method::execute", len(total), debugger.scale(total))
        output.table(view.statistics_table("run", [row], title="Run summary"))
    modules = NodeTables(view.linked, times=view.times, scale=debugger.scale).modules()
    counts: dict[Column, list[Any]] = {
        Column("graph"): [short_name(view.linked.name)],
        Column("operators", Kind.COUNT): [len(view.calls)],
        Column("modules", Kind.COUNT): [max(len(modules) - 1, 0)],
        Column("weights", Kind.COUNT): [len(graph.parameters)],
        Column("inputs", Kind.COUNT): [len(graph.inputs) - len(graph.parameters)],
        Column("outputs", Kind.COUNT): [len(graph.outputs)],
    }
    output.table(Table.of(counts, title="Counts"))
    inputs = [name for name in graph.inputs if name not in graph.parameters]
    output.table(_value_table(view.linked, "Inputs", inputs))
    top = modules.take([i for i, level in enumerate(modules.depth or ()) if level <= 1])
    output.table(top, filled_columns(top))
    output.table(view.summary_by("op", lambda node: node.op))
    output.table(view.summary_by("module_type", module_type))
    return output.table(_value_table(view.linked, "Outputs", graph.outputs))


@command("select NAME", group="graph", aliases=("sel",), words=("node", "module", "op"))
def select(debugger: Debugger, rest: str) -> Output:
    """Look into a node, a module, a type of operator or module, a weight, an input or an output.

    Any other name is used as a selector (help selectors).
    """
    if not rest:
        raise UsageError(
            "select what?", hint="name a node, module, operator, type of module, or weight"
        )
    output = _describe(_graph_view(debugger), rest)
    debugger.selected = [*debugger.selected[: debugger.selected_at + 1], rest]
    debugger.selected_at = len(debugger.selected) - 1
    return output


@command("back [N]", group="graph", repeats=True)
def back(debugger: Debugger, rest: str) -> Output:
    """Go back to the previous selection."""
    return _navigate(debugger, -whole(rest, 1))


@command("forward [N]", group="graph", aliases=("fwd",), repeats=True)
def forward(debugger: Debugger, rest: str) -> Output:
    """Go forward again, after back."""
    return _navigate(debugger, whole(rest, 1))


def _navigate(debugger: Debugger, by: int) -> Output:
    at = debugger.selected_at + by
    if not 0 <= at < len(debugger.selected):
        raise UsageError("there is nothing further " + ("back" if by < 0 else "forward"))
    output = _describe(_graph_view(debugger), debugger.selected[at])
    debugger.selected_at = at
    return Output().say(f"selected: {debugger.selected[at]}").add(output)


@dataclass(frozen=True, slots=True)
class _GraphView:
    """The selected graph, its operators, and their times; None without a dump."""

    debugger: Debugger
    linked: LinkedGraph
    calls: Sequence[Node]
    times: NodeTimes | None

    def summary_by(self, title: str, key: Callable[[Node], str | None]) -> Table:
        """Summarize operators grouped by a key, the largest group first."""
        groups: dict[str, list[Node]] = {}
        for node in self.calls:
            groups.setdefault(key(node) or "(none)", []).append(node)
        return self.summary(title, sorted(groups.items(), key=lambda item: -len(item[1])))

    def summary(self, title: str, groups: Iterable[tuple[str, Sequence[Node]]]) -> Table:
        """The count and times of each group. A measurement that several nodes share counts once, at
        the node that displays it.
        """
        times, rows = self.times, []
        for name, nodes in groups:
            ticks = [times.at[id(n)].ticks for n in nodes if id(n) in times.at] if times else []
            samples = self.debugger.scale(np.sum(ticks, axis=0)) if ticks else None
            rows.append((name, len(nodes), samples))
        if times is not None:
            rows.sort(key=lambda row: -float(row[2].mean()) if row[2] is not None else 0.0)
        return self.statistics_table(title, rows)

    def statistics_table(
        self, head: str, rows: Sequence[tuple[str, int, Any]], *, title: str = ""
    ) -> Table:
        """A table of (name, count, times); with statistics of the times if there are any."""
        unit = self.debugger.scale.unit
        content: dict[Column, list[Any]] = {
            Column(head): [row[0] for row in rows],
            Column("count", Kind.COUNT): [row[1] for row in rows],
        }
        for name in SHOWN_STATISTICS if self.times is not None else ():
            column_title = "first run" if name == "first" else None
            content[Column(name, Kind.DURATION, unit, title=column_title)] = [
                None if row[2] is None else statistic(row[2], name) for row in rows
            ]
        return Table.of(content, title=title or f"By {head.replace('_', ' ')}")

    def elements(self, nodes: Sequence[Node]) -> Table:
        """The rows of these nodes in the graph's table."""
        wanted = {id(node) for node in nodes}
        table = NodeTables(
            self.linked, lambda fields: True, times=self.times, scale=self.debugger.scale
        ).nodes()
        placed = placed_nodes(self.linked.graph)
        rows = [i for i, one in enumerate(placed) if id(one.node) in wanted]
        taken = replace(table.take(rows), title="Elements", notes=(), depth=None)
        return taken.select(default_columns(taken))

    def describe_module(self, module: str) -> Output:
        graph = self.linked.graph
        inside = [
            n
            for n in self.calls
            if (path := module_path(n)) is not None
            and (path == module or path.startswith(f"{module}.") or not module)
        ]
        parent = module.rpartition(".")[0] if module else ""
        output = Output().say(f"module {module or '(root)'}, {operators(len(inside))}")
        output.say(f"parent module: {parent or '(root)'}" if module else "the root")
        names = {n.name for n in inside}
        read = dict.fromkeys(v for n in inside for v in n.inputs if v in graph.by_name)
        inputs = [v for v in read if graph.by_name[v].name not in names]
        outputs = [
            n.name
            for n in inside
            if n.name in graph.users and any(user not in names for user in graph.users[n.name])
        ]
        output.table(self.elements(inside))
        output.table(_value_table(self.linked, "Inputs", inputs))
        output.table(_value_table(self.linked, "Outputs", outputs))
        return output.table(self.summary("selection", [(module or "(root)", inside)]))


def _graph_view(debugger: Debugger) -> _GraphView:
    linked = debugger.linked()
    calls = [node for node in linked.graph.walk() if is_operator(node)]
    return _GraphView(debugger, linked, calls, debugger.times_of(linked))


def _describe(view: _GraphView, name: str) -> Output:
    """Describe whatever a name stands for: a debug handle, node, module, operator, type of module,
    weight, or selector."""
    linked, calls = view.linked, view.calls
    graph = linked.graph
    if name.startswith("%") and name[1:].isdecimal():
        nodes = [n for n in calls if n.debug_handle == int(name[1:])]
        if not nodes:
            raise UsageError(f"no node has the debug handle {name[1:]}")
        handle = f"debug handle {name[1:]}"
        output = Output().table(view.summary("selection", [(handle, nodes)]))
        return output.table(view.elements(nodes))
    try:
        placed = find_node(linked, name)
    except MissingDataError:
        pass
    else:
        inner = placed.graph
        inputs = [inner.by_name[v].name for v in placed.node.inputs if v in inner.by_name]
        below = replace(linked, name=inner.name, graph=inner)
        report = node_info(linked, placed, view.times, view.debugger.scale)
        return Output().report(report).table(_value_table(below, "Inputs", inputs))

    plain = name.removeprefix("[Sub Module] ")
    modules = {path for node in calls if (path := module_path(node)) is not None}
    if any(path == plain or path.startswith(f"{plain}.") for path in modules):
        return view.describe_module(plain)
    of_op = [n for n in calls if name in (n.op, n.target)]
    if of_op:
        output = Output().table(view.summary("selection", [(name, of_op)]))
        return output.table(view.elements(of_op))
    of_type = [n for n in calls if module_type(n) == plain]
    if of_type:
        paths = dict.fromkeys(path for n in of_type if (path := module_path(n)) is not None)
        groups = [(path, [n for n in of_type if module_path(n) == path]) for path in paths]
        output = Output().say(
            f"{plain}: {counted(len(paths), 'module')}, {operators(len(of_type))} of their own"
        )
        return output.table(view.summary("module", groups))
    placeholders = {fqn: placeholder for placeholder, fqn in graph.parameters.items()}
    if name in placeholders:
        return _describe(view, placeholders[name])

    try:
        keep = Selector(name).matches
    except UsageError:
        keep = None
    if keep is not None:
        table = NodeTables(linked, keep, times=view.times, scale=view.debugger.scale).nodes()
        if len(table):
            return Output().table(table, default_columns(table))
    known = [n.name for n in graph.nodes]
    known += [*dict.fromkeys(n.op for n in calls), *modules]
    known += [kind for n in calls if (kind := module_type(n))]
    close = get_close_matches(name, known, 3)
    raise UsageError(
        f"{short_name(linked.name)} has nothing that is called {name!r}",
        hint=f"did you mean {' or '.join(close)}?" if close else "info ops, info modules",
    )


def _value_table(linked: LinkedGraph, title: str, names: Iterable[str]) -> Table:
    """Values by name, with their types, weights and users."""
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
    columns = (Column("name"), Column("value"), Column("weight"), Column("used_by", Kind.LIST))
    return Table.of_rows(columns, rows, title=title)
