"""What ran before a run: a model that keeps state goes on from there."""

from __future__ import annotations

from dataclasses import dataclass

from etscope.analysis.gap import MethodRun, runs_of
from etscope.analysis.profile import executes
from etscope.analysis.trace import Trace

_LOADS = "Program::load_method"


@dataclass(frozen=True, slots=True)
class RunsBefore:
    """The runs of a method between its loading and a run, in order.

    doubt: in words, why it may not be these; None when the dump shows it.
    """

    runs: tuple[MethodRun, ...]
    doubt: str | None = None


def runs_before(trace: Trace, method: str, chosen: MethodRun) -> RunsBefore:
    """The runs whose state a run goes on from. Loading a method starts anew.

    The runtime logs that a method was loaded, and not which: with several methods that ran, each
    is taken to be loaded once as long as there are no more loads than methods.
    """
    earlier = [run for run in runs_of(trace, method) if run.number < chosen.number]
    loads = sorted(
        int(number)
        for block in trace.blocks
        if any(key.name == _LOADS for key in block.keys)
        for number in block.runs
        if number < chosen.number
    )
    if not loads:
        doubt = (
            "the dump does not show when the model was loaded: its state is taken to start there"
        )
        return RunsBefore(tuple(earlier), doubt)
    methods = {trace.method_of(block) for block in trace.blocks if executes(block)}
    if len(methods) == 1:
        return RunsBefore(tuple(run for run in earlier if run.number > loads[-1]))
    if len(loads) <= len(methods):
        return RunsBefore(tuple(earlier))
    return RunsBefore(
        tuple(earlier),
        f"methods were loaded {len(loads)} times, and the dump does not say which: the state of "
        f"{method!r} is taken to go on from its first run",
    )


__all__ = ["RunsBefore", "runs_before"]
