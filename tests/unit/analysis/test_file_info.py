"""What is told of each kind of file, against what is known of it from elsewhere."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.info import file_info
from etscope.analysis.info.etrecord_info import slim_etrecord, written_by
from etscope.errors import MissingFileError
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte_schema import (
    DelegateCall,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    MoveCall,
)
from etscope.model.report import Report
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import method, pte_file, tensor


def fact(report: Report, section: str = "file") -> dict[str, Any]:
    found = report.section(section)
    assert found.is_facts
    return {name: found.table.values[name][0] for name in found.table.names}


def rows(report: Report, section: str) -> list[dict[str, Any]]:
    found = report.section(section)
    assert not found.is_facts
    return [dict(zip(found.table.names, row, strict=True)) for row in found.table.rows()]


# -- ETDump


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "bundled", "large_20k"])
def test_a_dump_is_counted(name: str) -> None:
    files = artifacts(name)
    report = file_info(files.etdump)
    assert report.about == {"file": str(files.etdump), "kind": "etdump"}
    facts = fact(report)
    assert facts["size"] == files.etdump.stat().st_size
    assert facts["runs"] == files.meta["dump_runs"]
    assert facts["events"] == files.meta["dump_events"]
    parts = facts["timed_events"] + facts["logged_values"] + facts["allocations"]
    assert parts == facts["events"]
    blocks = rows(report, "blocks")
    assert sum(block["runs"] for block in blocks) == facts["runs"]


def test_bundled_runs_are_told_apart() -> None:
    blocks = rows(file_info(artifacts("bundled").etdump), "blocks")
    inputs = [block["bundled_input"] for block in blocks if block["block"] == "Execute"]
    assert inputs == [0, 1, 2, 3]


def test_delegates_of_a_dump() -> None:
    blocks = rows(file_info(artifacts("cnn_xnnpack").etdump), "blocks")
    execute = next(block for block in blocks if block["block"] == "Execute")
    assert (execute["delegate_calls"], execute["delegated"]) == (1, 14)
    assert execute["identifiers"] == "texts"


def test_allocations_of_a_dump() -> None:
    report = file_info(artifacts("allocations").etdump)
    found = rows(report, "allocations")
    assert {row["allocator"] for row in found} == {"MethodAllocator", "TemporaryAllocator"}
    assert sum(row["count"] for row in found) == fact(report)["allocations"]


def test_logged_values_of_a_dump() -> None:
    files = artifacts("int_outputs")
    report = file_info(files.etdump)
    kinds = {row["type"]: row for row in rows(report, "values")}
    assert {"tensor of int64", "tensor of float32", "tensor of bool", "int"} <= set(kinds)
    assert kinds["int"]["bytes"] is None
    needed = fact(report)["debug_buffer_needed"]
    assert 0 < needed <= files.debug_buffer.stat().st_size  # type: ignore[union-attr]


def test_an_empty_dump(tmp_path: Path) -> None:
    path = tmp_path / "empty.etdp"
    ETDumpWriter().save(path)
    report = file_info(path)
    assert fact(report)["runs"] == 0
    assert [section.name for section in report.sections] == ["file"]


# -- ETRecord


def test_a_record_of_executorch() -> None:
    files = artifacts("cnn_xnnpack")
    report = file_info(files.etrecord)
    facts = fact(report)
    assert report.about["kind"] == "etrecord"
    assert facts["size"] == files.etrecord.stat().st_size
    assert facts["written_by"] == "ExecuTorch 1.3 or later"
    assert facts["methods"] == ["forward"]
    assert (facts["holds_program"], facts["slimmed"]) == (False, False)
    assert facts["program_sha256"] is None
    with zipfile.ZipFile(files.etrecord) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    assert {row["member"]: row["size"] for row in rows(report, "members")} == sizes
    graphs = {row["graph"]: row for row in rows(report, "graphs")}
    assert set(graphs) == {"exported", "edge/forward"}
    assert graphs["edge/forward"]["dialect"] == "EDGE"
    assert graphs["edge/forward"]["calls"] == 24
    (delegate,) = rows(report, "delegates")
    assert (delegate["backend"], delegate["calls"]) == ("XnnpackBackend", 1)
    # XNNPACK gives no identifiers: the program's data say which operator each event is of.
    assert delegate["identifiers"] == 0
    labels = {one.name: one.label for one in report.section("delegates").table.columns}
    assert labels["identifiers"] == "delegate debug identifiers"


def test_a_slim_and_a_lowered_record(tmp_path: Path) -> None:
    slim_etrecord(artifacts("cnn_xnnpack").etrecord, tmp_path / "slim.etrecord")
    facts = fact(file_info(tmp_path / "slim.etrecord"))
    assert (facts["slimmed"], facts["written_by"]) == (True, "ExecuTorch 1.3 or later")
    (row,) = rows(file_info(artifacts("cnn_xnnpack_lowered").etrecord), "graphs")
    assert (row["nodes"], row["calls"], row["delegates"]) == (4, 25, 1)


EDGE_JSON = b'{"graph_module": {"signature": {}, "graph": {"inputs": [], "nodes": [], "outputs": [], "tensor_values": {}}}, "schema_version": {"major": 5, "minor": %d}}'  # noqa: E501
OLD_EDGE = "edge_dialect_exported_program"


@pytest.mark.parametrize(
    ("members", "minor", "expected"),
    [
        ((OLD_EDGE, OLD_EDGE + "_state_dict"), 0, "ExecuTorch 0.3 or earlier"),
        ((OLD_EDGE, OLD_EDGE + "_constants"), 3, "ExecuTorch 0.4 to 0.7"),
        ((OLD_EDGE, OLD_EDGE + "_constants", "representative_inputs"), 3, "ExecuTorch 0.7"),
        ((OLD_EDGE, "instruction_id_to_num_outs_map"), 3, "ExecuTorch 1.0 or 1.1"),
        ((OLD_EDGE + "/forward", "instruction_id_to_num_outs_map"), 3, "ExecuTorch 1.2"),
        ((OLD_EDGE + "/forward", "export_graph_id"), 4, "ExecuTorch 1.3 or later"),
        ((OLD_EDGE + "/forward", "etscope/program_buffer_constants"), 4, "etscope"),
        ((OLD_EDGE + "/forward", "etscope/slimmed_constants"), 4, "ExecuTorch 1.3 or later"),
    ],
)
def test_the_writer_is_told_by_the_layout(
    tmp_path: Path, members: tuple[str, ...], minor: int, expected: str
) -> None:
    path = tmp_path / "record"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ETRECORD_V0", "")
        for member in members:
            is_graph = member in (OLD_EDGE, OLD_EDGE + "/forward")
            archive.writestr(member, EDGE_JSON % minor if is_graph else b'{"cuts": {}}')
    assert written_by(read_etrecord(path)) == expected


# -- programs


def test_a_program() -> None:
    files = artifacts("cnn_portable")
    report = file_info(files.pte)
    facts = fact(report)
    assert report.about["kind"] == "pte"
    assert facts["size"] == files.pte.stat().st_size
    assert facts["sha256"] == hashlib.sha256(files.pte.read_bytes()).hexdigest()
    (found,) = rows(report, "methods")
    assert (found["instructions"], found["kernels"]) == (24, 24)
    operators = {row["operator"]: row["calls"] for row in rows(report, "operators")}
    assert operators["aten::convolution.out"] == 6
    assert sum(operators.values()) == 24
    assert [(row["value"], row["type"]) for row in rows(report, "signature")] == [
        ("input 0", "float32[1, 3, 16, 16]"),
        ("output 0", "float32[1, 10]"),
    ]
    memory = {row["memory"]: row["size"] for row in rows(report, "memory")}
    assert memory["weights"] == facts["weights"]
    assert found["planned"] == memory["planned memory 1 (cpu)"] == facts["largest_plan"]


def test_instructions_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "all.pte"
    calls = [
        *(KernelCall(0, (0, 1, 1)), KernelCall(0, (1, 2, 2)), DelegateCall(0, (0, 1))),
        *(DelegateCall(0, (1, 2)), MoveCall(0, 1), JumpFalseCall(0, 2), FreeCall(2)),
    ]
    made = method(
        [tensor(2, at=(1, 16 * number)) for number in range(3)],
        calls,
        inputs=(0,),
        outputs=(2,),
        operators=("aten::relu.out",),
        delegates=(("SomeBackend", 1, 0),),
        buffer_sizes=(0, 64),
    )
    path.write_bytes(pte_file(made, segments=(b"blobblob",)))
    report = file_info(path)
    (found,) = rows(report, "methods")
    kinds = ("kernels", "delegate_calls", "moves", "jumps", "frees")
    assert [found[kind] for kind in kinds] == [2, 2, 1, 1, 1]
    (delegate,) = rows(report, "delegates")
    assert (delegate["backend"], delegate["bytes"], delegate["calls"]) == ("SomeBackend", 8, 2)


def test_weights_that_methods_share_count_once() -> None:
    report = file_info(artifacts("two_methods").pte)
    memory = rows(report, "memory")
    per_method = [row["size"] for row in memory if row["memory"] == "weights"]
    assert max(per_method) <= fact(report)["weights"] <= sum(per_method)
    assert fact(report)["methods"] == ["decode", "encode"]


def test_a_bundled_program() -> None:
    files = artifacts("bundled")
    report = file_info(files.bpte)
    assert report.about["kind"] == "bpte"
    cases = rows(report, "cases")
    assert [case["case"] for case in cases] == [0, 1, 2, 3]
    assert cases[0]["inputs"] == ["float32[1, 3, 16, 16]"]
    assert cases[0]["expected_outputs"] == ["float32[1, 10]"]
    alone = file_info(files.pte)
    assert fact(report, "program")["sha256"] == fact(alone)["sha256"]
    assert rows(report, "program_operators") == rows(alone, "operators")


# -- others


def test_a_missing_file() -> None:
    with pytest.raises(MissingFileError, match="ExecuTorch file not found: /nowhere"):
        file_info("/nowhere")
