"""The calls of a language model as a dump has them: each with its phase, place and times; their
times by operator, module or line; and their spans in a timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.profile import InstructionRows, MethodProfile, Row
from etscope.analysis.profile.rollup import module_name, rollup
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import block_family
from etscope.formats.generation import DECODE, Generation, GenerationCalls
from etscope.formats.run_json import saved_generation
from etscope.model.timeline import Timeline, Track

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TracedCalls:
    """The calls with a known phase in a dump, in the order of the run; columns are int64
    [calls].

    methods, phases: the names that `method` and `phase` point to by index; None for an unknown
    method. number: the position among all executions in the dump, as in `--calls`. run: the index
    of the run in the dump. generation: the number of the generation in the dump, from 0. step: the
    number of the call among the method's calls in this phase and generation. position, tokens: as
    in `RunCalls`. start, ticks: start and duration of Method::execute. chosen: the token that was
    chosen after the call, -1 if there is none or it is unknown.
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

    def args(self, index: int) -> dict[str, Any]:
        """The annotations of a call in a trace viewer."""
        args: dict[str, Any] = {
            "phase": self.phases[self.phase[index]],
            "call": int(self.number[index]),
            "generation": int(self.generation[index]),
        }
        method = self.methods[self.method[index]]
        if method is not None:
            args["method"] = method
        for name, column, least in (
            ("position", self.position, 0),
            ("tokens", self.tokens, 1),
            ("generated_id", self.chosen, 0),
        ):
            if column[index] >= least:
                args[name] = int(column[index])
        return args

    def select(self, kept: npt.NDArray[np.bool_]) -> TracedCalls:
        columns: dict[str, Any] = {
            one.name: column[kept]
            for one in fields(self)
            if isinstance(column := getattr(self, one.name), np.ndarray)
        }
        return replace(self, **columns)


def traced_calls(trace: Trace) -> TracedCalls | None:
    """Return the selected calls of a trace; None if no phase is known."""
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


def _indexed(values: Sequence[Any]) -> tuple[tuple[Any, ...], Ints]:
    """The different values in order of appearance, and the index of each value in them."""
    places: dict[Any, int] = {}
    index = [places.setdefault(value, len(places)) for value in values]
    return tuple(places), np.array(index, np.int64)


def _executions(trace: Trace) -> tuple[Ints, Ints, dict[int, str | None]]:
    """Start and end of each run's executions, -1 without any, and the methods."""
    start, end = np.full((2, trace.dump.num_runs), -1, np.int64)
    method_of: dict[int, str | None] = {}
    for block in trace.blocks:
        if block.executions:
            mine = list(block.executions)
            start[block.runs] = block.starts[mine].min(axis=0)
            end[block.runs] = (block.starts[mine] + block.ticks[mine]).max(axis=0)
            method_of.update(dict.fromkeys(block.runs.tolist(), trace.method_of(block)))
    return start, end, method_of


def _steps(*kinds: Ints) -> Ints:
    """Count the calls of each generation, phase and method from 0."""
    seen: Counter[tuple[int, ...]] = Counter()
    steps = []
    for kind in zip(*(one.tolist() for one in kinds), strict=True):
        steps.append(seen[kind])
        seen[kind] += 1
    return np.array(steps, np.int64)


def _chosen(calls: GenerationCalls, found: Generation) -> Ints:
    """The token that was chosen after each call of a pass; -1 for none, and where it is not known:
    of tokens that were drawn, and of generations that chose another number of them."""
    chosen = np.full(len(calls), -1, np.int64)
    for run in np.unique(calls.run).tolist() if found.sampler.temperature == 0 else ():
        mine = np.flatnonzero((calls.run == run) & (calls.sampling_ns > 0))
        if len(mine) == len(found.generated_tokens):
            chosen[mine] = found.generated_tokens
    return chosen


# -- The time of each call by operator, module or line.

GROUPINGS = ("op", "module", "source")
REST, UNACCOUNTED = "(the rest)", "(unaccounted)"


@dataclass(frozen=True, slots=True, eq=False)
class GroupSeries:
    """The ticks of groups in each call: int64 [names, calls]; the groups add up to the call's
    time.

    by: "op", "module" (repeated blocks are one group, as "layers.*.attention") or "source". The
    last group is `REST` if there are more groups than the limit allows.
    """

    by: str
    names: tuple[str, ...]
    ticks: Ints


def group_series(
    calls: TracedCalls, profiles: Sequence[MethodProfile], by: str, most: int
) -> GroupSeries:
    """Add up the leaves of profiles by group, for each call: the `most` groups with the largest
    share of a phase, and the rest."""

    def block(_: InstructionRows, leaf: Row) -> str:
        path = leaf.attribution.module
        return module_name(path and block_family(path))

    index = np.full(int(calls.run.max()) + 1, -1, np.int64)  # of the call, by run
    index[calls.run] = np.arange(len(calls))
    table: dict[str, Ints] = {}
    for profile in profiles:
        known = profile.runs <= calls.run.max()
        place = index[profile.runs[known]]
        known[known] = place >= 0
        place = place[place >= 0]
        if not len(place):
            continue
        groups = rollup(profile, block if by == "module" else by).groups
        of_groups = [(group.name, group.ticks) for group in groups]
        for name, ticks in (*of_groups, (UNACCOUNTED, profile.unaccounted)):
            table.setdefault(name, np.zeros(len(calls), np.int64))[place] += ticks[known]
    ticks = np.stack(list(table.values()))
    of_phase = np.stack(
        [ticks[:, calls.phase == phase].sum(axis=1) for phase in range(len(calls.phases))]
    )
    shares = of_phase / np.maximum(of_phase.sum(axis=1, keepdims=True), 1)
    order = np.argsort(-shares.max(axis=0, initial=0.0), kind="stable")
    names, shown = list(table), order[:most]
    found = GroupSeries(by, tuple(names[one] for one in shown.tolist()), ticks[shown])
    if len(order) <= most:
        return found
    rest = ticks[order[most:]].sum(axis=0)
    return GroupSeries(by, (*found.names, REST), np.concatenate([found.ticks, rest[None]]))


def joined_calls(kinds: Sequence[Ints], most: int) -> tuple[Ints, Ints]:
    """Join neighbouring calls so that at most about `most` remain.

    kinds: [calls], columns that must be the same in calls that are joined. Returns an order of the
    calls, and the first of each group in it.
    """
    count = len(kinds[0])
    together = -(-count // most)
    if together <= 1:
        return np.arange(count), np.arange(count)
    order = np.lexsort([np.arange(count), *kinds[::-1]])
    sorted_kinds: npt.NDArray[Any] = np.stack(kinds)[:, order]
    begins = np.concatenate(([True], (np.diff(sorted_kinds, axis=1) != 0).any(axis=0)))
    first = np.flatnonzero(begins)
    within = np.arange(count) - np.repeat(first, np.diff(np.append(first, count)))
    return order, np.flatnonzero(within % together == 0)


# -- Spans above the events of a timeline.


def with_generation(timeline: Timeline, trace: Trace) -> Timeline:
    """Add a track above the others, with a span for each phase and in it one for each call; the
    same timeline for a dump without phases."""
    calls = traced_calls(trace)
    if calls is None:
        return timeline
    kind = np.stack([calls.generation, calls.phase])
    first = np.flatnonzero(np.concatenate(([True], (np.diff(kind, axis=1) != 0).any(axis=0))))
    last = np.append(first[1:], len(calls)) - 1
    end = calls.start + calls.ticks
    names = [*(calls.phases[calls.phase[one]] for one in first.tolist())]
    names += map(calls.name, range(len(calls)))
    args: list[Mapping[str, Any]] = []
    for one, other in zip(first.tolist(), last.tolist(), strict=True):
        generated = int((calls.chosen[one : other + 1] >= 0).sum())
        is_decode = calls.phases[calls.phase[one]] == DECODE
        args.append(
            {
                "generation": int(calls.generation[one]),
                "calls": other - one + 1,
                **({"generated": generated} if generated else {}),
                **({"text": calls.text} if is_decode and calls.text is not None else {}),
            }
        )
    args += map(calls.args, range(len(calls)))
    start = np.concatenate([calls.start[first], calls.start])
    # An embedding ends before its decoder begins: the last call of a phase ends last.
    until = np.concatenate([np.maximum.reduceat(end, first), end])
    order = np.argsort(start, kind="stable")  # a phase stands before its first call
    number = np.arange(len(start))[order]
    return replace(
        timeline,
        tracks=(
            Track("generation"),
            *(
                replace(track, parent=None if track.parent is None else track.parent + 1)
                for track in timeline.tracks
            ),
        ),
        names=(*timeline.names, *names),
        args=(*timeline.args, *args),
        track=np.concatenate([np.zeros(len(number), np.int32), timeline.track + np.int32(1)]),
        start=np.concatenate([start[order], timeline.start]),
        end=np.concatenate([until[order], timeline.end]),
        name_id=np.concatenate([number + len(timeline.names), timeline.name_id]).astype(np.int32),
        args_id=np.concatenate([number + len(timeline.args), timeline.args_id]).astype(np.int32),
    )
