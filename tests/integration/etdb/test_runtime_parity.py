"""The same run, recorded and under the debugger's hands: stops, nodes and values are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etscope.errors import MissingDataError
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.target import Stop
from tests.support.etdb.runtimes import on_runtime, recorded, same

ARTEFACTS = [
    "cnn_portable",
    "cnn_xnnpack",
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


def ran_through(target: RuntimeTarget) -> int:
    """Run to the end; how many stops there were."""
    assert target.go(-1, lambda stop: False) is None
    return len(target.stops)


def plain(stop: Stop, position: int) -> Stop:
    """Without what differs from run to run."""
    return replace(stop, position=position, ticks=None)


@pytest.mark.parametrize("name", ARTEFACTS)
def test_stops_are_those_of_the_recorded_run(name: str) -> None:
    expected = recorded_stops(name)
    with on_runtime(name) as target:
        ran_through(target)
        found = list(target.stops)
    assert [stop.name for stop in found] == [stop.name for stop in expected]
    for at, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        mine, other = plain(ours, at), plain(theirs, at)
        assert [n.name for n in mine.nodes] == [n.name for n in other.nodes]
        assert replace(mine, nodes=()) == replace(other, nodes=())


@pytest.mark.parametrize("name", ARTEFACTS)
def test_values_are_those_of_the_recorded_run(name: str) -> None:
    """What each stop gives; and at each stop, everything that is still offered of those before."""
    runs, expected = recorded(name).runs, recorded_stops(name)
    values = [runs.device_values(stop.position) for stop in expected]
    compared = gone = 0
    with on_runtime(name) as target:
        position = target.go(-1, lambda stop: True)
        while position is not None:
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
                    there = [
                        (f, v) for f, v in zip(found, values[earlier], strict=True) if f is not None
                    ]
                    compared += 1
                    assert there and all(same(f, v) for f, v in there), (earlier, position)
            position = target.go(position, lambda stop: True)
    assert any(values) and (compared or len(expected) == 1)
    assert gone or len(expected) < 8


@pytest.mark.parametrize("name", ARTEFACTS)
def test_nodes_have_the_values_that_were_recorded(name: str) -> None:
    runs, expected = recorded(name).runs, recorded_stops(name)
    compared = 0
    with on_runtime(name) as target:
        for position, stop in enumerate(expected):
            target.reach(position)
            pairs = runs.pairs_at(stop.position)
            ours = {output: (p.node, p.element) for output, p in target.pairs_at(position).items()}
            theirs = {output: (p.node, p.element) for output, p in pairs.items()}
            # What a dump does not hold, numbers of the program, is there all the same.
            assert ours == theirs if runs.device_values(stop.position) else not theirs
            for pair in pairs.values():
                found = target.value_of(pair.node, position)
                wanted = runs.value_of(pair.node, stop.position)
                if pair.element is None:
                    found, wanted = [found], [wanted]
                assert len(found) == len(wanted) and all(map(same, found, wanted))
                compared += 1
    assert compared >= min(len(expected), 2)


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


@pytest.mark.parametrize("position", [20, 60, 89])
def test_every_value_of_the_method_is_what_was_recorded_or_gone(position: int) -> None:
    """By index; views that cost no instruction are what they are views of."""
    name = "transformer_portable"
    runs, expected = recorded(name).runs, recorded_stops(name)
    views = 0
    with on_runtime(name) as target:
        target.reach(position)
        nodes = target._prepared.nodes
        wanted = {
            index: value
            for stop in expected[: position + 1]
            for index, value in zip(
                nodes.outputs_of(stop.instruction or 0),
                runs.device_values(stop.position),
                strict=True,
            )
        }
        for index, source in nodes._views.items():
            if source in wanted:
                wanted[index], views = np.ravel(wanted[source]), views + 1
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


@pytest.mark.parametrize("name", ["cnn_xnnpack", "while_loop", "rewritten_state"])
def test_backwards_values_are_the_same(name: str) -> None:
    runs, expected = recorded(name).runs, recorded_stops(name)
    with on_runtime(name) as target:
        count = ran_through(target)
        order = np.random.default_rng(0).permutation(count)[:30]
        for position in map(int, order):
            target.reach(position)
            assert target.position == position
            theirs = runs.device_values(expected[position].position)
            assert not theirs or all(map(same, target.device_values(position), theirs))
        assert not target.differences and not target.take_news()
