"""`info`: what there is."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from etscope.analysis.graphs.graph_names import graph_list
from etscope.analysis.graphs.module_tree import module_tree
from etscope.analysis.graphs.node_table import default_columns, node_table
from etscope.analysis.memory import memory_plan
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.commands.registry import COMMANDS, Command, command, find_command
from etscope.etdb.commands.source import known_lines
from etscope.etdb.debugger import Debugger
from etscope.etdb.expressions.expression import ATTRIBUTES, FUNCTIONS, METHODS
from etscope.etdb.files import NO_RECORD, NO_RECORD_HINT
from etscope.etdb.output import Output, counted, operators, stop_lines, value_lines
from etscope.etdb.targets.target import Stop, Target, is_far
from etscope.model import selector
from etscope.model.report import filled_columns
from etscope.model.selector import Selector
from etscope.model.table import Column, Kind, Table

# The session itself: help, scripts, the end.


GROUP = "session"

_EXPRESSIONS = """Expressions compute with tensors as numpy does; nothing of them is run as Python.

  NAME              the value of a node of the edge graph, as it is at this stop
  %12               the node with debug handle 12        #5   what instruction 5 gave
  $                 what the current operator gave       $1   its second output
  $x                what `set $x = EXPR` kept
  value("a/b")      a node of a branch                   weight("fc.weight")   a parameter
  value(12)         on the runtime: value 12 of the method (disassemble, info tensors)
  ref(NAME)         the reference's value                device(NAME)   the recorded one
  gap(METRIC)       from the reference to the run, of the current operator; NaN that only one
                    of the two has is the worst gap there is
  gap(METRIC, NAME) the same of another; metrics: help metrics
  x[0, :4]  x.shape  x.mean()  x.abs().max()  + - * / // ** @  == != < <= > >=  and or not

A condition holds for a tensor when it does anywhere in it."""


@command("help [COMMAND|expressions|selectors|metrics]", group=GROUP, aliases=("h",),
         words=("command", "expressions", "selectors", "metrics"))  # fmt: skip
def help_(debugger: Debugger, rest: str) -> Output:
    """List the commands, or tell of one."""
    if not rest:
        return _overview()
    if rest == "expressions":
        return Output().say(
            _EXPRESSIONS,
            "",
            "Functions: " + ", ".join(FUNCTIONS),
            "Methods: " + ", ".join(METHODS),
            "Attributes: " + ", ".join(ATTRIBUTES),
        )
    if rest == "selectors":
        return Output().say((selector.__doc__ or "").strip())
    if rest == "metrics":
        from etscope.analysis.metrics import METRICS

        width = max(map(len, METRICS))
        return Output().say(
            *(
                f"{metric.name:<{width}}  {metric.title}"
                + (f" ({metric.unit})" if metric.unit else "")
                for metric in METRICS.values()
            )
        )
    one = find_command(rest)
    names = ", ".join((one.name, *one.aliases))
    return Output().say(one.usage, f"Names: {names}", "", one.help)


@command("source FILE", group=GROUP, words=("file",))
def source(debugger: Debugger, rest: str) -> Output:
    """Do the commands of a file, a line each; lines that begin with # are left out."""
    raise UsageError("source works in a session only")


@command("quit", group=GROUP, aliases=("q", "exit"))
def quit_(debugger: Debugger, rest: str) -> Output:
    """End the session."""
    return Output(ends=True)


def _overview() -> Output:
    groups: dict[str, list[Command]] = {}
    for one in COMMANDS.values():
        groups.setdefault(one.group, []).append(one)
    answer = Output()
    for number, (group, commands) in enumerate(groups.items()):
        answer.say(*([""] if number else []), f"{group}:")
        for one in commands:
            answer.say(*_entry(one))
    return answer.say("", "Unique beginnings of a command will do. help COMMAND tells more.")


_WIDTH, _INDENT = 79, 26  # of a help that fits the narrowest terminal


def _entry(one: Command) -> list[str]:
    """How a command is written, and its first sentence beside or below."""
    text = one.summary.split(". ")[0].rstrip(".")
    lines = textwrap.wrap(
        text, _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT
    )
    usage = f"  {one.usage}"
    if len(usage) > _INDENT - 2:
        return [usage, *lines]
    return [usage + lines[0][len(usage) :], *lines[1:]]


def _breakpoints(debugger: Debugger, rest: str) -> Output:
    """Breakpoints and watchpoints, and how often each was hit."""
    points = list(debugger.breakpoints)
    if not points:
        return Output().say("no breakpoints")
    return Output().table(
        Table(
            (
                Column("number", Kind.INT),
                Column("kind"),
                Column("what"),
                Column("enabled", Kind.BOOL),
                Column("hits", Kind.COUNT),
            ),
            {
                "number": [one.number for one in points],
                "kind": ["breakpoint" if one.selector else "watchpoint" for one in points],
                "what": [one.what for one in points],
                "enabled": [one.enabled for one in points],
                "hits": [one.hits for one in points],
            },
        )
    )


def _delegates(debugger: Debugger, rest: str) -> Output:
    """The calls of delegates: backend, operators inside, and time."""
    target = debugger.some_target()
    calls = [stop for stop in target.stops if stop.kind == "delegate" and stop.loop_pass == 0]
    if not calls:
        return Output().say(f"this {target.kind} run calls no delegate")
    inner = [
        sum(s.depth == 1 and s.instruction == c.instruction for s in target.stops) for c in calls
    ]
    scale = debugger.scale
    return Output().table(
        Table(
            (
                Column("instruction", Kind.INT),
                Column("backend"),
                Column("nodes", Kind.COUNT),
                Column("events", Kind.COUNT),
                Column("time", Kind.DURATION, scale.unit),
                Column("module"),
            ),
            {
                "instruction": [call.instruction for call in calls],
                "backend": [call.backend for call in calls],
                "nodes": [len(call.nodes) for call in calls],
                "events": inner,
                "time": [
                    None if call.ticks is None else float(scale(call.ticks)) for call in calls
                ],
                "module": [call.module or "(root)" for call in calls],
            },
            title=f"delegate calls of run {target.run}",
        )
    )


def _graphs(debugger: Debugger, rest: str) -> Output:
    """The graphs of the record."""
    if debugger.files.record is None:
        raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
    table = graph_list(debugger.files.record)
    return Output().table(table, filled_columns(table))


def _memory(debugger: Debugger, rest: str) -> Output:
    """The planned memory: what is alive at the current instruction, or at the peak."""
    program = debugger.files.any_program
    if program is None:
        raise MissingDataError("there is no program", hint="load one: file MODEL.pte")
    plan = memory_plan(program, debugger.method)
    stop = debugger.stop
    where = stop.instruction if stop is not None else None
    if where is None:
        where = next(iter(plan.peak_instructions), 0)
    table = plan.table()
    alive = {value.value for value in plan.live_at(where)}
    rows = [i for i, value in enumerate(table.values["value"]) if value in alive]
    rows.sort(key=lambda i: -table.values["size"][i])
    answer = Output().table(plan.summary())
    answer.say(f"alive at instruction {where}: {len(rows)} of {counted(len(table), 'value')}")
    return answer.table(table.take(rows))


def _methods(debugger: Debugger, rest: str) -> Output:
    """The methods of the record and the program."""
    names = debugger.files.methods
    if not names:
        raise MissingDataError("no method is known", hint="load an ETRecord or a .pte")
    return Output().say(*(f"{'*' if name == debugger.method else ' '} {name}" for name in names))


def _modules(debugger: Debugger, rest: str) -> Output:
    """The modules of the graph as a tree with their times; a selector picks among their nodes."""
    linked = debugger.linked()
    profile = debugger.files.profiles.get(linked.method)
    times = None if profile is None else debugger.files.times_of(linked, profile)
    keep = Selector(rest).matches if rest else None
    table = module_tree(linked, keep=keep, times=times, scale=debugger.scale)
    _some(table, rest)
    return Output().table(table, filled_columns(table))


def _ops(debugger: Debugger, rest: str) -> Output:
    """The nodes of the graph in order of execution, or those that a selector picks."""
    if debugger.files.record is None:
        return _recorded_ops(debugger, rest)
    linked = debugger.linked()
    profile = debugger.files.profiles.get(linked.method)
    times = None if profile is None else debugger.files.times_of(linked, profile)
    keep = Selector(rest).matches if rest else None
    table = node_table(linked, keep=keep, times=times, scale=debugger.scale)
    _some(table, rest)
    return Output().table(table, default_columns(table))


def _recorded_ops(debugger: Debugger, rest: str) -> Output:
    from etscope.etdb.breakpoints import fields_of_stop

    target = debugger.some_target()
    keep = Selector(rest).matches if rest else None
    stops = [s for s in target.stops if keep is None or keep(fields_of_stop(s))]
    if rest and not stops:
        raise UsageError(f"nothing is picked by {rest!r}", hint="help selectors")
    scale = debugger.scale
    return Output().table(
        Table(
            (
                Column("stop", Kind.INT),
                Column("instruction", Kind.INT),
                Column("event"),
                Column("time", Kind.DURATION, scale.unit),
            ),
            {
                "stop": [stop.position for stop in stops],
                "instruction": [stop.instruction for stop in stops],
                "event": [stop.name for stop in stops],
                "time": [None if s.ticks is None else float(scale(s.ticks)) for s in stops],
            },
            title=f"run {target.run}",
        )
    )


def _runs(debugger: Debugger, rest: str) -> Output:
    """The runs of the target."""
    target = debugger.some_target()
    runs, scale = list(target.runs), debugger.scale
    return Output().table(
        Table(
            (
                Column("chosen", title=" "),
                Column("run", Kind.INT),
                Column("method"),
                Column("operators", Kind.COUNT),
                Column("time", Kind.DURATION, scale.unit),
            ),
            {
                "chosen": ["*" if run.number == target.run else "" for run in runs],
                "run": [run.number for run in runs],
                "method": [run.method or None for run in runs],
                "operators": [run.stops for run in runs],
                "time": [None if r.total is None else float(scale(r.total)) for r in runs],
            },
        )
    )


def _source(debugger: Debugger, rest: str) -> Output:
    """The files of Python that the record names, and how many lines of each."""
    lines = known_lines(debugger)
    if not lines:
        raise MissingDataError("no lines of Python are known", hint="the ETRecord has them")
    files = sorted(lines)
    return Output().table(
        Table(
            (Column("file", Kind.PATH), Column("lines", Kind.COUNT)),
            {"file": files, "lines": [len(lines[file]) for file in files]},
        )
    )


def _stop(debugger: Debugger, rest: str) -> Output:
    """Where the run stands."""
    return Output().say(*stop_lines(debugger, debugger.here()))


def _target(debugger: Debugger, rest: str) -> Output:
    """What is walked, and where it runs."""
    target = debugger.some_target()
    answer = Output().say(
        f"{target.kind}: {target.method or 'method'}, {operators(len(target.stops))}"
    )
    return answer.say(*target.about())


def _tensors(debugger: Debugger, rest: str) -> Output:
    """The values that the run has, of all stops so far: of which node, and what they are. On the
    runtime `index` is what value(INDEX) takes."""
    target = debugger.some_target()
    last = debugger.position if debugger.position is not None else len(target.stops) - 1
    rows = []
    for stop in target.stops[: last + 1]:
        if not target.is_past and debugger.position is None:
            break
        pairs, indices = target.pairs_at(stop.position), target.indices_at(stop.position)
        for number, value in enumerate(_values_of(target, stop)):
            # Of a delegate's call each output is another node's.
            name = pairs[number].node if number in pairs else stop.node or stop.name
            index = indices[number] if number < len(indices) else None
            rows.append((stop.position, stop.instruction, name, number, index, value))
    if not rows:
        if not target.is_past:
            raise MissingDataError("nothing has run yet", hint="run, or start")
        raise MissingDataError(
            "no values were recorded", hint="run with a debug level, and give the debug buffer"
        )
    columns = (
        Column("stop", Kind.INT),
        Column("instruction", Kind.INT, priority=2),
        Column("node"),
        Column("output", Kind.INT, priority=1),
        Column("index", Kind.INT, priority=1),
        Column("value"),
        Column("min", Kind.FLOAT),
        Column("max", Kind.FLOAT),
        Column("mean", Kind.FLOAT, priority=1),
        Column("odd", Kind.COUNT, title="NaN, Inf"),
    )
    shown = [(*row[:5], *_numbers_of(row[5])) for row in rows]
    table = Table(columns, {c.name: [row[i] for row in shown] for i, c in enumerate(columns)})
    return Output().table(table, filled_columns(table))


def _values_of(target: Target, stop: Stop) -> list[Any]:
    """The values of a stop; where its memory was given to others, that."""
    if target.keeps_values:
        return target.device_values(stop.position)
    try:
        values = target.device_values(stop.position)
    except MissingDataError:
        return ["gone"]
    return ["gone" if value is None else value for value in values]


def _numbers_of(value: Any) -> tuple[str, float | None, float | None, float | None, int | None]:
    """What a value is, and its range; None where it has no numbers."""
    if is_far(value) and value.size and value.dtype.kind in "iufV":
        told = value.statistics()
        odd = (told.nan + told.plus_inf + told.minus_inf) or None
        head = f"{value.dtype}{list(value.shape)}"
        if odd == told.elements:
            return head, None, None, None, odd
        return head, told.least, told.greatest, told.mean, odd
    head = value_lines(value)[0].partition("  ")[0]
    if not isinstance(value, np.ndarray) or not value.size or value.dtype.kind not in "iufV":
        return head, None, None, None, None
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    odd = int(wide.size - finite.size) or None
    if not finite.size:
        return head, None, None, None, odd
    return head, float(finite.min()), float(finite.max()), float(finite.mean()), odd


def _some(table: Table, rest: str) -> None:
    if rest and not len(table):
        raise UsageError(f"nothing is picked by {rest!r}", hint="help selectors")


TOPICS: Mapping[str, Callable[[Debugger, str], Output]] = {
    "breakpoints": _breakpoints,
    "delegates": _delegates,
    "graphs": _graphs,
    "memory": _memory,
    "methods": _methods,
    "modules": _modules,
    "ops": _ops,
    "runs": _runs,
    "source": _source,
    "stop": _stop,
    "target": _target,
    "tensors": _tensors,
}


@command("info TOPIC", group="graph", aliases=("i",), words=tuple(TOPICS))
def info(debugger: Debugger, rest: str) -> Output:
    """Tell what there is: breakpoints, delegates, graphs, memory, methods, modules, ops, runs,
    source, stop, target, tensors.

    `info ops` and `info modules` take a selector: `info ops op:conv*`.
    """
    word, _, rest = rest.partition(" ")
    found = [name for name in TOPICS if name == word] or [
        name for name in TOPICS if word and name.startswith(word)
    ]
    if len(found) != 1:
        raise UsageError(
            f"info on what? {word!r} is " + (f"one of {', '.join(found)}" if found else "unknown")
            if word
            else "info on what?",
            hint="topics are: " + ", ".join(TOPICS),
        )
    return TOPICS[found[0]](debugger, rest.strip())
