"""Upstream's Inspector on the files that our writer makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etscope.formats.etdump.writer import ETDumpWriter

pytest.importorskip("executorch.devtools")
torch = pytest.importorskip("torch")

from executorch.devtools import Inspector  # noqa: E402


def test_upstreams_inspector_opens_a_written_profile(tmp_path: Path) -> None:
    writer = ETDumpWriter()
    for run in range(3):
        writer.create_event_block("Execute")
        writer.set_chain_debug_handle(0, 4)
        writer.log_profiling("native_call_add.out", 1_000_000, 3_000_000 + run)
        writer.log_profiling("OPERATOR_CALL", 1_000_000, 4_000_000)
        writer.log_profiling_delegate("conv #1", 5_000_000, 6_000_000, chain_index=0)
        writer.log_profiling_delegate(7, 6_000_000, 8_000_000, b"\x00\xff")
        writer.set_chain_debug_handle(-1, 0)
        writer.log_profiling("Method::execute", 0, 9_000_000)
    path = tmp_path / "profile.etdp"
    writer.save(path)

    (block,) = Inspector(etdump_path=str(path)).event_blocks

    assert block.name == "Execute"
    events = {event.name: event for event in block.events}
    names = ["native_call_add.out", "OPERATOR_CALL", "conv #1", "7", "Method::execute"]
    assert list(events) == names
    assert events["native_call_add.out"].perf_data.raw == [2.0, 2.000001, 2.000002]
    assert events["native_call_add.out"]._instruction_id == 4
    assert events["conv #1"].delegate_debug_identifier == "conv #1"
    assert events["7"].delegate_debug_identifier == 7
    assert events["7"]._delegate_debug_metadatas == [b"\x00\xff"] * 3
    assert not events["Method::execute"].is_delegated_op

    # Blocks that are repeated.
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.log_profiling("first", 0, 1_000_000)
    writer.log_profiling("second", 0, 2_000_000)
    writer.repeat_block([[0, 0], [0, 0]], [[3_000_000, 4_000_000], [5_000_000, 6_000_000]])
    writer.save(path)
    (block,) = Inspector(etdump_path=str(path)).event_blocks

    assert [event.perf_data.raw for event in block.events] == [[1, 3, 5], [2, 4, 6]]


def test_upstreams_inspector_reads_written_debug_data(tmp_path: Path) -> None:
    floats = np.arange(6, dtype=np.float32).reshape(2, 3)
    longs = torch.tensor([[1, -2], [3, 4]])
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.set_chain_debug_handle(0, 1)
    writer.log_profiling("native_call_split.out", 0, 1)
    writer.log_evalue([floats, longs])
    writer.set_chain_debug_handle(0, 2)
    writer.log_profiling("native_call_item.out", 0, 1)
    writer.log_evalue(2.5)
    writer.log_intermediate_output_delegate("conv #1", longs)
    writer.set_chain_debug_handle(-1, 0)
    writer.log_evalue(floats[0], output=True)
    path, debug_path = tmp_path / "debug.etdp", tmp_path / "debug.bin"
    writer.save(path, debug_path)

    inspector = Inspector(etdump_path=str(path), debug_buffer_path=str(debug_path))

    (block,) = inspector.event_blocks
    events = {event.name: event for event in block.events}
    first, second = events["native_call_split.out"].debug_data[0]
    assert torch.equal(first, torch.from_numpy(floats))
    assert torch.equal(second, longs)
    assert events["native_call_item.out"].debug_data == [2.5]
    assert torch.equal(events["conv #1"].debug_data[0], longs)
    (output,) = block.run_output
    assert torch.equal(output, torch.tensor([0.0, 1.0, 2.0]))
