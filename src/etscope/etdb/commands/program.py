"""The program: its instructions, and one operator in every dialect."""

from __future__ import annotations

from dataclasses import replace

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.profile.symbols import graph_name
from etscope.analysis.program.program import MethodInstructions, instructions
from etscope.errors import MissingDataError, UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.common import whole
from etscope.etdb.commands.registry import command
from etscope.etdb.ui.describe import source_text
from etscope.formats.etrecord.reader import EXPORTED
from etscope.model.graph import Node
from etscope.model.table import Column, Table

GROUP = "program"
_AROUND = 6


@command("disassemble [FIRST [LAST]|all]", group=GROUP, aliases=("disas",), words=("all",))
def disassemble(debugger: Debugger, rest: str) -> Answer:
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
    return Answer().table(marked)


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


@command("crosswalk [HANDLE|NODE]", group=GROUP, aliases=("cross",), words=("node",))
def crosswalk(debugger: Debugger, rest: str) -> Answer:
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
    return Answer().table(
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
