"""etscope's Inspector against ExecuTorch's own, cell by cell, on every artefact it can open.

Where the two are meant to differ, the difference is taken out here by name;
`docs/appendix/differences.md` tells why, and `tests/unit/inspector/test_differences.py` tests what
etscope does instead.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import etscope
from tests.support.artifacts import artifacts

upstream = pytest.importorskip("executorch.devtools")

# What ExecuTorch's Inspector opens with its record and debug buffer.
WITH_RECORD = (
    "cnn_portable",
    "cnn_xnnpack",
    "cnn_xnnpack_lowered",
    "cnn_xnnpack_int8",
    "transformer",
    pytest.param("transformer_portable", marks=pytest.mark.nightly),  # as the two around it
    "bf16_fp16",
    "dynamic_shape",
    "bundled",
    "program_outputs",
    "method_only",
    "cond",
    "record_variants",
    "empty_blocks",
    pytest.param("wide", marks=pytest.mark.nightly),  # its export takes minutes
)
WITHOUT_RECORD = (
    *("cnn_portable", "cnn_xnnpack", "bundled", "cond"),
    *("forward_and_extra", "two_methods", "channels_last"),
    pytest.param("large_20k", marks=pytest.mark.nightly),
)

ATTRIBUTION = ("op_types", "stack_traces", "module_hierarchy")


def _inspectors(name: str, *, record: bool, debug: bool) -> tuple[Any, Any]:
    files = artifacts(name)
    arguments = {
        "etdump_path": str(files.etdump),
        "etrecord": str(files.etrecord) if record else None,
        "debug_buffer_path": str(files.debug_buffer) if debug and files.debug_buffer else None,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return etscope.Inspector(**arguments), upstream.Inspector(**arguments)


def _same(ours: Any, theirs: Any) -> bool:
    """Equal, floats to the 12th digit, tensors by value and dtype, NaN and None as one."""
    import torch

    if isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if _missing(theirs) or _missing(ours):
        return _missing(theirs) and _missing(ours)
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(_same(ours[k], theirs[k]) for k in theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _compare(ours: Any, theirs: Any, *, skip: tuple[str, ...] = ()) -> None:
    our_frame, their_frame = ours.to_dataframe(), theirs.to_dataframe()
    assert list(our_frame.columns) == list(their_frame.columns)
    assert list(our_frame["event_name"]) == list(their_frame["event_name"])
    our_events, their_events = (
        [event for block in inspector.event_blocks for event in block.events]
        for inspector in (ours, theirs)
    )
    for column in their_frame.columns:
        if column in skip:
            continue
        if their_frame[column].dtype != object:  # None for NaN where a block has no times
            assert our_frame[column].dtype == their_frame[column].dtype, column
        for row, (mine, other) in enumerate(zip(our_events, their_events, strict=True)):
            if column in ATTRIBUTION and _differs_on_purpose(mine, other):
                continue
            cells = our_frame[column][row], their_frame[column][row]
            assert _same(*cells), (column, row, mine.name, *cells)
            if column in ("delegate_backend_name", "delegate_debug_identifier"):
                assert (cells[0] is None) == (cells[1] is None), (column, row, mine.name, *cells)


def _differs_on_purpose(ours: Any, theirs: Any) -> bool:
    """Events of delegates of which etscope says more, or says a thing once."""
    if theirs.name != "DELEGATE_CALL":
        return False
    if not theirs.op_types:  # the record holds the delegate's own graph, which upstream ignores
        return bool(ours.op_types)
    repeated = len(set(theirs.debug_handles)) < len(theirs.debug_handles)
    if repeated:  # a handle is there once for each output; upstream repeats its operators
        assert set(ours.op_types) == set(theirs.op_types)
        assert ours.stack_traces == theirs.stack_traces
        assert ours.module_hierarchy == theirs.module_hierarchy
    return repeated


@pytest.mark.parametrize("name", WITH_RECORD)
def test_the_frame_with_record_and_debug_buffer(name: str) -> None:
    ours, theirs = _inspectors(name, record=True, debug=True)

    _compare(ours, theirs)


@pytest.mark.parametrize("name", WITHOUT_RECORD)
def test_the_frame_of_the_dump_alone(name: str) -> None:
    ours, theirs = _inspectors(name, record=False, debug=False)

    _compare(ours, theirs, skip=("debug_data",))


def test_the_command_compares_with_the_only_reference_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    files = artifacts("cnn_portable")
    run_output = etscope.Inspector(
        etdump_path=files.etdump, debug_buffer_path=files.debug_buffer
    ).event_blocks[-1].run_output  # fmt: skip
    record = upstream.parse_etrecord(str(files.etrecord))
    record.update_reference_outputs([[value + 0.25 for value in run_output]])
    record.save(str(tmp_path / "model.etrecord"))
    words = [
        *("--etdump_path", str(files.etdump), "--etrecord_path", str(tmp_path / "model.etrecord")),
        *("--debug_buffer_path", str(files.debug_buffer), "--compare_results"),
    ]
    pictures = {}
    for package in ("executorch.devtools", "etscope"):
        folder = tmp_path / package
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["inspector_cli", *words])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert not import_module(f"{package}.inspector.inspector_cli").main()
        pictures[package] = sorted(path.name for path in folder.iterdir())

    assert pictures["etscope"] == pictures["executorch.devtools"]
    assert len(pictures["etscope"]) == 3
    assert capsys.readouterr().out.count("mse\n0          0.0625") == 1


@pytest.mark.parametrize("package", ["executorch.devtools", "etscope"])
def test_the_content_of_a_logged_value(package: str) -> None:
    schema = import_module(f"{package}.etdump.schema_flatcc")
    inflated = import_module(f"{package}.inspector._inspector_utils").inflate_runtime_output
    empty = dict.fromkeys(one.name for one in fields(schema.Value))
    for kind, content in {"Int": 3, "Bool": False, "Float": 0.5, "Double": 0.25}.items():
        given = {**empty, "val": kind, f"{kind.lower()}_value": getattr(schema, kind)(content)}
        assert inflated(schema.Value(**given), None) == content
        with pytest.raises(ValueError):
            inflated(schema.Value(**empty | {"val": kind}), None)
    assert inflated(schema.Value(**empty | {"val": "Null"}), None) is None
