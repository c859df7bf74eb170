"""ETRecord: the ways to make one, in one call or piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite  # noqa: E402
from executorch.devtools.bundled_program.core import BundledProgram  # noqa: E402

from etscope.analysis.graphs.linked_graph import linked_graph  # noqa: E402
from etscope.analysis.matching.export import Export  # noqa: E402
from etscope.errors import RecordError  # noqa: E402
from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.formats.program.pte import read_pte  # noqa: E402
from tests.support.etrecord.small_models import lowered, saved  # noqa: E402

EDGE = "edge_dialect_exported_program"


# -- all the ways to call


def test_the_older_signature(tmp_path: Path) -> None:
    net = lowered()
    modules = {"aten": net.exported["forward"]}
    by_keyword, by_position = tmp_path / "keyword", tmp_path / "position"
    generate_etrecord(
        etrecord_path=str(by_keyword),
        edge_dialect_program=net.edge,
        executorch_program=net.program,
        export_modules=modules,
    )
    generate_etrecord(str(by_position), net.edge, net.program, modules)
    for path in (by_keyword, by_position):
        assert read_etrecord(path).graph_names == (f"{EDGE}/forward", "aten/forward")


def test_an_extra_graph_has_the_instructions_of_its_nodes(path: Path) -> None:
    net = lowered()
    generate_etrecord(path, net.edge, net.program, export_modules={"aten": net.exported["forward"]})
    export = Export(read_pte(bytes(net.program.buffer)), read_etrecord(path))
    linked = linked_graph(export, "aten/forward")
    computing = [node for node in linked.graph.walk() if node.kind == "call_function"]
    assert [node.name for node in computing] == ["linear", "relu", "softmax"]
    ran = {number for node in computing for number in linked.instructions[id(node)]}
    assert ran == set(range(len(export.needed_program.method("forward").instructions)))


def test_the_newer_signature(tmp_path: Path) -> None:
    net = lowered()
    paths = tmp_path / "keyword", tmp_path / "position", tmp_path / "dict"
    generate_etrecord(
        et_record=paths[0],
        edge_dialect_program=net.edge,
        executorch_program=net.program,
        exported_program=net.exported["forward"],
        extra_recorded_export_modules={"aten": net.exported["forward"]},
    )
    extra = {"aten": net.exported["forward"]}
    generate_etrecord(paths[1], net.edge, net.program, net.exported["forward"], extra)
    generate_etrecord(paths[2], net.edge, net.program, net.exported, extra)
    for path in paths:
        names = read_etrecord(path).graph_names
        assert names == ("exported_program", f"{EDGE}/forward", "aten/forward")


def test_calls_that_are_neither(path: Path) -> None:
    net = lowered()
    with pytest.raises(RecordError, match="same argument"):
        generate_etrecord(path, net.edge, net.program, etrecord_path=path)
    modules = {"aten": net.exported["forward"]}
    with pytest.raises(RecordError, match="same argument"):
        generate_etrecord(
            path,
            net.edge,
            net.program,
            extra_recorded_export_modules=modules,
            export_modules=modules,
        )
    with pytest.raises(RecordError, match="needs et_record"):
        generate_etrecord(path, net.edge)
    assert not path.exists()


# -- piece by piece


def test_parts_can_be_added_once() -> None:
    net, record = lowered(), ETRecord()
    record.add_exported_program(None)  # nothing is a fine exported program
    assert record.exported_program is None and record.export_graph_id is None
    record.add_exported_program(net.exported)
    record.add_edge_dialect_program(net.edge)
    record.add_executorch_program(net.program)
    for add, part, name in (
        (record.add_exported_program, net.exported, "Exported program"),
        (record.add_edge_dialect_program, net.edge, "Edge dialect program"),
        (record.add_executorch_program, net.program, "Executorch program data"),
    ):
        with pytest.raises(RuntimeError, match=f"{name} already exists in the ETRecord"):
            add(part)


@pytest.mark.parametrize(
    "call",
    [
        lambda record: record.add_exported_program("program"),
        lambda record: record.add_exported_program({"forward": 3}),
        lambda record: record.add_edge_dialect_program(lowered().exported["forward"]),
        lambda record: record.add_executorch_program(lowered().edge),
        lambda record: record.add_extra_export_modules(
            {"good": lowered().exported["forward"], "bad": 3}
        ),
    ],
)
def test_objects_of_other_types(call: Any) -> None:
    record = ETRecord()
    with pytest.raises(RecordError):
        call(record)
    assert record.graph_map is None


RESERVED = [
    "ETRECORD_V0",
    "exported_program",
    "edge_dialect_exported_program",
    "et_dialect_graph_module",
    "debug_handle_map",
    "delegate_map",
    "instruction_id_to_num_outs_map",
    "reference_outputs",
    "representative_inputs",
    "export_graph_id",
    "edge_dialect_exported_program/x",
    "etscope/x",
    "my_state_dict",
    "",
    "/a",
    "../a",
    "a//b",
    "a\nb",
    "a\\b",
]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names(name: str) -> None:
    with pytest.raises(RecordError, match="reserved name"):
        ETRecord().add_extra_export_modules({name: lowered().exported["forward"]})


@pytest.mark.parametrize("name", ["my_delegate_map2", "a/b", "exported_programs", "état"])
def test_names_that_only_look_reserved(name: str, path: Path) -> None:
    record = saved(path, extra_recorded_export_modules={name: lowered().exported["forward"]})
    assert list(record.graph_map or {}) == [f"{name}/forward"]


def test_outputs_and_inputs_in_all_their_forms() -> None:
    record, net = ETRecord(), lowered()
    record.update_reference_outputs([[1.0]])
    assert record._reference_outputs == {"forward": [[1.0]]}
    record.update_reference_outputs({"encode": [[2.0]]})
    assert record._reference_outputs == {"encode": [[2.0]]}
    record.update_reference_outputs(net.bundled(cases=3))
    assert len(record._reference_outputs["forward"]) == 3
    record.update_representative_inputs([1, (2.0, True)])
    assert record._representative_inputs == [1, (2.0, True)]
    record.update_representative_inputs(net.bundled())
    assert torch.equal(record._representative_inputs[0], net.inputs[0])


def test_updated_values_are_saved(path: Path) -> None:
    net, record = lowered(), ETRecord()
    record.add_edge_dialect_program(net.edge)
    record.add_executorch_program(net.program)
    record.update_representative_inputs([torch.ones(2, 4), 3, 0.5, True])
    record.update_reference_outputs([[torch.zeros(1)]])
    record.save(path)
    opened = parse_etrecord(path)
    assert opened._representative_inputs[1:] == [3, 0.5, True]
    assert opened._reference_outputs == {"forward": [[torch.zeros(1)]]}


def test_bundles_without_outputs_or_maps(tmp_path: Path) -> None:
    net = lowered()
    suites = [MethodTestSuite("forward", [MethodTestCase(net.inputs)])]
    bundle = BundledProgram(net.program, suites)
    with pytest.raises(ValueError, match="expected outputs for method forward"):
        ETRecord().add_executorch_program(bundle)
    pte = tmp_path / "model.pte"
    pte.write_bytes(net.program.buffer)
    with pytest.raises(RecordError, match=r"\.pte file"):
        ETRecord().add_executorch_program(BundledProgram(None, [], str(pte)))


def test_a_copy_has_the_graphs_and_not_the_program() -> None:
    net, record = lowered("encode", "decode"), ETRecord()
    record.add_exported_program(net.exported)
    record.add_edge_dialect_program(net.edge)
    record.add_executorch_program(net.program)
    copied = record.copy()
    assert copied.edge_dialect_program is record.edge_dialect_program
    assert copied.exported_programs == record.exported_programs
    assert copied._debug_handle_map is None and copied.program_buffer() is None
    copied.add_executorch_program(net.program)


def test_a_float_program_keeps_the_id_that_nodes_name_it_by(tmp_path: Path) -> None:
    net = lowered()
    program = net.exported["forward"]
    record = ETRecord()
    record.add_edge_dialect_program(net.edge)
    record.add_executorch_program(net.program)
    record.add_float_program({"forward": program})
    with pytest.raises(RecordError, match="already"):
        record.add_float_program(program)
    record.save(tmp_path / "record")
    found = read_etrecord(tmp_path / "record")
    assert found.export_graph_ids == {"float/forward": id(program.graph)}
    again = parse_etrecord(tmp_path / "record")
    again.update_reference_outputs([])  # changed, so that it is written anew
    again.save(tmp_path / "again")
    assert read_etrecord(tmp_path / "again").export_graph_ids == found.export_graph_ids
