"""`info` and `help`, and the session's own commands: source, define and quit."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from etscope.analysis.graphs.linked_graph import graph_list
from etscope.analysis.graphs.node_table import NodeTables, default_columns
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.metrics import METRICS
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import fields_of_stop
from etscope.etdb.commands import COMMANDS, Command, command, find_command
from etscope.etdb.commands.times import profile_of
from etscope.etdb.debugger import Block, Debugger
from etscope.etdb.expression import ATTRIBUTES, FUNCTIONS, METHODS
from etscope.etdb.output import (
    Output,
    operators,
    stop_lines,
    tensor_statistics,
    value_lines,
)
from etscope.etdb.python_code import known_lines, python_names
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.remote_tensor import RemoteTensor
from etscope.etdb.targets.target import open_record
from etscope.model import selector
from etscope.model.report import filled_columns
from etscope.model.selector import Selector
from etscope.model.table import Column, Kind, Table
from etscope.units import count as counted

_WIDTH, _INDENT = 79, 26  # of a help that fits the narrowest terminal

_EXPRESSIONS = """Expressions compute with tensors as numpy does; they are never run as Python.

  NAME              the value of a node of the edge graph at this stop; in a branch or a loop,
                    its own nodes come first
  %12               the node with debug handle 12        #5   the value of instruction 5
  $                 the current operator's output        $1   its second output
  $x                the value stored by `set $x = EXPR`  nan, inf   these numbers
  call              the number of the run: break op:softmax if call == 5
  value("a/b")      the node b of the branch or loop a; value("/b"): of the method's own graph
  value(12)         on the runtime: value 12 of the method (disassemble, info tensors)
  weight("fc.bias") a parameter or buffer
  ref(NAME)         the reference's value                device(NAME)   the recorded one
  gap(METRIC)       from the reference to the run, for the current operator; NaN in only one
                    of the two is the worst gap
  gap(METRIC, NAME) the same for another node; metrics: help metrics
  x[0, :4]  x.shape  x.mean()  x.abs().max()  + - * / // ** @  == != < <= > >=  and or not

where(CONDITION, YES, NO)  where($ > 3, 3, $)

A condition holds for a tensor if it does anywhere in it. Of an operator with several outputs, $ is
a list: $.shape and $ * 2 are of each output, $1 is the second. $.max() and a condition are over the
outputs of floats that something reads, not over indices beside them; $all.max() is over all."""


_TASKS = """Find what makes the output wrong    blame
  step to it                        break if gap(sqnr) < 60, run, bt, list/e
  is it the operator or its input   call $, gap $ local
Find NaN and infinities             watch nan, watch inf, run, reverse-step
Run up to a place                   break net.py:12, until op:softmax, goto 12
Look at values                      print $, info locals, x/8f $, display $.mean()
Compare with PyTorch                gap, print ref($), diff OTHER.etdp
Try another value                   target live or target runtime, start, set $ = ref(), continue
Go back                             reverse-step, reverse-continue, restart, checkpoint
See the model                       overview, info modules, crosswalk, disassemble
Find what takes time                top 10 by p90, list, info delegates
Debug the program itself            target runtime, target remote HOST:PORT, target ssh:HOST
Keep and report a session           record FILE, replay FILE, save breakpoints FILE, bug-report

help COMMAND describes one, help all lists all; help expressions, help selectors, help metrics."""

Topic = Callable[[Debugger, str], Output]
TOPICS: dict[str, Topic] = {}  # in the order of the functions here


def topic(function: Topic) -> Topic:
    """Register `_NAME` as the topic NAME of `info`."""
    TOPICS[function.__name__.removeprefix("_")] = function
    return function


@topic
def _breakpoints(debugger: Debugger, rest: str) -> Output:
    points = list(debugger.breakpoints)
    if not points:
        return Output().say("no breakpoints")
    content: dict[Column, list[Any]] = {
        Column("number", Kind.INT): [one.number for one in points],
        Column("kind"): ["breakpoint" if one.selector else "watchpoint" for one in points],
        Column("what"): [one.what for one in points],
        Column("enabled", Kind.BOOL): [one.enabled for one in points],
        Column("hits", Kind.COUNT): [one.hits for one in points],
    }
    if any(one.ignored for one in points):
        content[Column("ignored", Kind.COUNT)] = [one.ignored for one in points]
    if any(one.commands for one in points):
        content[Column("commands")] = ["; ".join(one.commands) for one in points]
    return Output().table(Table.of(content))


@topic
def _checkpoints(debugger: Debugger, rest: str) -> Output:
    if not debugger.checkpoints:
        return Output().say("no checkpoints")
    columns = (Column("number", Kind.INT), Column("run", Kind.INT), Column("where"))
    rows = [(number, one.run, one.where) for number, one in debugger.checkpoints.items()]
    return Output().table(Table.of_rows(columns, rows))


@topic
def _delegates(debugger: Debugger, rest: str) -> Output:
    target, scale = debugger.some_target(), debugger.scale
    calls = [stop for stop in target.stops if stop.kind == "delegate" and stop.loop_pass == 0]
    if not calls:
        return Output().say(f"this {target.kind} run calls no delegate")
    times = {call.instruction: call.ticks for call in calls}
    if debugger.on_runtime is not None and debugger.position is not None:
        # The runtime times an operator only after a single step: repeat the run, as `top` does.
        times |= {
            one.head.instruction_id: one.head.ticks[0] for one in profile_of(debugger).instructions
        }
    columns = (
        Column("instruction", Kind.INT),
        Column("backend"),
        Column("nodes", Kind.COUNT),
        Column("events", Kind.COUNT),
        Column("time", Kind.DURATION, scale.unit),
        Column("module"),
    )
    rows = [
        (
            call.instruction,
            call.backend,
            len(call.nodes),
            sum(s.depth == 1 and s.instruction == call.instruction for s in target.stops),
            None if (ticks := times[call.instruction]) is None else float(scale(ticks)),
            call.module or "(root)",
        )
        for call in calls
    ]
    return Output().table(Table.of_rows(columns, rows, title=f"delegate calls of run {target.run}"))


@topic
def _graphs(debugger: Debugger, rest: str) -> Output:
    table = graph_list(open_record(debugger.capture))
    return Output().table(table, filled_columns(table))


@topic
def _locals(debugger: Debugger, rest: str) -> Output:
    debugger.here()  # raises
    names = python_names(debugger, debugger.frame)
    if not names:
        return Output().say("no variables of Python are known in this frame")
    scope, rows = DebuggerScope(debugger), []
    for name, node in names.items():
        try:
            facts = _value_facts(scope.value(node))
        except EtscopeError as error:
            facts = f"({error.message})", None, None, None, None
        rows.append((name, node, *facts))
    table = Table.of_rows((Column("name"), Column("node"), *_FACTS), rows)
    return Output().table(table, filled_columns(table))


@topic
def _memory(debugger: Debugger, rest: str) -> Output:
    program = debugger.program
    if program is None:
        raise MissingDataError("no program is loaded", hint="load one: file MODEL.pte")
    plan = memory_plan(program, debugger.method)
    stop = debugger.stop
    instruction = stop.instruction if stop is not None else None
    if instruction is None:
        instruction = next(iter(plan.peak_instructions), 0)
    table = plan.table()
    alive = {value.value for value in plan.live_at(instruction)}
    rows = [i for i, value in enumerate(table.values["value"]) if value in alive]
    rows.sort(key=lambda i: -table.values["size"][i])
    output = Output().table(plan.summary())
    output.say(f"alive at instruction {instruction}: {len(rows)} of {counted(len(table), 'value')}")
    return output.table(table.take(rows))


@topic
def _methods(debugger: Debugger, rest: str) -> Output:
    names = debugger.methods
    if not names:
        raise MissingDataError("no method is known", hint="load an ETRecord or a .pte")
    return Output().say(*(f"{'*' if name == debugger.method else ' '} {name}" for name in names))


@topic
def _modules(debugger: Debugger, rest: str) -> Output:
    linked = debugger.linked()
    times = debugger.times_of(linked)
    keep = Selector(rest).matches if rest else None
    table = NodeTables(linked, keep, times=times, scale=debugger.scale).modules()
    if rest and not len(table):
        raise UsageError(f"nothing is picked by {rest!r}", hint="help selectors")
    return Output().table(table, filled_columns(table))


@topic
def _ops(debugger: Debugger, rest: str) -> Output:
    keep = Selector(rest).matches if rest else None
    scale = debugger.scale
    if debugger.record is None:  # the stops of the run
        target = debugger.some_target()
        stops = [s for s in target.stops if keep is None or keep(fields_of_stop(s))]
        columns = (
            Column("stop", Kind.INT),
            Column("instruction", Kind.INT),
            Column("event"),
            Column("time", Kind.DURATION, scale.unit),
        )
        rows = [
            (s.position, s.instruction, s.name, None if s.ticks is None else float(scale(s.ticks)))
            for s in stops
        ]
        table = Table.of_rows(columns, rows, title=f"run {target.run}")
        shown = [column.name for column in columns]
    else:
        linked = debugger.linked()
        times = debugger.times_of(linked)
        table = NodeTables(linked, keep, times=times, scale=scale).nodes()
        shown = list(default_columns(table))
    if rest and not len(table):
        raise UsageError(f"nothing is picked by {rest!r}", hint="help selectors")
    return Output().table(table, shown)


@topic
def _runs(debugger: Debugger, rest: str) -> Output:
    target, scale = debugger.some_target(), debugger.scale
    runs = target.runs
    of_calls: dict[Column, list[Any]] = {
        Column("call", Kind.INT): [run.call for run in runs],
        Column("phase"): [run.phase for run in runs],
        Column("position", Kind.INT): [run.token_position for run in runs],
        Column("tokens", Kind.COUNT): [run.tokens for run in runs],
    }
    content: dict[Column, list[Any]] = {
        Column("chosen", title=" "): ["*" if run.number == target.run else "" for run in runs],
        Column("run", Kind.INT): [run.number for run in runs],
        Column("method"): [run.method or None for run in runs],
        **(of_calls if any(run.call is not None for run in runs) else {}),
        Column("operators", Kind.COUNT): [run.stops for run in runs],
        Column("time", Kind.DURATION, scale.unit): [
            None if run.total is None else float(scale(run.total)) for run in runs
        ],
    }
    output = Output().table(Table.of(content))
    return output.say(*(f"run {run.number}: {run.failed}" for run in runs if run.failed))


@topic
def _source(debugger: Debugger, rest: str) -> Output:
    lines = known_lines(debugger)
    if not lines:
        raise MissingDataError("no lines of Python are known", hint="the ETRecord has them")
    columns = (Column("file", Kind.PATH), Column("lines", Kind.COUNT))
    rows = [(file, len(lines[file])) for file in sorted(lines)]
    return Output().table(Table.of_rows(columns, rows))


@topic
def _stop(debugger: Debugger, rest: str) -> Output:
    return Output().say(*stop_lines(debugger, debugger.here()))


@topic
def _target(debugger: Debugger, rest: str) -> Output:
    target = debugger.some_target()
    head = f"{target.kind}: {target.method or 'method'}, {operators(len(target.stops))}"
    return Output().say(head, *target.about())


@topic
def _tensors(debugger: Debugger, rest: str) -> Output:
    target = debugger.some_target()
    last = debugger.position if debugger.position is not None else len(target.stops) - 1
    if not target.is_past and debugger.position is None:
        last = -1  # nothing has run
    rows = []
    for stop in target.stops[: last + 1]:
        pairs, indices = target.pairs_at(stop.position), target.indices_at(stop.position)
        try:
            values = target.device_values(stop.position)
        except MissingDataError:
            if target.keeps_values:
                raise
            values = [None]
        for number, value in enumerate(values):
            # Each output of a delegate's call belongs to another node.
            name = pairs[number].node if number in pairs else stop.node or stop.name
            index = indices[number] if number < len(indices) else None
            is_gone = value is None and not target.keeps_values
            facts = _value_facts("gone" if is_gone else value)
            rows.append((stop.position, stop.instruction, name, number, index, *facts))
    if not rows:
        if not target.is_past:
            raise MissingDataError("nothing has run yet", hint="run, or start")
        if isinstance(target, RecordedRuns):
            target.require_values()
        raise MissingDataError(
            "no values were recorded", hint="run with a debug level, and give the debug buffer"
        )
    columns = (
        Column("stop", Kind.INT),
        Column("instruction", Kind.INT, priority=2),
        Column("node"),
        Column("output", Kind.INT, priority=1),
        Column("index", Kind.INT, priority=1),
        *_FACTS,
    )
    table = Table.of_rows(columns, rows)
    return Output().table(table, filled_columns(table))


_FACTS = (
    Column("value"),
    Column("min", Kind.FLOAT),
    Column("max", Kind.FLOAT),
    Column("mean", Kind.FLOAT, priority=1),
    Column("non_finite", Kind.COUNT, title="NaN, Inf"),
)


def _value_facts(value: Any) -> tuple[str, float | None, float | None, float | None, int | None]:
    """Type and shape of a value, its minimum, maximum and mean, and the count of non-finite
    numbers; None if it has no numbers."""
    has_numbers = (
        isinstance(value, (np.ndarray, RemoteTensor)) and value.size and value.dtype.kind in "iufV"
    )
    if has_numbers and (value.ndim or isinstance(value, RemoteTensor)):
        head = f"{value.dtype}{list(value.shape)}"
    else:
        head = value_lines(value)[0].partition("  ")[0]
    if not has_numbers:
        return head, None, None, None, None
    found = tensor_statistics(value)
    non_finite = (found.nan + found.plus_inf + found.minus_inf) or None
    if non_finite == found.elements:
        return head, None, None, None, non_finite
    return head, found.least, found.greatest, found.mean, non_finite


SELECTED = ("modules", "ops")  # topics with a selector


@command("info TOPIC", group="graph", aliases=("i",), words=tuple(TOPICS))
def info(debugger: Debugger, rest: str) -> Output:
    """Show breakpoints, checkpoints, delegates, graphs, locals, memory, methods, modules, ops,
    runs, source, stop, target or tensors. Locals are variables of the model's Python.

    `info ops` and `info modules` take a selector: `info ops op:conv*`.
    """
    word, _, rest = rest.partition(" ")
    found = [name for name in TOPICS if name == word] or [
        name for name in TOPICS if word and name.startswith(word)
    ]
    if len(found) != 1:
        message = "info on what?"
        if word:
            message += f" {word!r} is " + (f"one of {', '.join(found)}" if found else "unknown")
        raise UsageError(message, hint="topics are: " + ", ".join(TOPICS))
    if rest.strip() and found[0] not in SELECTED:
        raise UsageError(
            f"info {found[0]} takes no arguments, got {rest.strip()!r}",
            hint=f"leave the arguments out; only {' and '.join(SELECTED)} take a selector",
        )
    return TOPICS[found[0]](debugger, rest.strip())


@command("help [COMMAND|all|expressions|selectors|metrics]", group="session", aliases=("h",),
         words=("command", "all", "expressions", "selectors", "metrics"))  # fmt: skip
def help_(debugger: Debugger, rest: str) -> Output:
    """Show commands for common tasks, list all of them, or describe one."""
    if not rest:
        return Output().say(_TASKS)
    if rest == "all":
        return _command_list()
    if rest == "expressions":
        return Output().say(
            _plain(_EXPRESSIONS),
            "",
            "Functions: " + ", ".join(FUNCTIONS),
            "Methods: " + ", ".join(METHODS),
            "Attributes: " + ", ".join(ATTRIBUTES),
        )
    if rest == "selectors":
        return Output().say(_plain(selector.__doc__ or "").strip())
    if rest == "metrics":
        width = max(map(len, METRICS))
        return Output().say(
            *(
                f"{metric.name:<{width}}  {metric.title}"
                + (f" ({metric.unit})" if metric.unit else "")
                for metric in METRICS.values()
            )
        )
    if rest in debugger.defined:
        return Output().say(f"define {rest}", *(f"  {line}" for line in debugger.defined[rest]))
    one = find_command(rest)
    names = ", ".join((one.name, *one.aliases))
    return Output().say(one.usage, f"Names: {names}", "", _plain(one.help))


def _command_list() -> Output:
    groups: dict[str, list[Command]] = {}
    for one in COMMANDS.values():
        groups.setdefault(one.group, []).append(one)
    output = Output()
    indent = " " * _INDENT
    for number, (group, commands) in enumerate(groups.items()):
        output.say(*([""] if number else []), f"{group}:")
        for one in commands:
            # The first sentence stands next to the usage, or below a long one.
            text = _plain(one.summary.split(". ")[0].rstrip("."))
            lines = textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
            usage = f"  {one.usage}"
            if len(usage) > _INDENT - 2:
                output.say(usage, *lines)
            else:
                output.say(usage + lines[0][len(usage) :], *lines[1:])
    return output.say("", "Unique prefixes of a command are enough. help COMMAND shows more.")


def _plain(text: str) -> str:
    """Replace the marks of code by quotes, for a terminal."""
    return text.replace("``", "'").replace("`", "'")


@command("source FILE", group="session", words=("file",))
def source(debugger: Debugger, rest: str) -> Output:
    """Execute the commands of a file, one per line; lines that begin with # are skipped."""
    raise UsageError("source works in a session only")


@command("record FILE|off", group="session", words=("off", "file"))
def record(debugger: Debugger, rest: str) -> Output:
    """Write the session to a file, each line with what it says, up to `record off`. Times are left
    out, as by `set times off`, so that `replay` can compare.
    """
    if rest == "off":
        debugger.recording = None
        return Output()
    if not rest:
        raise UsageError("record to which file?", hint="record session.txt")
    try:
        with open(rest, "ab"):  # noqa: PTH123 (a path as the user typed it)
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {rest}: {error.strerror}") from error
    debugger.recording, debugger.shows_times = rest, False
    return Output().say(f"recording to {rest}")


@command("replay FILE", group="session", words=("file",))
def replay(debugger: Debugger, rest: str) -> Output:
    """Execute the lines of a recorded session again, and show where they say something else: a
    finding."""
    raise UsageError("replay works in a session only")


@command("define NAME", group="session", takes_lines=True)
def define(debugger: Debugger, rest: str) -> Output:
    """Define a command: the lines that follow, up to `end`.

    In them, $arg0, $arg1 and so on are the words after its name, $args all of them. No lines at all
    remove it.
    """
    name = rest.strip()
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise UsageError(f"{name!r} cannot be the name of a command", hint="define NAME")
    if any(name in (one.name, *one.aliases) for one in COMMANDS.values()):
        raise UsageError(f"{name} is a command of etdb", hint="give another name")

    def keep(lines: tuple[str, ...]) -> None:
        debugger.defined.pop(name, None)
        if lines:
            debugger.defined[name] = lines

    debugger.block = Block(f"define {name}", keep)
    return Output()


@command("echo [TEXT]", group="session")
def echo(debugger: Debugger, rest: str) -> Output:
    """Show a text, in scripts."""
    return Output().say(rest)


@command("alias NAME = COMMAND", group="session", words=("command",))
def alias(debugger: Debugger, rest: str) -> Output:
    """Give a command another name: `alias sm = until op:softmax`. More words are added to it."""
    name, equals, line = (part.strip() for part in rest.partition("="))
    if not equals or not line:
        raise UsageError(f"cannot read {rest!r}", hint="alias NAME = COMMAND")
    block = define(debugger, name)
    if debugger.block is not None:
        debugger.block.keep((f"{line} $args",))
        debugger.block = None
    return block


@command("quit", group="session", aliases=("q", "exit"))
def quit_(debugger: Debugger, rest: str) -> Output:
    """End the session."""
    return Output(ends=True)
