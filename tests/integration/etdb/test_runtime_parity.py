"""The same run, recorded and under the debugger's hands: stops, nodes and values are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etscope.errors import MissingDataError
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.target import Stop
from tests.support.etdb.runtimes import on_runtime, recorded, same

ARTEFACTS = [
    "cnn_portable",
    "cnn_xnnpack",
    "channels_last",
    "cond",
    "while_loop",
    "bf16_fp16",
    "transformer_portable",
    "rewritten_state",
    "written_state",
    "dynamic_shape",
    "many_delegates",
]


def recorded_stops(name: str) -> list[Stop]:
    """Kernels and delegates: a runner does not see into delegates, and does not stop at jumps."""
    found = recorded(name).runs.stops
    return [stop for stop in found if stop.kind in ("kernel", "delegate")]


def plain(stop: Stop) -> Stop:
    """Without what differs from run to run."""
    return replace(stop, position=0, ticks=None, nodes=())


def check_values(target: RuntimeTarget, position: int, values: list[list[Any]]) -> tuple[int, int]:
    """What the stop gives; and everything that is still offered of those before. Returns of how
    many of these something was compared, and how many are gone."""
    compared = gone = 0
    found = target.device_values(position)
    if values[position]:
        assert len(found) == len(values[position])
        assert all(map(same, found, values[position])), target.stops[position].name
    for earlier in range(position):
        try:
            found = target.device_values(earlier)
        except MissingDataError as error:
            assert "is gone" in error.message
            gone += 1
            continue
        if values[earlier]:
            there = [(f, v) for f, v in zip(found, values[earlier], strict=True) if f is not None]
            assert there and all(same(f, v) for f, v in there), (earlier, position)
            compared += 1
    return compared, gone


def check_nodes(target: RuntimeTarget, position: int, runs: RecordedRuns, at: int) -> int:
    """The values of the nodes of a stop, which was recorded at `at`. Returns how many there are."""
    pairs = runs.pairs_at(at)
    ours = {output: (p.node, p.element) for output, p in target.pairs_at(position).items()}
    theirs = {output: (p.node, p.element) for output, p in pairs.items()}
    # What a dump does not hold, numbers of the program, is there all the same.
    assert ours == theirs if runs.device_values(at) else not theirs
    for pair in pairs.values():
        found, wanted = target.value_of(pair.node, position), runs.value_of(pair.node, at)
        if pair.element is None:
            found, wanted = [found], [wanted]
        assert len(found) == len(wanted) and all(map(same, found, wanted))
    return len(pairs)


@pytest.mark.parametrize("name", ARTEFACTS)
def test_stops_and_values_are_those_of_the_recorded_run(name: str) -> None:
    runs, expected = recorded(name).runs, recorded_stops(name)
    values = [runs.device_values(stop.position) for stop in expected]
    compared = gone = nodes = 0
    with on_runtime(name) as target:
        position = target.go(-1, lambda stop: True)
        while position is not None:
            counts = check_values(target, position, values)
            compared, gone = compared + counts[0], gone + counts[1]
            nodes += check_nodes(target, position, runs, expected[position].position)
            position = target.go(position, lambda stop: True)
        found = list(target.stops)
        assert [stop.name for stop in found] == [stop.name for stop in expected]
        for at, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours.position == at
            assert [n.name for n in ours.nodes] == [n.name for n in theirs.nodes]
            assert plain(ours) == plain(theirs)
        assert target.ended and target.runs[0].total == target._execution.total_ns > 0
        assert any(values) and (compared or len(expected) == 1)
        assert gone or len(expected) < 8
        assert nodes >= min(len(expected), 2)
        # Backwards and forwards again, wherever to.
        for position in map(int, np.random.default_rng(0).permutation(len(found))[:12]):
            target.reach(position)
            assert target.position == position
            wanted = values[position]
            assert not wanted or all(map(same, target.device_values(position), wanted))
        assert not target.differences and not target.take_news()


@pytest.mark.parametrize("name", ["cnn_portable", "cond", "rewritten_state"])
def test_inputs_and_state_are_what_they_were_or_gone_or_written_back(name: str) -> None:
    gone, written = 0, set()
    with on_runtime(name) as target:
        target.reach(0)
        names = ["x", *(["b_cache"] if name == "rewritten_state" else [])]
        before = {place: np.array(target.value_of(place, 0)) for place in names}
        assert np.array_equal(before["x"], np.asarray(target.inputs[0]))
        for position in range(1, len(recorded_stops(name))):
            target.reach(position)
            now = {place: offered(target, place, position) for place in names}
            for place, value in now.items():
                if target.is_written_back(place, position):
                    (before[place],) = recorded(name).runs.device_values(position)  # of its copy_
                    written.add(place)
                assert value is None or np.array_equal(value, before[place])
            gone += sum(value is None for value in now.values())
    assert written == ({"b_cache"} if name == "rewritten_state" else set())
    assert gone or written


def offered(target: RuntimeTarget, node: str, position: int) -> object:
    """A node's value, None for one that is gone."""
    try:
        return target.value_of(node, position)
    except MissingDataError:
        return None


def test_every_value_of_the_method_is_what_was_recorded_or_gone() -> None:
    """By index; views that cost no instruction are what they are views of."""
    name = "transformer_portable"
    runs, expected = recorded(name).runs, recorded_stops(name)
    with on_runtime(name) as target:
        for position in (20, 60, 89):
            target.reach(position)
            nodes = target._prepared.nodes
            wanted: dict[int, Any] = {}
            for stop in expected[: position + 1]:
                outputs = nodes.outputs_of(stop.instruction or 0)
                wanted |= zip(outputs, runs.device_values(stop.position), strict=True)
            views = {i: np.ravel(wanted[of]) for i, of in nodes._views.items() if of in wanted}
            wanted |= views
            found = {index: value_at(target, index) for index in wanted}
            there = {index: value for index, value in found.items() if value is not None}
            assert views and 0 < len(there) < len(wanted)
            assert all(same(np.ravel(there[index]), np.ravel(wanted[index])) for index in there)


def value_at(target: RuntimeTarget, index: int) -> object:
    """A value, None for one that is gone."""
    try:
        return np.array(target.value_at(index))
    except MissingDataError:
        return None
