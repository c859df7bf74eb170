"""The calls of a language model as a dump has them: each with its phase, place and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.trace import Trace
from etscope.formats.generation import DECODE, Generation, GenerationCalls
from etscope.formats.run_json import saved_generation

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TracedCalls:
    """The calls of known phase in a dump, in the order of the run; columns are int64
    [calls].

    methods, phases: the names that `method` and `phase` are indices of; None for a method that is
    not known. number: counts all executions in the dump, as `--calls` does. run: index in the dump.
    generation: which of those in the dump, from 0. step: counts the calls of a method in a phase of
    a generation. position, tokens: as in `RunCalls`. start, ticks: of Method::execute. chosen: the
    token that was chosen after the call, -1 if none was or it is not known.
    """

    methods: tuple[str | None, ...]
    phases: tuple[str, ...]
    number: Ints
    run: Ints
    method: Ints
    phase: Ints
    generation: Ints
    step: Ints
    position: Ints
    tokens: Ints
    start: Ints
    ticks: Ints
    chosen: Ints
    text: str | None = None

    def __len__(self) -> int:
        return len(self.run)

    def name(self, index: int) -> str:
        """The name of a call: "decode 17: position 42"."""
        named = f"{self.phases[self.phase[index]]} {self.step[index]}"
        method = self.methods[self.method[index]]
        parts = [method] if len(self.methods) > 1 and method not in (None, *self.phases) else []
        position, tokens = int(self.position[index]), int(self.tokens[index])
        if position >= 0:
            last = position + tokens - 1
            parts.append(f"positions {position}..{last}" if tokens > 1 else f"position {position}")
        return f"{named}: {', '.join(filter(None, parts))}" if parts else named

    def select(self, kept: npt.NDArray[np.bool_]) -> TracedCalls:
        """Return the calls of a mask."""
        columns = {name: getattr(self, name)[kept] for name in _COLUMNS}
        return replace(self, **columns)


_COLUMNS = (
    *("number", "run", "method", "phase", "generation", "step"),
    *("position", "tokens", "start", "ticks", "chosen"),
)


def traced_calls(trace: Trace) -> TracedCalls | None:
    """Return the calls that a trace looks at; None if no phase is known."""
    if trace.chosen is not None:  # what a call is hangs on those before it
        every = traced_calls(replace(trace, chosen=None))
        return every and every.select(np.isin(every.run, trace.chosen.run))
    calls = trace.calls_of_runs
    start, end, method_of = _executions(trace)
    known = np.array([phase is not None for phase in calls.phase], np.bool_)
    known &= start[calls.run] >= 0
    if not known.any():
        return None
    number = np.flatnonzero(known)
    run = calls.run[number]
    saved = saved_generation(trace.dump.path)
    if saved is not None and (calls.inferred is not None or len(saved[1]) != len(calls.run)):
        saved = None  # of another dump
    phases, phase = _indexed([calls.phase[one] or "" for one in number.tolist()])
    if saved is None:
        # A generation begins with a call that is not a decode, after a decode.
        decodes = np.array([name == DECODE for name in phases], np.bool_)[phase]
        begins = ~decodes[1:] & decodes[:-1]
        generation = np.concatenate(([0], np.cumsum(begins))).astype(np.int64)
        methods, method = _indexed([method_of[one] for one in run.tolist()])
        chosen = np.full(len(run), -1, np.int64)
    else:
        whole, noted = saved
        generation = noted.run[number]
        methods, method = noted.methods, noted.method[number]
        chosen = _chosen(noted, whole)[number]
    return TracedCalls(
        methods=methods,
        phases=phases,
        number=number,
        run=run,
        method=method,
        phase=phase,
        generation=generation,
        step=_steps(generation, phase, method),
        position=calls.position[number],
        tokens=calls.tokens[number],
        start=start[run],
        ticks=end[run] - start[run],
        chosen=chosen,
        text=None if saved is None else saved[0].text,
    )


_T = TypeVar("_T")


def _indexed(values: Sequence[_T]) -> tuple[tuple[_T, ...], Ints]:
    """The different values in order of appearance, and the index of each value in them."""
    places: dict[_T, int] = {}
    index = [places.setdefault(value, len(places)) for value in values]
    return tuple(places), np.array(index, np.int64)


def _executions(trace: Trace) -> tuple[Ints, Ints, dict[int, str | None]]:
    """Start and end of what each run of the dump executed, -1 for those that executed nothing, and
    the methods."""
    start, end = np.full((2, trace.dump.num_runs), -1, np.int64)
    method_of: dict[int, str | None] = {}
    for block in trace.blocks:
        if block.executions:
            mine = list(block.executions)
            start[block.runs] = block.starts[mine].min(axis=0)
            end[block.runs] = (block.starts[mine] + block.ticks[mine]).max(axis=0)
            method_of.update(dict.fromkeys(block.runs.tolist(), trace.method_of(block)))
    return start, end, method_of


def _steps(generation: Ints, phase: Ints, method: Ints) -> Ints:
    """Count the calls of each generation, phase and method from 0."""
    _, group = np.unique(np.stack([generation, phase, method]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group[order])
    step = np.empty(len(group), np.int64)
    step[order] = np.arange(len(group)) - first
    return step


def _chosen(calls: GenerationCalls, found: Generation) -> Ints:
    """The token that was chosen after each call of a pass; -1 for none, and where it is not known:
    of tokens that were drawn, and of generations that chose another number of them."""
    chosen = np.full(len(calls), -1, np.int64)
    for run in np.unique(calls.run).tolist() if found.sampler.temperature == 0 else ():
        mine = np.flatnonzero((calls.run == run) & (calls.sampling_ns > 0))
        if len(mine) == len(found.generated_tokens):
            chosen[mine] = found.generated_tokens
    return chosen
