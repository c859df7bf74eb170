"""ETRecord: made of its parts, saved, opened again."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from executorch.exir import to_edge  # noqa: E402

from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from tests.support.etrecord.small_models import lowered, saved  # noqa: E402
from tests.support.etrecord_files import old_record  # noqa: E402

EDGE = "edge_dialect_exported_program"


def runs_as(program: Any, net: Any) -> bool:
    return bool(torch.equal(program.module()(*net.inputs), net.model(*net.inputs)))


# -- what is saved comes back


def test_programs_come_back(path: Path) -> None:
    net, record = lowered(), saved(path)
    assert runs_as(record.exported_program, net)
    assert record.export_graph_id == id(net.exported["forward"].graph)
    names = [node.name for node in net.edge.exported_program().graph.nodes]
    assert [node.name for node in record.edge_dialect_program.graph.nodes] == names
    assert record.graph_map == {}
    # The keys of the maps are text.
    assert record._debug_handle_map == json.loads(json.dumps(net.program.debug_handle_map))
    assert record._delegate_map == {"forward": {}}
    assert record._instruction_id_to_num_outs_map == {"forward": {}}
    assert record._reference_outputs is None and record._representative_inputs is None
    assert record.program_buffer() == net.program.buffer


def test_fingerprints_say_which_program_it_is(path: Path) -> None:
    import hashlib

    net, record = lowered(), saved(path)
    prints = read_etrecord(path).fingerprints
    assert prints is not None
    assert prints.program_sha256 == hashlib.sha256(net.program.buffer).hexdigest()
    assert prints.program_bytes == len(net.program.buffer)
    method = prints.methods["forward"]
    assert method.instructions == (
        "aten::permute_copy.out",
        "aten::addmm.out",
        "aten::relu.out",
        "aten::_softmax.out",
    )
    graph = read_etrecord(path).program_text(f"{EDGE}/forward")
    assert method.graph_sha256 == hashlib.sha256(graph).hexdigest()
    assert record.exported_programs.keys() == {"forward"}


def test_several_methods_all_come_back(path: Path) -> None:
    record = saved(path, "encode", "decode", "forward")
    net = lowered("encode", "decode", "forward")
    assert list(record.edge_dialect_program) == ["decode", "encode", "forward"]
    assert record.edge_programs.keys() == {"encode", "decode", "forward"}
    assert record.exported_programs.keys() == {"encode", "decode", "forward"}
    assert all(runs_as(program, net) for program in record.exported_programs.values())
    ids = {name: id(program.graph) for name, program in net.exported.items()}
    assert read_etrecord(path).export_graph_ids == {
        "exported_program": ids["forward"],
        "exported_program/encode": ids["encode"],
        "exported_program/decode": ids["decode"],
    }


def test_methods_without_forward(path: Path) -> None:
    record = saved(path, "encode", "decode")
    assert record.exported_program is None and record.export_graph_id == 0
    assert record.exported_programs.keys() == {"encode", "decode"}
    assert read_etrecord(path).graph_names == (
        "exported_program/encode",
        "exported_program/decode",
        f"{EDGE}/decode",
        f"{EDGE}/encode",
    )


def test_a_single_method_keeps_its_name(path: Path) -> None:
    record = saved(path, "encode")
    assert read_etrecord(path).graph_names == ("exported_program", f"{EDGE}/encode")
    assert record.edge_programs.keys() == record.exported_programs.keys() == {"encode"}
    assert runs_as(record.exported_program, lowered())


def test_extra_modules(path: Path) -> None:
    net = lowered()
    extra = {"aten": net.exported["forward"], "late edge": to_edge(net.exported)}
    record = saved(path, extra_recorded_export_modules=extra)
    assert record.graph_map is not None
    assert set(record.graph_map) == {"aten/forward", "late edge/forward"}
    assert runs_as(record.graph_map["aten/forward"], net)


def test_a_bundled_program_gives_outputs_and_inputs(path: Path) -> None:
    net = lowered()
    generate_etrecord(path, net.edge, net.bundled())
    record = parse_etrecord(path)
    expected = net.model(*net.inputs)
    assert record._reference_outputs is not None
    (first, second) = record._reference_outputs["forward"]
    assert torch.equal(first[0], expected) and torch.equal(second[0], expected)
    assert torch.equal(record._representative_inputs[0], net.inputs[0])
    assert record.program_buffer() == net.program.buffer
    # Of a method of another name, too.
    record = ETRecord()
    record.add_executorch_program(lowered("encode").bundled("encode"))
    assert record._reference_outputs is not None and list(record._reference_outputs) == ["encode"]
    assert torch.equal(record._representative_inputs[0], lowered().inputs[0])


def test_saving_to_a_stream(path: Path) -> None:
    net = lowered()
    stream = io.BytesIO()
    generate_etrecord(stream, net.edge, net.program)
    assert read_etrecord(stream.getvalue()).edge_methods == ("forward",)
    with path.open("wb") as file:
        generate_etrecord(file, net.edge, net.program)
    assert path.read_bytes() == stream.getvalue()


def test_text_is_deflated_and_weights_are_not(path: Path) -> None:
    saved(path)
    members = read_etrecord(path).members
    assert members[f"{EDGE}/forward"].deflated
    assert members[f"{EDGE}/forward"].stored_size < members[f"{EDGE}/forward"].size / 3
    assert not members[f"{EDGE}/forward_state_dict"].deflated
    assert zipfile.ZipFile(path).testzip() is None


def test_unknown_attributes_are_attribute_errors() -> None:
    for record in (ETRecord(), parse_etrecord(old_record("1.2.0"))):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = record.nothing
