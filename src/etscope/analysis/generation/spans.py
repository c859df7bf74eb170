"""The tokens of a language model as spans above the events of a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from etscope.analysis.generation.traced import TracedCalls, traced_calls
from etscope.analysis.profile.trace import Trace
from etscope.model.timeline import Timeline, Track

_TRACK = "generation"


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
    args: list[Mapping[str, Any]] = [
        _args_of_phase(calls, one, other)
        for one, other in zip(first.tolist(), last.tolist(), strict=True)
    ]
    args += (_args_of_call(calls, index) for index in range(len(calls)))
    start = np.concatenate([calls.start[first], calls.start])
    # An embedding ends before its decoder begins: the last call of a phase ends last.
    until = np.concatenate([np.maximum.reduceat(end, first), end])
    order = np.argsort(start, kind="stable")  # a phase stands before its first call
    number = np.arange(len(start))[order]
    return replace(
        timeline,
        tracks=(
            Track(_TRACK),
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


def _args_of_phase(calls: TracedCalls, first: int, last: int) -> dict[str, Any]:
    phase = calls.phase[first]
    args: dict[str, Any] = {
        "generation": int(calls.generation[first]),
        "calls": last - first + 1,
    }
    of_it = slice(first, last + 1)
    chosen = calls.chosen[of_it]
    if (chosen >= 0).any():
        args["generated"] = int((chosen >= 0).sum())
    if calls.text is not None and calls.phases[phase] == "decode":
        args["text"] = calls.text
    return args


def _args_of_call(calls: TracedCalls, index: int) -> dict[str, Any]:
    args: dict[str, Any] = {
        "phase": calls.phases[calls.phase[index]],
        "call": int(calls.number[index]),
        "generation": int(calls.generation[index]),
    }
    method = calls.methods[calls.method[index]]
    if method is not None:
        args["method"] = method
    if calls.position[index] >= 0:
        args["position"] = int(calls.position[index])
    if calls.tokens[index] > 0:
        args["tokens"] = int(calls.tokens[index])
    if calls.chosen[index] >= 0:
        args["generated_id"] = int(calls.chosen[index])
    return args
