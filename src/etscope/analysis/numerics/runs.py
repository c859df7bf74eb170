"""What ran before a run: a model that keeps state goes on from there."""

from __future__ import annotations

from dataclasses import dataclass

from etscope.analysis.numerics.gap import MethodRun, runs_of
from etscope.analysis.profile.profile import executes
from etscope.analysis.profile.trace import Trace

_LOADS = "Program::load_method"


@dataclass(frozen=True, slots=True)
class Sequences:
    """The runs of a method, those together that ran one after the other since it was loaded.

    doubt: in words, why they may not belong together so; None when the dump shows it.
    """

    runs: tuple[tuple[MethodRun, ...], ...]
    doubt: str | None = None

    def before(self, run: MethodRun) -> tuple[MethodRun, ...]:
        """The runs whose state a run goes on from."""
        for sequence in self.runs:
            if any(one.number == run.number for one in sequence):
                return tuple(one for one in sequence if one.number < run.number)
        return ()


def sequences(trace: Trace, method: str) -> Sequences:
    """The sequences of a method's runs.

    The runtime logs that a method was loaded, and not which: with several methods that ran, each
    is taken to be loaded once as long as there are no more loads than methods.
    """
    runs = runs_of(trace, method)
    loads = sorted(
        int(number)
        for block in trace.blocks
        if any(key.name == _LOADS for key in block.keys)
        for number in block.runs
    )
    if runs and not any(load < runs[0].number for load in loads):
        return Sequences(
            (tuple(runs),),
            "the dump does not show when the model was loaded: its first run is taken to start "
            "from the first state",
        )
    methods = {trace.method_of(block) for block in trace.blocks if executes(block)}
    if len(methods) > 1:
        doubt = (
            f"methods were loaded {len(loads)} times, and the dump does not say which: the state "
            f"of {method!r} is taken to go on from its first run"
        )
        return Sequences((tuple(runs),), doubt if len(loads) > len(methods) else None)
    found: list[list[MethodRun]] = []
    last = -1
    for run in runs:
        if not found or any(last < load < run.number for load in loads):
            found.append([])
        found[-1].append(run)
        last = run.number
    return Sequences(tuple(map(tuple, found)))


__all__ = ["Sequences", "sequences"]
