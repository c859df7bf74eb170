"""The reader of ETRecord files: names of graphs, maps, what is absent, other members."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.errors import FormatError, MissingDataError, MissingFileError
from etscope.etrecord import parse_etrecord
from etscope.formats.etrecord.reader import SIBLINGS, DelegateEntry, read_etrecord
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import (
    EDGE,
    OLD_RELEASES,
    members_of,
    node,
    old_record,
    program,
    record_bytes,
    zip_bytes,
)

KIND = "edge_dialect_exported_program"


def test_a_record_is_read_from_a_path_bytes_and_a_stream(tmp_path: Path) -> None:
    data = record_bytes()
    path = tmp_path / "small.etrecord"
    path.write_bytes(data)
    assert read_etrecord(path).path == str(path)
    for source in (str(path), data, memoryview(data), io.BytesIO(data)):
        assert read_etrecord(source).graph_names == (EDGE,)


def test_graphs_are_named_by_kind_and_method() -> None:
    record = read_etrecord(artifacts("forward_and_extra").etrecord)
    assert record.graph_names[0] == "exported_program"
    assert set(record.edge_methods) == {"forward", "extra"}
    assert set(record.graph_names[1:]) == {f"{KIND}/{method}" for method in record.edge_methods}
    with pytest.raises(MissingDataError, match=f"not have a graph 'nothing'.*\n.*{EDGE}"):
        record.program_json("nothing")
    # Extra graphs have the names that the user gave.
    record = read_etrecord(artifacts("record_variants").extra("extra_modules.bin"))
    assert record.graph_names[-2:] == ("aten_dialect/forward", "second_edge/forward")


def test_a_single_method_has_its_real_name() -> None:
    record = read_etrecord(record_bytes(debug_handle_map={"encode": {"0": 1}}))
    assert record.edge_methods == ("encode",)
    assert record.graph_names == (f"{KIND}/encode",)
    assert record.program_json(record.graph_names[0])["verifiers"] == ["EDGE"]
    # What ends like a sibling is a graph when it has siblings.
    graph = program(node("relu"))
    name = f"{KIND}/my_constants"
    record = read_etrecord(record_bytes(**{name: graph, f"{name}_state_dict": b""}))
    assert set(record.edge_methods) == {"forward", "my_constants"}
    assert read_etrecord(record_bytes(other_constants=b"")).graph_names == (EDGE,)


def test_maps_have_whole_numbers_for_keys() -> None:
    call = {"name": "B", "delegate_map": {"1": [1, 2], "conv": [3]}}
    record = read_etrecord(
        record_bytes(
            debug_handle_map={"forward": {"0": 7, "3": [1, 2, 2]}},
            delegate_map={"forward": {"3": call}},
            instruction_id_to_num_outs_map={"forward": {"3": 2}},
            export_graph_id=b"140001777327888",
        )
    )
    assert record.debug_handle_map == {"forward": {0: (7,), 3: (1, 2, 2)}}
    assert record.handle_lists == {"forward": {3}}
    entry = DelegateEntry("B", {"1": (1, 2), "conv": (3,)})
    assert record.delegate_map == {"forward": {3: entry}}
    assert record.instruction_id_to_num_outs_map == {"forward": {3: 2}}
    assert record.export_graph_id == 140001777327888
    assert record.export_graph_ids == {"exported_program": 140001777327888}


def test_what_old_records_lack_is_none() -> None:
    record = read_etrecord(zip_bytes({"ETRECORD_V0": b""}))
    assert record.graph_names == record.edge_methods == ()
    assert record.handle_lists == record.export_graph_ids == {}
    for name in ("debug_handle_map", "delegate_map", "instruction_id_to_num_outs_map"):
        assert getattr(record, name) is None
    assert record.export_graph_id is record.fingerprints is record.program_buffer() is None
    assert record.reference_outputs() is record.representative_inputs() is None


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_records_of_older_releases(release: str) -> None:
    record = read_etrecord(old_record(release))
    assert record.edge_methods == ("forward",)
    assert (record.instruction_id_to_num_outs_map is None) == (release < "1")
    assert set(record.debug_handle_map or {}) == {"forward"}
    outputs, inputs = record.reference_outputs(), record.representative_inputs()
    assert outputs is not None
    np.testing.assert_allclose(outputs["forward"][0][0].sum(-1), np.ones((2, 2)), rtol=1e-6)
    assert outputs["forward"][0][0].dtype == np.float32
    assert (inputs is None) == (release == "0.4.0")
    assert inputs is None or inputs[0].shape == (2, 2, 8)


def test_weights_are_arrays_under_their_names() -> None:
    record = read_etrecord(artifacts("cnn_portable").etrecord)
    weights = record.state_dict("exported_program")
    assert weights and all(isinstance(array, np.ndarray) for array in weights.values())
    assert record.constants("exported_program") == {}


@pytest.mark.parametrize("lost", ["_state_dict", "_constants"])
def test_a_graph_that_lost_its_weights_is_not_taken_for_whole(lost: str) -> None:
    record = read_etrecord(record_bytes(**{EDGE + lost: None}))
    assert record.program_json(EDGE)["dialect"] == ""
    read = {"_state_dict": record.state_dict, "_constants": record.constants}
    with pytest.raises(FormatError, match=f"lost its member .*{lost}"):
        read[lost](EDGE)
    # Old releases wrote no siblings at all.
    record = read_etrecord(record_bytes(**{EDGE + suffix: None for suffix in SIBLINGS}))
    assert record.program_json(EDGE)["dialect"] == ""
    assert record.state_dict(EDGE) == {}


def test_what_backends_said_and_unknown_members_are_kept(tmp_path: Path) -> None:
    """`delegate_info` is that of pytorch/executorch#21379."""
    said = b'{"forward/lowered_module_0": {"ops": ["conv"], "unit": "NPU"}, "forward/l_1": "test"}'
    later = b"\0 no JSON"
    members = members_of(record_bytes()) | {"delegate_info": said, "a_later_member": later}
    path = tmp_path / "later.etrecord"
    path.write_bytes(zip_bytes(members))
    record = read_etrecord(path)
    assert record.graph_names == (EDGE,)
    assert record.unknown_members == ("a_later_member",)
    assert record.delegate_info == {
        "forward/lowered_module_0": {"ops": '["conv"]', "unit": "NPU"},
        "forward/l_1": {"": "test"},
    }
    sections = {section.name: section for section in etrecord_sections(record)}
    assert list(sections["delegate_info"].table.rows())[1][1:] == ("unit", "NPU")
    parse_etrecord(path).save(tmp_path / "again.etrecord")
    assert (
        members.items()
        >= {
            name: data
            for name, data in members_of(tmp_path / "again.etrecord").items()
            if name in ("delegate_info", "a_later_member")
        }.items()
    )
    assert read_etrecord(tmp_path / "again.etrecord").unknown_members == ("a_later_member",)


def test_deflated_members_are_read() -> None:
    record = read_etrecord(record_bytes(compression=zipfile.ZIP_DEFLATED))
    assert record.members[EDGE].stored_size < record.members[EDGE].size
    assert record.debug_handle_map == {"forward": {0: (1,)}}


def test_what_is_no_record() -> None:
    with pytest.raises(FormatError, match="ETRECORD_V0"):
        read_etrecord(zip_bytes({"debug_handle_map": b"{}"}))
    for source in ("/dev/null", "/", b"", b"PK", b"\0" * 100):
        with pytest.raises(FormatError):
            read_etrecord(source)
    with pytest.raises(MissingFileError):
        read_etrecord("no/such.etrecord")


def test_errors_name_file_and_member(tmp_path: Path) -> None:
    path = tmp_path / "bad.etrecord"
    path.write_bytes(record_bytes(debug_handle_map=b'{"forward": {"x": 1}}'))
    with pytest.raises(FormatError) as caught:
        _ = read_etrecord(path).debug_handle_map
    assert caught.value.path == str(path) and caught.value.member == "debug_handle_map"


HANDLES = (b"[]", b'{"forward": [1]}', b'{"forward": {"0": "7"}}', b'{"forward": {"0": [true]}}')


@pytest.mark.parametrize(
    ("member", "data"),
    [
        *(("debug_handle_map", data) for data in (*HANDLES, b"{", b"\xff")),
        ("delegate_map", b'{"forward": {"0": {"name": 3, "delegate_map": {}}}}'),
        ("delegate_map", b'{"forward": {"0": {"name": "B", "delegate_map": {"1": {}}}}}'),
        ("instruction_id_to_num_outs_map", b'{"forward": {"0": [1]}}'),
        ("export_graph_id", b'"one"'),
        ("reference_outputs", b"not a pickle"),
        ("representative_inputs", b"\x80\x04c__builtin__\neval\n."),
        ("etscope__fingerprints_constants", b'{"version": 1}'),
        ("etscope__slimmed_constants", b'{"cuts": {"a": [1]}}'),
    ],
)
def test_broken_members_are_format_errors(member: str, data: bytes) -> None:
    record = read_etrecord(record_bytes(**{member: data}))
    with pytest.raises(FormatError):
        _ = record.debug_handle_map, record.delegate_map, record.instruction_id_to_num_outs_map
        _ = record.export_graph_id, record.fingerprints, record.cuts
        record.reference_outputs(), record.representative_inputs()


def test_member_names_of_the_helper_are_those_of_a_real_record() -> None:
    real = members_of(artifacts("cnn_portable").etrecord)
    assert set(members_of(record_bytes())) <= set(real)


def test_reading_needs_no_torch() -> None:
    program_text = (
        "import sys; from etscope.formats.etrecord.reader import read_etrecord;"
        "from etscope.model.exported_graph import graph_from_record;"
        f"r = read_etrecord({str(old_record('1.2.0'))!r});"
        "[graph_from_record(r, name) for name in r.graph_names]; r.reference_outputs();"
        "print('torch' in sys.modules, 'executorch' in sys.modules, 'pandas' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program_text]).split() == [b"False"] * 3
