"""Records saved whole or not at all, opened, changed, and saved again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from etscope.errors import FormatError, RecordError, UsageError  # noqa: E402
from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.model.exported_graph import graph_from_record  # noqa: E402
from tests.support.etrecord.small_models import Gate, lowered, saved  # noqa: E402
from tests.support.etrecord_files import OLD_RELEASES, changed_program, members_of, old_record  # noqa: E402

EDGE = "edge_dialect_exported_program"


def runs_as(program: Any, net: Any) -> bool:
    return bool(torch.equal(program.module()(*net.inputs), net.model(*net.inputs)))


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


def test_a_record_is_saved_again_as_it_was_or_as_it_was_used(path: Path, tmp_path: Path) -> None:
    extra = {"aten": lowered().exported["forward"]}
    record = saved(path, "encode", "forward", extra_recorded_export_modules=extra)
    untouched = tmp_path / "untouched"
    record.save(untouched)
    assert untouched.read_bytes() == path.read_bytes()
    record.save(path)  # onto itself
    assert untouched.read_bytes() == path.read_bytes()
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


@pytest.mark.parametrize("release", ["0.4.0", "0.7.0"])
def test_programs_of_before_names_are_refused_by_their_age(release: str) -> None:
    record = parse_etrecord(old_record(release))
    with pytest.raises(FormatError, match=r"this program, which is of ExecuTorch 0\.7 or earlier"):
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
