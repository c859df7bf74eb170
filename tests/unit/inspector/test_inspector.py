"""The Inspector's methods, beside the frame that tests/parity compares cell by cell."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from etscope import Inspector
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.inspector.inspector_cli import main as inspector_cli
from tests.support.artifacts import artifacts
from tests.support.inspector.opening import open_artifact
from tests.support.views.page_reports import data_of


def test_get_op_list_groups_events_by_op_type() -> None:
    inspector = open_artifact("cnn_portable")

    ops = inspector.get_op_list("Execute")

    convolutions = ops["aten.convolution.default"]
    assert len(convolutions) == 6
    assert {event.name for event in convolutions} == {"native_call_convolution.out"}
    assert "OPERATOR_CALL" not in ops and "Method::execute" not in ops
    # permute_copy and addmm of a Linear share a handle: each event stands under both.
    assert {e.name for e in ops["aten.addmm.default"]} == {
        "native_call_permute_copy.out",
        "native_call_addmm.out",
    }
    with pytest.raises(MissingDataError, match="no event block 'Exec'"):
        inspector.get_op_list("Exec")
    delegating = open_artifact("cnn_xnnpack")
    shown, undelegated = (
        {
            id(event)
            for events in delegating.get_op_list("Execute", show).values()
            for event in events
        }
        for show in (True, False)
    )
    (block,) = [b for b in delegating.event_blocks if b.name == "Execute"]
    delegated = {id(event) for event in block if event.is_delegated_op}
    assert delegated and shown - undelegated == delegated


def test_get_exported_program() -> None:
    torch_export = pytest.importorskip("torch.export")
    inspector = open_artifact("cnn_portable")
    program = inspector.get_exported_program()
    assert isinstance(program, torch_export.ExportedProgram)
    with pytest.raises(MissingDataError, match="graph 'nothing'"):
        inspector.get_exported_program("nothing")
    with pytest.raises(MissingDataError, match="without an ETRecord"):
        Inspector(
            etdump_path=artifacts("cnn_portable").folder / "timing.etdp"
        ).get_exported_program()


def test_events_can_be_linked_to_another_graph() -> None:
    files = artifacts("cnn_portable")
    with pytest.raises(MissingDataError, match="graph 'nothing'"):
        open_artifact("cnn_portable", reference_graph_name="nothing")
    graphs = open_artifact("cnn_portable").op_graph_dict or {}
    edge = graphs["edge_dialect_exported_program/forward"]
    assert graphs["edge_dialect_graph_module"] is edge
    assert Inspector(etdump_path=files.folder / "timing.etdp").op_graph_dict is None


def test_a_delegate_metadata_parser_and_time_converter() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.set_chain_debug_handle(0, 4)
    writer.log_profiling_delegate("conv", 100, 300, metadata=b"NPU")
    inspector = Inspector(
        etdump_data=writer.finish(),
        delegate_metadata_parser=lambda listed: {"unit": listed[0].decode()},
        delegate_time_scale_converter=lambda name, time: time / (10 if name == "conv" else 1),
    )
    (event,) = inspector.event_blocks[0].events
    assert event.perf_data.raw == [20.0]
    assert event.raw_delegate_debug_metadatas == [b"NPU"]
    assert inspector.to_dataframe(include_delegate_debug_data=True)["unit"].tolist() == ["NPU"]
    bad = Inspector(
        etdump_data=writer.finish(),
        delegate_metadata_parser=lambda listed: 3,  # type: ignore[arg-type, return-value]
    )
    with pytest.raises(UsageError, match="Unexpected type for delegate_debug_metadata"):
        bad.to_dataframe(include_delegate_debug_data=True)


def test_the_printed_table_is_the_one_of_upstream() -> None:
    upstream = pytest.importorskip("executorch.devtools")
    files = artifacts("cnn_xnnpack")
    dump, record = str(files.folder / "timing.etdp"), str(files.etrecord)
    ours, theirs = io.StringIO(), io.StringIO()

    Inspector(etdump_path=dump, etrecord=record, target_time_scale="ns").print_data_tabular(ours)
    upstream.Inspector(
        etdump_path=dump,
        etrecord=record,
        target_time_scale=upstream.inspector.TimeScale.NS,
    ).print_data_tabular(theirs)

    # Upstream repeats the operator of a batch norm for each of its outputs (column 10), and has
    # NaN for some absent backends, None for others.
    def rows(text: str) -> list[list[str]]:
        return [
            [cell.strip().replace("nan", "") for i, cell in enumerate(line.split("│")) if i != 10]
            for line in text.splitlines()
            if line.startswith("│")
        ]

    assert rows(ours.getvalue()) == rows(theirs.getvalue())


def test_a_report_is_in_the_inspectors_scale_and_by_its_converter(tmp_path: Path) -> None:
    path, files = tmp_path / "report.html", artifacts("cnn_xnnpack")
    inspector = Inspector(
        files.etdump_timing,
        etrecord=files.etrecord,
        target_time_scale="us",
        delegate_time_scale_converter=lambda name, time: 7 * time,
    )
    inspector.report(path, title="mine")
    data = data_of(path)
    (run,) = data["runs"]
    assert (data["title"], run["unit"]) == ("mine", "us")
    frame = inspector.to_dataframe(include_units=False)
    of_runs_that_count = run["methods"][0]["events"]["values"]["raw"]
    for some, every in zip(of_runs_that_count, frame["raw"], strict=True):
        assert some and set(some) <= set(every)
    assert {file["role"] for file in run["files"]} == {"dump", "record"}
    content = artifacts("cnn_portable").etdump_timing.read_bytes()
    Inspector(etdump_data=content).report(path)  # a dump in memory has one, too
    (run,) = data_of(path)["runs"]
    assert run["files"][0]["bytes"] == len(content)
    assert any("unknown without the ETRecord" in note for note in run["notes"])


def test_the_seeds_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    files = artifacts("bundled")
    paths = {
        "etdump": files.etdump, "etrecord": files.etrecord, "debug_buffer": files.debug_buffer
    }  # fmt: skip
    inspector_cli(
        [
            *(f"--{name}_path={path}" for name, path in paths.items()),
            *("--source_time_scale=ns", "--target_time_scale=us", "--tsv_path=out.tsv"),
            "--compare_results",
        ]
    )
    out = capsys.readouterr().out
    assert "p50 (us)" in out and "native_call_convolution.out" in out
    assert out.count("cosine_similarity") == 4
    frame = pd.read_csv(tmp_path / "out.tsv", sep="\t", index_col=0)
    assert "OPERATOR_CALL" not in set(frame["event_name"])
    assert list(frame.columns)[:3] == ["event_block_name", "event_name", "p10 (us)"]
    assert "raw" not in frame.columns
