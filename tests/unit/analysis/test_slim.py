"""Slimmed records: small, and with the same graphs and maps."""

from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.info.etrecord_info import slim_etrecord
from etscope.errors import FormatError, UsageError
from etscope.etrecord import parse_etrecord
from etscope.formats.etrecord.reader import PROGRAM_BUFFER, SLIMMED, RecordFile, read_etrecord
from etscope.inspector import Inspector
from etscope.model.exported_graph import graph_from_record
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import (
    EDGE,
    OLD_RELEASES,
    changed_program,
    members_of,
    old_record,
    record_bytes,
    zip_bytes,
)

RECORDS = ["cnn_xnnpack", "cnn_xnnpack_lowered", "two_methods", "cond", "bundled", "dynamic_shape"]


def slimmed(source: Path | bytes) -> RecordFile:
    stream = io.BytesIO()
    slim_etrecord(source, stream)
    return read_etrecord(stream.getvalue())


def assert_same_attribution(slim: RecordFile, full: RecordFile) -> None:
    assert slim.graph_names == full.graph_names
    for name in full.graph_names:
        assert graph_from_record(slim, name) == graph_from_record(full, name)
    for what in (
        *("debug_handle_map", "handle_lists", "delegate_map", "instruction_id_to_num_outs_map"),
        *("export_graph_ids", "fingerprints"),
    ):
        assert getattr(slim, what) == getattr(full, what), what
    assert slim.members.keys() == (full.members.keys() - {PROGRAM_BUFFER}) | {SLIMMED}
    for member in ("reference_outputs", "representative_inputs"):
        if member in full.members:
            assert bytes(slim.archive.read(member)) == bytes(full.archive.read(member))


@pytest.mark.parametrize("name", RECORDS)
def test_attribution_stays_and_weights_go(name: str) -> None:
    path = artifacts(name).etrecord
    full, slim = read_etrecord(path), slimmed(path)
    assert_same_attribution(slim, full)
    assert all(slim.state_dict(graph) == {} for graph in slim.graph_names)
    assert len(slim.archive.buffer) < len(full.archive.buffer) / 4


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_records_of_older_releases(release: str) -> None:
    assert_same_attribution(slimmed(old_record(release)), read_etrecord(old_record(release)))


def with_large_delegate(source: Path) -> bytes:
    def edit(program: dict[str, Any]) -> None:
        call = program["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"]
        module = json.loads(call["as_string"])
        module["processed_bytes"] = base64.b64encode(os.urandom(500_000)).decode()
        module["original_state_dict"] = base64.b64encode(os.urandom(400_001)).decode()
        call["as_string"] = json.dumps(module)

    return changed_program(source, edit)


def test_the_size_of_a_blob_is_remembered(tmp_path: Path) -> None:
    full = with_large_delegate(artifacts("cnn_xnnpack_lowered").etrecord)
    slim = slimmed(full)
    assert len(slim.archive.buffer) < 30_000
    assert_same_attribution(slim, read_etrecord(full))
    (call,) = (n for n in graph_from_record(slim, EDGE).nodes if n.delegate is not None)
    assert call.delegate.processed_bytes == 500_000
    twice = slimmed(bytes(slim.archive.buffer))
    assert bytes(twice.archive.buffer) == bytes(slim.archive.buffer)
    # It can be opened and saved again.
    (tmp_path / "slim").write_bytes(bytes(slim.archive.buffer))
    parse_etrecord(tmp_path / "slim").save(tmp_path / "again")
    again = read_etrecord(tmp_path / "again")
    assert graph_from_record(again, EDGE) == graph_from_record(slim, EDGE)


def test_the_result_says_what_was_dropped(tmp_path: Path) -> None:
    path = artifacts("cnn_xnnpack").etrecord
    result = slim_etrecord(path, tmp_path / "slim.etrecord")
    assert result.before == path.stat().st_size
    assert result.after == (tmp_path / "slim.etrecord").stat().st_size
    table = result.table()
    rows = list(table.rows())
    assert rows[0] == ("exported_program_state_dict", rows[0][1], 0) and rows[0][1] > 40_000
    assert all(after < before for _, before, after in rows)
    assert "debug_handle_map" not in table.values["member"]


def test_a_record_can_be_slimmed_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "model.etrecord"
    full = members_of(artifacts("cnn_xnnpack").etrecord)  # type: ignore[arg-type]
    path.write_bytes(zip_bytes(full))
    before = graph_from_record(read_etrecord(path), EDGE)
    slim_etrecord(path, path)
    assert graph_from_record(read_etrecord(path), EDGE) == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.etrecord"]


def test_the_program_is_dropped_and_its_fingerprint_stays() -> None:
    prints = {"version": 1, "program_sha256": "ab", "program_bytes": 4, "methods": {}}
    full = record_bytes(
        etscope__program_buffer_constants=b"blob", etscope__fingerprints_constants=prints
    )
    slim = slimmed(full)
    assert slim.program_buffer() is None
    assert slim.fingerprints is not None and slim.fingerprints.program_bytes == 4


def test_what_is_no_record_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        slim_etrecord(b"no zip", tmp_path / "out")
    damaged = bytearray(record_bytes())
    damaged[damaged.index(b"graph_module")] ^= 1
    with pytest.raises(FormatError, match="CRC"):
        slim_etrecord(bytes(damaged), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_cannot_be_both() -> None:
    stream = io.BytesIO(record_bytes())
    with pytest.raises(UsageError):
        slim_etrecord(stream, stream)


@pytest.mark.parametrize("name", ["cnn_xnnpack_lowered", "transformer", "forward_and_extra"])
def test_the_inspector_shows_the_same_table(name: str, tmp_path: Path) -> None:
    made, path = artifacts(name), tmp_path / "slim"
    slim_etrecord(made.etrecord, path)
    tables = [
        Inspector(etdump_path=made.etdump, etrecord=one, debug_buffer_path=made.debug_buffer)
        .to_dataframe()
        .drop(columns="debug_data")
        for one in (made.etrecord, path)
    ]
    assert tables[0]["stack_traces"].map(bool).any() and tables[0]["op_types"].map(bool).any()
    assert tables[0].to_json() == tables[1].to_json()


@pytest.mark.nightly
def test_a_record_of_a_large_model_becomes_small(tmp_path: Path) -> None:
    path = artifacts("bert_base_xnnpack").etrecord
    result = slim_etrecord(path, tmp_path / "slim")
    assert result.before > 800_000_000 and result.after < 5_000_000
    assert_same_attribution(read_etrecord(tmp_path / "slim"), read_etrecord(path))
