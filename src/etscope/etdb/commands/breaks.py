"""Where a run is to stop."""

from __future__ import annotations

import re
from typing import Any

from etscope.errors import UsageError
from etscope.etdb.breakpoints import WATCH_INF, WATCH_NAN, Breakpoint, fields_of_stop
from etscope.etdb.commands.registry import command, selector_of, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.expressions.expression import (
    CURRENT,
    FUNCTIONS,
    HANDLE,
    INSTRUCTION,
    Expression,
    parse,
)
from etscope.etdb.output import Output
from etscope.model.selector import Selector

GROUP = "breakpoints"


@command("break SELECTOR [if EXPR]", group=GROUP, aliases=("b", "br"), words=("selector",))
def break_(debugger: Debugger, rest: str) -> Output:
    """Stop at the operators that SELECTOR picks, where EXPR holds.

    `break op:softmax`, `break module:blocks.0 and op:conv*`, `break file:model.py:34`,
    `break id:7`, `break %12` (a debug handle), `break if gap(sqnr) < 20`: the first divergence from
    the reference. EXPR holds for an array when it does anywhere in it. Without anything: at the
    current operator.
    """
    return _added(debugger, rest, once=False)


@command("tbreak SELECTOR [if EXPR]", group=GROUP, aliases=("tb",), words=("selector",))
def tbreak(debugger: Debugger, rest: str) -> Output:
    """Stop once: as break, and gone when it is hit."""
    return _added(debugger, rest, once=True)


@command("watch nan|inf|EXPR", group=GROUP, aliases=("wa",), words=("nan", "inf", "node"))
def watch(debugger: Debugger, rest: str) -> Output:
    """Stop where an operator gives NaN or infinities, or wherever EXPR holds.

    EXPR is looked at after every operator; `$` is what the operator gave: `watch $.max() > 100`.
    """
    if not rest:
        raise UsageError("watch what?", hint="watch nan, watch inf, or watch EXPR")
    word = rest.lower()
    if word in (WATCH_NAN, WATCH_INF):
        one = debugger.breakpoints.add(what=f"watch {word}", watch=word)
    else:
        expression = _checked(debugger, parse(rest))
        one = debugger.breakpoints.add(what=f"watch {rest}", condition=expression)
    return Output().say(f"watchpoint {one.number}: {rest}")


@command("delete [N …]", group=GROUP, aliases=("d", "del"), words=("breakpoint",))
def delete(debugger: Debugger, rest: str) -> Output:
    """Remove breakpoints and watchpoints by number; all of them without one."""
    if not rest:
        count = debugger.breakpoints.clear()
        return Output().say(f"{count} removed")
    for word in rest.split():
        debugger.breakpoints.delete(whole(word, what="the number of a breakpoint"))
    return Output()


@command("enable N …", group=GROUP, words=("breakpoint",))
def enable(debugger: Debugger, rest: str) -> Output:
    """Stop at these breakpoints again."""
    return _switched(debugger, rest, on=True)


@command("disable N …", group=GROUP, words=("breakpoint",))
def disable(debugger: Debugger, rest: str) -> Output:
    """Do not stop at these breakpoints, but keep them."""
    return _switched(debugger, rest, on=False)


@command("condition N [EXPR]", group=GROUP, words=("breakpoint",))
def condition(debugger: Debugger, rest: str) -> Output:
    """Give a breakpoint another condition, or none."""
    word, _, text = rest.partition(" ")
    expression = _checked(debugger, parse(text)) if text.strip() else None
    debugger.breakpoints.set_condition(whole(word, what="the number of a breakpoint"), expression)
    return Output()


def _added(debugger: Debugger, rest: str, *, once: bool) -> Output:
    place, condition_text = _split_condition(rest)
    if not place and not condition_text:
        stop = debugger.here()
        place = f"id:{stop.instruction}" if stop.instruction is not None else stop.name
    selector = selector_of(place or "*")
    expression = _checked(debugger, parse(condition_text)) if condition_text else None
    count = _count(debugger, selector)
    if count == 0:
        raise UsageError(
            f"nothing is picked by {place!r}", hint="info ops lists what there is; help selectors"
        )
    one: Breakpoint = debugger.breakpoints.add(
        what=rest or place, selector=selector, condition=expression, once=once
    )
    kind = "temporary breakpoint" if once else "breakpoint"
    where = "" if count is None else f" · {count:,} {'place' if count == 1 else 'places'}"
    return Output().say(f"{kind} {one.number}: {rest or place}{where}")


def _split_condition(rest: str) -> tuple[str, str]:
    match = re.search(r"(^|\s)if\s", rest)
    if match is None:
        return rest.strip(), ""
    return rest[: match.start()].strip(), rest[match.end() :].strip()


def _count(debugger: Debugger, selector: Selector) -> int | None:
    """How many stops it picks; None where there is nothing to walk yet."""
    if debugger.target is None:
        return None
    return sum(selector.matches(fields_of_stop(stop)) for stop in debugger.target.stops)


def _checked(debugger: Debugger, expression: Expression) -> Expression:
    """The expression, if its names are known: a misspelt one would never hold."""
    for name in expression.names():
        if name.startswith((HANDLE, INSTRUCTION, CURRENT)) or _is_metric(name):
            continue
        debugger.node_named(name)
    return expression


def _is_metric(name: str) -> bool:
    from etscope.analysis.metrics import METRICS

    known: Any = (*METRICS, *FUNCTIONS)
    return name in known


def _switched(debugger: Debugger, rest: str, *, on: bool) -> Output:
    if not rest:
        raise UsageError("which breakpoints?", hint="info breakpoints lists them")
    for word in rest.split():
        debugger.breakpoints.enable(whole(word, what="the number of a breakpoint"), on)
    return Output()
