"""More of what upstream's Inspector leaves out or rounds away; see docs/differences.md."""

from __future__ import annotations

import numpy as np
import pytest

from etscope import Inspector, compare_results
from tests.support.artifacts import artifacts


def open_timing(name: str) -> Inspector:
    files = artifacts(name)
    return Inspector(etdump_path=files.folder / "timing.etdp", etrecord=files.etrecord)


def test_framework_events_belong_to_no_operator() -> None:
    inspector = open_timing("cnn_portable")

    framework = [
        event
        for block in inspector.event_blocks
        for event in block.events
        if event.name in ("Method::execute", "Method::init", "Program::load_method")
    ]
    assert len(framework) == 3
    assert [(event.op_types, event.debug_handles) for event in framework] == [([], None)] * 3


def test_the_list_of_operators_is_not_empty() -> None:
    inspector = open_timing("cnn_portable")

    found = inspector.get_op_list("Execute")
    assert "aten.convolution.default" in found
    events = found["aten.convolution.default"]
    assert events
    assert all("aten.convolution.default" in event.op_types for event in events)


def test_small_errors_are_not_rounded_away(capsys: pytest.CaptureFixture[str]) -> None:
    reference, run = np.zeros(4), np.full(4, 0.001)

    results = compare_results([reference], [run], metrics=["mse"])
    assert results["mse"] == pytest.approx([1e-6])
    capsys.readouterr()
