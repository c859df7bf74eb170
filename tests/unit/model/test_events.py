"""Events and blocks behave as the dataclasses they are, however late they load."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest

from etscope import Event, EventBlock, Inspector, PerfData
from tests.support.artifacts import artifacts


def blocks(name: str = "cnn_xnnpack") -> list[EventBlock]:
    files = artifacts(name)
    return Inspector(
        etdump_path=files.etdump, etrecord=files.etrecord, debug_buffer_path=files.debug_buffer
    ).event_blocks


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
@pytest.mark.parametrize("name", ["cnn_xnnpack", "nan_output"])
def test_blocks_and_events_can_be_copied_and_pickled(name, again) -> None:  # type: ignore[no-untyped-def]
    (block,) = (block for block in blocks(name) if block.name == "Execute")
    twin = again(block)
    assert twin == block
    assert twin.events[-1].start_time == block.events[-1].start_time
    assert len(twin.run_outputs) == len(block.run_outputs) > 1
    assert np.array_equal(twin.run_outputs[1][0], block.run_outputs[1][0], equal_nan=True)
    assert again(block.events[0]) == block.events[0]


def test_the_same_files_give_equal_blocks() -> None:
    first, second = blocks(), blocks()
    assert first == second
    second[-1].events[-1].debug_data = [*second[-1].events[-1].debug_data, 1]
    assert first != second


def test_an_event_differs_from_one_with_other_tensors() -> None:
    tensors = (np.zeros(2), np.zeros(3), np.zeros(2, np.float32), np.ones(2), np.full(2, math.nan))
    events = [Event("e"), *(Event("e", debug_data=[one]) for one in tensors)]
    for position, event in enumerate(events):
        assert [other == event for other in events] == [i == position for i in range(len(events))]


def test_parts_can_be_replaced() -> None:
    (block,) = (block for block in blocks() if block.name == "Execute")
    event = dataclasses.replace(block.events[0], name="other")
    smaller = dataclasses.replace(block, events=[event])
    assert event.name == "other"
    assert event.perf_data == block.events[0].perf_data
    assert [event.name for event in smaller] == ["other"]
    assert smaller.run_output is block.run_output


def test_an_attribute_error_of_a_metadata_parser_is_told() -> None:
    inspector = Inspector(
        etdump_path=artifacts("cnn_xnnpack").etdump_timing,
        delegate_metadata_parser=lambda metadata: metadata.no_such_thing,
    )
    event = next(e for block in inspector.event_blocks for e in block if e.is_delegated_op)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = event.delegate_debug_metadatas
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = event.nothing_such  # type: ignore[attr-defined]


def test_statistics_of_no_samples_are_nan() -> None:
    empty = PerfData([])
    for name in ("p10", "p50", "p90", "avg", "min", "max", "std"):
        assert math.isnan(getattr(empty, name))
    assert (empty.sum, empty.count, empty.raw) == (0.0, 0, [])
    assert Event("e", perf_data=empty).asdict()["raw"] == [[]]
