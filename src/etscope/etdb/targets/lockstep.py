"""The run on the runtime and the reference in lock step: how far each operator is from PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.metrics import Metric, find_metric
from etscope.errors import EtscopeError, MissingDataError
from etscope.etdb._debugger import Debugger, Gap
from etscope.etdb.expressions.names import Values, decided, only
from etscope.etdb.targets.target import Stop, Target


def gaps_so_far(debugger: Debugger, target: Target, metric: str) -> dict[int, Gap]:
    """The gaps of all stops up to where the run stands, by position.

    What a stop gave is there when it has just run, and its inputs are: so the run is repeated from
    its beginning, with what was set, and looked at stop by stop; it ends where it stood. What was
    found stays known until the run begins anew or something is set.

    Raises `MissingDataError` when nothing has run, or there is no reference.
    """
    last = debugger.position
    if last is None:
        raise MissingDataError("nothing has run yet", hint="run, or start")
    reference = debugger.reference  # without one, nothing is repeated
    found = find_metric(metric)
    wanted = [p for p in range(last + 1) if (found.name, p) not in debugger.gaps]
    if wanted:
        before = debugger.position, debugger.ended
        try:
            for stop in _again(target, wanted):
                debugger.position, debugger.ended = stop.position, False
                debugger.gaps[found.name, stop.position] = _gap(debugger, found, stop)
        finally:
            debugger.position, debugger.ended = before
            target.reach(last)
    del reference
    return {p: debugger.gaps[found.name, p] for p in range(last + 1)}


def _again(target: Target, positions: list[int]) -> Iterator[Stop]:
    """The stops of a run that is repeated, each when it has just run."""
    for position in positions:
        target.reach(position)
        if target.interrupted:
            raise KeyboardInterrupt
        yield target.stops[position]


def _gap(debugger: Debugger, metric: Metric, stop: Stop) -> Gap:
    scope = Values(debugger)
    try:
        total = scope.gap(metric.name)
    except EtscopeError:
        return Gap(None)
    try:
        return Gap(total, _local(debugger, scope, metric, stop))
    except EtscopeError:
        return Gap(total)  # of a delegate, or a node of a branch: PyTorch has no operator for it


def _local(debugger: Debugger, scope: Values, metric: Metric, stop: Stop) -> float | None:
    """The operator's own error: from what PyTorch makes of the inputs that the device has."""
    if stop.path is None or stop.kind == "delegate":
        return None
    result = debugger.reference.call(stop.path, scope.value_for_call)
    return decided(metric, only(result), scope.value_for_call(stop.path))
