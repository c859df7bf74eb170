"""Breakpoints and watchpoints."""

from __future__ import annotations

import os
import re
from pathlib import Path

from etscope.analysis.metrics import METRICS
from etscope.errors import UsageError
from etscope.etdb.breakpoints import WATCH_INF, WATCH_NAN
from etscope.etdb.commands import command, whole
from etscope.etdb.commands.running import find_checkpoint
from etscope.etdb.commands.source import picked_stops
from etscope.etdb.debugger import Block, Debugger
from etscope.etdb.expression import (
    CURRENT,
    FUNCTIONS,
    HANDLE,
    INSTRUCTION,
    Expression,
    parse,
)
from etscope.etdb.output import Output
from etscope.etdb.scope import DebuggerScope
from etscope.model.selector import Selector
from etscope.units import count as counted

GROUP = "breakpoints"
_NUMBER = "the number of a breakpoint"
_SAVED = "# breakpoints of etdb"  # first line of their file


@command(
    "break [SELECTOR|FILE:LINE|LINE] [if EXPR]",
    group=GROUP,
    aliases=("b", "br"),
    words=("selector",),
)
def break_(debugger: Debugger, rest: str) -> Output:
    """Stop at operators that SELECTOR picks, or that come from a line; with EXPR, only if it is
    true.

    `break net.py:12`; `break 12`, a line of the file that was shown last; `break op:softmax`;
    `break module:blocks.0 and op:conv*`; `break id:7`, an instruction; `break %12`, a debug handle;
    `break if gap(sqnr) < 20`, the first divergence from the reference. A line without an operator
    stands for the operators that are called from it. An EXPR on an array is true if it is true for
    any element. Without arguments: stop at the current operator.
    """
    return _add(debugger, rest, once=False)


@command(
    "tbreak [SELECTOR|FILE:LINE|LINE] [if EXPR]", group=GROUP, aliases=("tb",), words=("selector",)
)
def tbreak(debugger: Debugger, rest: str) -> Output:
    """Stop once: like break, but removed when it is hit."""
    return _add(debugger, rest, once=True)


@command("watch nan|inf|NODE|EXPR", group=GROUP, aliases=("wa",), words=("nan", "inf", "node"))
def watch(debugger: Debugger, rest: str) -> Output:
    """Stop where an operator gives NaN or infinities, wherever EXPR holds, or where a value is
    written.

    EXPR is evaluated after every operator; `$` is the operator's output: `watch $.max() > 100`.
    `watch NODE` stops at the operators that compute the node's value; on the runtime also at those
    that write a buffer of the model.
    """
    if not rest:
        raise UsageError("watch what?", hint="watch nan, watch inf, watch NODE, or watch EXPR")
    word = rest.lower()
    if word in (WATCH_NAN, WATCH_INF):
        one = debugger.breakpoints.add(watch=word)
    else:
        expression = parse_known(debugger, rest)
        name = next(expression.names(), "")
        if expression.text in (name, f"%{name.removeprefix(HANDLE)}") and name != CURRENT:
            return _watch_writes(debugger, name, rest)
        one = debugger.breakpoints.add(condition=expression)
    return Output().say(f"watchpoint {one.number}: {rest}")


def _watch_writes(debugger: Debugger, name: str, text: str) -> Output:
    """Stop at the operators that write the value of a node."""
    selector = write_selector(debugger, name)
    one = debugger.breakpoints.add(place=selector.text, selector=selector, origin="data")
    return Output().say(f"watchpoint {one.number}: {text} is written ({selector.text})")


def write_selector(debugger: Debugger, name: str) -> Selector:
    """Select the operators that write the value of a node, or, on the runtime, a buffer. Raises
    `UsageError` if there are none."""
    if name.startswith(HANDLE):
        path = DebuggerScope(debugger).node_of_handle(int(name.removeprefix(HANDLE)))
    else:
        path = debugger.path_named(name)
    runtime = debugger.on_runtime
    ids = set() if runtime is None else set(runtime.writers_of(path))
    for stop in debugger.some_target().stops:
        of_stop = {stop.path, *(node.name for node in stop.nodes)}
        if path in of_stop and stop.instruction is not None:
            ids.add(stop.instruction)
    if not ids:
        raise UsageError(
            f"no operator of this run writes {path}",
            hint="target runtime knows what writes buffers" if runtime is None else None,
        )
    return Selector(" or ".join(f"id:{number}" for number in sorted(ids)))


@command(
    "delete [N …|checkpoint N …]",
    group=GROUP,
    aliases=("d", "del"),
    words=("breakpoint", "checkpoint"),
)
def delete(debugger: Debugger, rest: str) -> Output:
    """Remove breakpoints and watchpoints by number; without a number, all of them."""
    word, _, numbers = rest.partition(" ")
    if word == "checkpoint":
        for number in numbers.split() or [""]:
            find_checkpoint(debugger, number)
            del debugger.checkpoints[int(number)]
        return Output()
    if not rest:
        count = debugger.breakpoints.clear()
        return Output().say(f"{count} removed")
    for word in rest.split():
        debugger.breakpoints.delete(_number(debugger, word))
    return Output()


@command("enable N …", group=GROUP, words=("breakpoint",))
def enable(debugger: Debugger, rest: str) -> Output:
    """Stop at these breakpoints again."""
    return _switch(debugger, rest, on=True)


@command("disable N …", group=GROUP, words=("breakpoint",))
def disable(debugger: Debugger, rest: str) -> Output:
    """Do not stop at these breakpoints, but keep them."""
    return _switch(debugger, rest, on=False)


@command("condition N [EXPR]", group=GROUP, words=("breakpoint",))
def condition(debugger: Debugger, rest: str) -> Output:
    """Give a breakpoint another condition, or none."""
    word, _, text = rest.partition(" ")
    expression = parse_known(debugger, text) if text.strip() else None
    one = debugger.breakpoints.find(_number(debugger, word))
    if one.selector is None and expression is None:
        raise UsageError("a watchpoint is a condition", hint=f"delete {one.number} removes it")
    one.condition = expression
    return Output()


@command("ignore N COUNT", group=GROUP, words=("breakpoint",))
def ignore(debugger: Debugger, rest: str) -> Output:
    """Do not stop at the next COUNT hits of a breakpoint while the run goes forward."""
    word, _, text = rest.partition(" ")
    if not text.strip():
        raise UsageError("ignore needs a breakpoint and a number of hits", hint="ignore N COUNT")
    number, count = _number(debugger, word), whole(text.strip(), what="the number of hits")
    if count < 0:
        raise UsageError("the number of hits must be 0 or more")
    debugger.breakpoints.find(number).ignored = count
    return Output().say(f"breakpoint {number} is ignored at its next {counted(count, 'hit')}")


@command("commands [N]", group=GROUP, words=("breakpoint",), takes_lines=True)
def commands(debugger: Debugger, rest: str) -> Output:
    """Execute the lines that follow, up to `end`, whenever a breakpoint is hit; by default, the one
    that was made last.

    If the first line is `silent`, the stop is not described. Lines after one that runs on, such as
    `continue`, are not executed. Without lines, the earlier ones are removed.
    """
    number = debugger.breakpoints.find(_number(debugger, rest)).number

    def keep(lines: tuple[str, ...]) -> None:
        debugger.breakpoints.find(number).commands = lines  # raises if it is gone

    debugger.block = Block(f"commands {number}", keep)
    return Output()


@command("save breakpoints FILE", group=GROUP, words=("breakpoints", "file"))
def save(debugger: Debugger, rest: str) -> Output:
    """Write commands that restore all breakpoints and watchpoints to a file.

    `source FILE` and `etdb -x FILE` read it. A file that `save` did not write is not replaced.
    """
    word, _, name = rest.partition(" ")
    if word != "breakpoints" or not name.strip():
        raise UsageError(f"cannot read {rest!r}", hint="save breakpoints FILE")
    points = list(debugger.breakpoints)
    if not points:
        raise UsageError("no breakpoints to save")
    path = Path(os.path.expanduser(name.strip()))  # noqa: PTH111 (never fails)
    try:
        if path.exists() and not path.read_bytes().startswith(_SAVED.encode()):
            raise UsageError(
                f"{path} is there already", hint="give another name, or remove the file"
            )
        lines = [_SAVED, *(line for one in points for line in one.as_commands)]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return Output().say(f"{counted(len(points), 'breakpoint')} saved: source {path}")


def _add(debugger: Debugger, rest: str, *, once: bool) -> Output:
    match = re.search(r"(^|\s)if\s", rest)
    place = rest.strip() if match is None else rest[: match.start()].strip()
    condition_text = "" if match is None else rest[match.end() :].strip()
    if not place and not condition_text:
        stop = debugger.here()
        place = f"id:{stop.instruction}" if stop.instruction is not None else stop.name
    picked = picked_stops(debugger, place or "*")
    expression = parse_known(debugger, condition_text) if condition_text else None
    one = debugger.breakpoints.add(
        place=picked.text if place else "",
        selector=picked.selector,
        condition=expression,
        once=once,
    )
    kind = "temporary breakpoint" if once else "breakpoint"
    where = "" if picked.places is None else f" · {counted(picked.places, 'place')}"
    return Output().say(f"{kind} {one.number}: {one.what}{where}")


def parse_known(debugger: Debugger, text: str) -> Expression:
    """Parse a condition. Raises `UsageError` for unknown names: the condition would never hold."""
    expression = parse(text)
    for name in expression.names():
        special = name.startswith((HANDLE, INSTRUCTION, CURRENT))
        if not special and name not in METRICS and name not in FUNCTIONS:
            debugger.node_named(name)
    return expression


def _switch(debugger: Debugger, rest: str, *, on: bool) -> Output:
    if not rest:
        raise UsageError("which breakpoints?", hint="info breakpoints lists them")
    for word in rest.split():
        debugger.breakpoints.find(_number(debugger, word)).enabled = on
    return Output()


def _number(debugger: Debugger, word: str) -> int:
    """Parse the number of a breakpoint; nothing and `$bpnum` are the one that was made last."""
    if word not in ("", "$bpnum"):
        return whole(word, what=_NUMBER)
    if not len(debugger.breakpoints):
        raise UsageError("no breakpoints", hint="break SELECTOR makes one")
    return debugger.breakpoints.last
