"""ETRecord: made of its parts, saved, opened again."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite  # noqa: E402
from executorch.devtools.bundled_program.core import BundledProgram  # noqa: E402
from executorch.exir import to_edge  # noqa: E402

from etscope.errors import FormatError, RecordError, UsageError  # noqa: E402
from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord  # noqa: E402
from etscope.formats.etrecord import read_etrecord  # noqa: E402
from etscope.model.exported_graph import graph_from_record  # noqa: E402
from tests.etrecord_files import OLD_RELEASES, changed_program, members_of, old_record  # noqa: E402
from tests.unit.etrecord.small_models import Gate, lowered  # noqa: E402

EDGE = "edge_dialect_exported_program"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.etrecord"


def saved(path: Path, *methods: str, **extra: Any) -> ETRecord:
    """A record of the small model, written and opened."""
    net = lowered(*methods)
    exported = net.exported if methods else net.exported["forward"]
    generate_etrecord(path, net.edge, net.program, exported, **extra)
    return parse_etrecord(path)


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


def test_maps_come_back_with_keys_as_text(path: Path) -> None:
    net, record = lowered(), saved(path)
    assert record._debug_handle_map == json.loads(json.dumps(net.program.debug_handle_map))
    assert record._delegate_map == {"forward": {}}
    assert record._instruction_id_to_num_outs_map == {"forward": {}}
    assert record._reference_outputs is None and record._representative_inputs is None


def test_the_program_comes_back(path: Path) -> None:
    net, record = lowered(), saved(path)
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


def test_a_bundle_of_another_method_gives_inputs_too() -> None:
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


def test_both_signatures_at_once(path: Path) -> None:
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


def test_without_what_is_needed(path: Path) -> None:
    with pytest.raises(RecordError, match="needs et_record"):
        generate_etrecord(path, lowered().edge)
    assert not path.exists()


# -- piece by piece


def test_parts_can_be_added_once() -> None:
    net, record = lowered(), ETRecord()
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


def test_nothing_is_a_fine_exported_program() -> None:
    record = ETRecord()
    record.add_exported_program(None)
    assert record.exported_program is None and record.export_graph_id is None


@pytest.mark.parametrize(
    "call",
    [
        lambda record: record.add_exported_program("program"),
        lambda record: record.add_exported_program({"forward": 3}),
        lambda record: record.add_edge_dialect_program(lowered().exported["forward"]),
        lambda record: record.add_executorch_program(lowered().edge),
        lambda record: record.add_extra_export_modules({"a": 3}),
    ],
)
def test_objects_of_other_types(call: Any) -> None:
    with pytest.raises(RecordError):
        call(ETRecord())


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


def test_a_bad_module_adds_none_of_them() -> None:
    record = ETRecord()
    with pytest.raises(RecordError):
        record.add_extra_export_modules({"good": lowered().exported["forward"], "bad": 3})
    assert record.graph_map is None


@pytest.mark.parametrize("name", ["my_delegate_map2", "a/b", "exported_programs", "état"])
def test_names_that_only_look_reserved(name: str, path: Path) -> None:
    record = saved(path, extra_recorded_export_modules={name: lowered().exported["forward"]})
    assert list(record.graph_map or {}) == [f"{name}/forward"]


def test_reference_outputs_in_their_three_forms() -> None:
    record, net = ETRecord(), lowered()
    record.update_reference_outputs([[1.0]])
    assert record._reference_outputs == {"forward": [[1.0]]}
    record.update_reference_outputs({"encode": [[2.0]]})
    assert record._reference_outputs == {"encode": [[2.0]]}
    record.update_reference_outputs(net.bundled(cases=3))
    assert len(record._reference_outputs["forward"]) == 3


def test_representative_inputs_in_their_two_forms() -> None:
    record, net = ETRecord(), lowered()
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


def test_test_cases_without_outputs() -> None:
    net = lowered()
    suites = [MethodTestSuite("forward", [MethodTestCase(net.inputs)])]
    bundle = BundledProgram(net.program, suites)
    with pytest.raises(ValueError, match="expected outputs for method forward"):
        ETRecord().add_executorch_program(bundle)


def test_a_bundle_of_a_file_has_no_maps(tmp_path: Path) -> None:
    pte = tmp_path / "model.pte"
    pte.write_bytes(lowered().program.buffer)
    bundle = BundledProgram(None, [], str(pte))
    with pytest.raises(RecordError, match=r"\.pte file"):
        ETRecord().add_executorch_program(bundle)


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


# -- saving


@pytest.mark.parametrize("parts", [(), ("edge",), ("program",)])
def test_incomplete_records_are_not_saved(parts: tuple[str, ...], path: Path) -> None:
    net, record = lowered(), ETRecord()
    if "edge" in parts:
        record.add_edge_dialect_program(net.edge)
    if "program" in parts:
        record.add_executorch_program(net.program)
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="must contain edge dialect program and executorch"):
        record.save(path)
    assert path.read_bytes() == b"old" and len(list(path.parent.iterdir())) == 1


def test_constants_in_branches(path: Path) -> None:
    net = lowered(model=Gate)
    generate_etrecord(path, net.edge, net.program, net.exported)
    edge = parse_etrecord(path).edge_dialect_program.module()
    for inputs in (torch.ones(2, 4), -torch.ones(2, 4)):
        torch.testing.assert_close(edge(inputs), net.model(inputs))
    graph = graph_from_record(read_etrecord(path), f"{EDGE}/forward")
    (cond,) = (node for node in graph.nodes if node.op == "cond")
    handles = {node.op: node.debug_handle for node in cond.subgraphs[0].nodes}
    assert handles["full.default"] == 0
    assert handles["aten.mul.Tensor"] and handles["aten.add.Tensor"]
    constants = [node for node in cond.subgraphs[1].nodes if node.op == "full.default"]
    assert dict(constants[0].arguments)["fill_value"] == str(torch.tensor(0.1).item())


def test_a_program_that_cannot_be_serialized_leaves_nothing_behind(path: Path) -> None:
    net = lowered()
    path.write_bytes(b"old")
    record = ETRecord()
    record.add_exported_program(net.exported)
    record.add_edge_dialect_program(net.edge)
    record.add_executorch_program(net.program)
    record.add_extra_export_modules({"broken": net.exported["forward"]})
    record.graph_map["broken/forward"] = "no program"  # type: ignore[index]
    with pytest.raises(RecordError, match="cannot serialize the program 'broken/forward'"):
        record.save(path)
    assert path.read_bytes() == b"old" and len(list(path.parent.iterdir())) == 1


def test_a_place_that_cannot_be_written() -> None:
    net = lowered()
    with pytest.raises(UsageError, match="cannot write"):
        generate_etrecord("/no/such/folder/x.etrecord", net.edge, net.program)


# -- opening and saving again


def test_a_record_that_is_opened_and_saved_is_the_same_file(path: Path, tmp_path: Path) -> None:
    extra = {"aten": lowered().exported["forward"]}
    record = saved(path, "encode", "forward", extra_recorded_export_modules=extra)
    again = tmp_path / "again"
    record.save(again)
    assert again.read_bytes() == path.read_bytes()
    record.save(path)
    assert again.read_bytes() == path.read_bytes()


def test_programs_that_were_used_are_saved_again(path: Path, tmp_path: Path) -> None:
    extra = {"aten": lowered().exported["forward"]}
    record = saved(path, "encode", "forward", extra_recorded_export_modules=extra)
    _ = record.edge_dialect_program, record.exported_programs, record.graph_map
    _ = record._debug_handle_map, record._delegate_map, record._instruction_id_to_num_outs_map
    record.save(tmp_path / "again")
    old, new = read_etrecord(path), read_etrecord(tmp_path / "again")
    assert set(new.members) == set(old.members)
    assert new.graph_names == old.graph_names
    for name in old.graph_names:
        ours, theirs = graph_from_record(new, name), graph_from_record(old, name)
        assert [n.name for n in ours.nodes] == [n.name for n in theirs.nodes]
    assert new.program_buffer() == old.program_buffer()
    assert new.debug_handle_map == old.debug_handle_map


def test_an_opened_record_can_be_changed(path: Path, tmp_path: Path) -> None:
    record = saved(path)
    record.update_reference_outputs([[torch.ones(1)]])
    record.graph_map = {"copy/forward": lowered().exported["forward"]}
    record.save(tmp_path / "again")
    opened = read_etrecord(tmp_path / "again")
    assert opened.graph_names[-1] == "copy/forward"
    assert opened.reference_outputs()["forward"][0][0].tolist() == [1.0]  # type: ignore[index]
    assert bytes(opened.program_text(f"{EDGE}/forward")) == bytes(
        read_etrecord(path).program_text(f"{EDGE}/forward")
    )


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_records_of_older_releases_can_be_saved_anew(release: str, path: Path) -> None:
    record = parse_etrecord(old_record(release))
    record.save(path)
    old, new = read_etrecord(old_record(release)), read_etrecord(path)
    assert [graph_from_record(new, name) for name in new.graph_names] == [
        graph_from_record(old, name) for name in old.graph_names
    ]
    assert new.debug_handle_map == old.debug_handle_map
    assert record._reference_outputs["forward"][0][0].shape == (2, 2, 4)  # type: ignore[index]


@pytest.mark.parametrize("release", ["1.0.1", "1.2.0", "1.3.1", "1.4.1"])
def test_programs_of_older_releases_run(release: str) -> None:
    record = parse_etrecord(old_record(release))
    outputs = record.exported_program.module()(*record._representative_inputs)
    assert record._reference_outputs is not None
    torch.testing.assert_close(outputs, record._reference_outputs["forward"][0][0])
    assert len(record.edge_dialect_program.graph.nodes) == 18


def test_programs_of_before_names_are_typed_errors() -> None:
    record = parse_etrecord(old_record("0.7.0"))
    with pytest.raises(FormatError, match="cannot rebuild this program"):
        _ = record.edge_dialect_program


def test_code_in_a_record_does_not_run(path: Path, tmp_path: Path) -> None:
    saved(path)
    witness = tmp_path / "ran"

    def edit(program: dict[str, Any]) -> None:
        graph = program["graph_module"]["graph"]
        size = {"expr_str": f"open({str(witness)!r}, 'w')", "hint": None}
        graph["tensor_values"]["x"]["sizes"][0] = {"as_expr": size}

    path.write_bytes(changed_program(path, edit))
    record = parse_etrecord(path)
    with pytest.raises(FormatError, match="not an expression that torch writes"):
        _ = record.edge_dialect_program
    assert runs_as(record.exported_program, lowered())
    assert graph_from_record(read_etrecord(path), f"{EDGE}/forward").nodes
    assert not witness.exists()


def test_opening_needs_no_torch(path: Path) -> None:
    saved(path)
    script = (
        "import sys; from etscope import parse_etrecord;"
        f"record = parse_etrecord({str(path)!r}); record.program_buffer();"
        "record._debug_handle_map; record.export_graph_id; record.save(sys.argv[1]);"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(path.parent / "copy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
    assert members_of(path.parent / "copy") == members_of(path)


def test_unknown_attributes_are_attribute_errors() -> None:
    for record in (ETRecord(), parse_etrecord(old_record("1.2.0"))):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = record.nothing
