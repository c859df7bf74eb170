"""The smaller packages of upstream's devtools, held against upstream's own on real artefacts."""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import artifacts

pytest.importorskip("executorch.devtools")

from executorch.devtools import backend_debug, parse_etrecord
from executorch.devtools.debug_format.et_schema import FXOperatorGraph as UpstreamGraph
from executorch.devtools.etdump import serialize as upstream_etdump
from executorch.devtools.inspector import _inspector as upstream_inspector
from executorch.devtools.pte_tool import diff_pte as upstream_diff
from executorch.devtools.size_analysis_tool import size_analysis_tool as upstream_sizes

from etscope.backend_debug import get_delegation_info, print_delegation_info
from etscope.backend_debug.delegation_info import DelegationInfo
from etscope.debug_format.et_schema import FXOperatorGraph
from etscope.errors import FormatError, MissingDataError, UsageError
from etscope.etdump import serialize
from etscope.inspector import _inspector as signatures
from etscope.pte_tool.diff_pte import diff_pte, format_diff_result
from etscope.size_analysis_tool.size_analysis_tool import generate_model_size_information, main

RECORDS = ("cnn_portable", "cnn_xnnpack_lowered", "transformer_portable")


def plain(value: Any) -> Any:
    """A result with dictionaries in place of the two packages' own classes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.value if isinstance(value, Enum) else value


@cache
def edge_program(name: str) -> Any:
    return parse_etrecord(str(artifacts(name).etrecord)).edge_dialect_program


def edge_graph(name: str) -> Any:
    return edge_program(name).graph_module


# --- etdump


@pytest.mark.parametrize("name", ["cnn_xnnpack_int8", "cnn_portable", "two_methods"])
def test_dumps_are_read_grouped_and_written_as_upstream_does(name: str) -> None:
    data = artifacts(name).etdump.read_bytes()
    ours = plain(serialize.deserialize_from_etdump_flatcc(data))
    assert ours["run_data"]
    assert ours == plain(upstream_etdump.deserialize_from_etdump_flatcc(data))

    found: list[Any] = []
    for read, module in (
        (serialize.deserialize_from_etdump_flatcc, signatures),
        (upstream_etdump.deserialize_from_etdump_flatcc, upstream_inspector),
    ):
        groups = [
            module.InstructionEvent.gen_from_events(run.events or []) for run in read(data).run_data
        ]
        pairs = [
            module.EventSignature.gen_from_instruction_event(group)
            for run in groups
            for group in run
        ]
        found.append(plain([groups, pairs]))

    assert any(found[0][1])
    assert found[0] == found[1]

    dump = serialize.deserialize_from_etdump_flatcc(data)
    written = serialize.serialize_to_etdump_flatcc(dump)
    assert serialize.deserialize_from_etdump_flatcc(written, size_prefixed=False) == dump
    theirs = upstream_etdump.deserialize_from_etdump_flatcc(written, size_prefixed=False)
    assert plain(theirs) == plain(dump)


def test_what_is_no_dump() -> None:
    with pytest.raises(FormatError):
        serialize.deserialize_from_etdump_flatcc(b"no dump at all, but some bytes")
    dump = serialize.deserialize_from_etdump_flatcc(artifacts("cnn_portable").etdump.read_bytes())
    dump.run_data[0].name = 3  # type: ignore[assignment]
    with pytest.raises(UsageError, match="does not fit the schema"):
        serialize.serialize_to_etdump_flatcc(dump)


# --- graphs


# Upstream's takes minutes for a transformer.
@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack_lowered", "int_outputs"])
@pytest.mark.parametrize("with_modules", [False, True])
def test_graphs_are_upstreams(name: str, with_modules: bool) -> None:
    module = edge_graph(name)

    ours, theirs = (
        plain(kind.gen_operator_graph(module, enable_module_hierarchy=with_modules))
        for kind in (FXOperatorGraph, UpstreamGraph)
    )

    assert ours["elements"][1]["elements"]
    assert ours == theirs


def test_a_graph_with_branches_has_a_graph() -> None:
    """Upstream's refuses the branches' operands, which are a tuple."""
    graph = FXOperatorGraph.gen_operator_graph(edge_graph("cond"))

    operators = [getattr(node, "op", None) for node in graph.elements[1].elements]  # type: ignore[union-attr]
    assert "cond" in operators


# --- delegates


@pytest.mark.parametrize("name", RECORDS)
def test_delegation_is_upstreams(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = edge_graph(name)

    ours, theirs = get_delegation_info(module), backend_debug.get_delegation_info(module)

    assert plain(ours) == plain(theirs)
    assert ours.get_summary() == theirs.get_summary()
    frame = ours.get_operator_delegation_dataframe()
    assert frame.equals(theirs.get_operator_delegation_dataframe())
    print_delegation_info(module)
    printed = capsys.readouterr().out
    backend_debug.print_delegation_info(module)
    assert printed == capsys.readouterr().out
    assert "Total" in printed


def test_operators_in_branches_are_counted_and_no_operators_have_a_table() -> None:
    """Upstream counts the outermost graph alone, and raises a KeyError for none."""
    module = edge_graph("cond")

    ours, theirs = get_delegation_info(module), backend_debug.get_delegation_info(module)

    inside = [
        node
        for branch in module.children()
        for node in branch.graph.nodes
        if node.op == "call_function"
    ]
    assert inside
    assert ours.num_non_delegated_nodes == theirs.num_non_delegated_nodes + len(inside)
    frame = DelegationInfo(0, 0, 0, {}).get_operator_delegation_dataframe()

    assert frame.to_numpy().tolist() == [["Total", 0, 0]]


# --- sizes


@pytest.mark.parametrize("name", RECORDS)
def test_sizes_are_upstreams(name: str) -> None:
    program = artifacts(name).pte.read_bytes()
    deserializers = {"XnnpackBackend": lambda data: {"first": data[:4].hex()}}

    ours, theirs = (
        tool(edge_program(name), deserializers, program)
        for tool in (
            generate_model_size_information,
            upstream_sizes.generate_model_size_information,
        )
    )

    assert ours["tensor_data"] or ours["delegate_blob_data"]
    assert ours["delegate_blob_data"] == theirs["delegate_blob_data"]
    ours_by_name = {one["name"]: one for one in ours["tensor_data"]}
    for entry in theirs["tensor_data"]:
        assert ours_by_name.pop(entry["name"]) == entry
    # What upstream leaves out: constants, which take bytes like any tensor.
    assert all(name.startswith(("c_", "b_")) for name in ours_by_name)


def test_the_tool_writes_json_of_a_graph_besides_the_edge_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "sizes.json"
    command = ["tool", "--output_path", str(out), "--etrecord_path"]
    extra = artifacts("record_variants").extra("extra_modules.bin")
    monkeypatch.setattr("sys.argv", [*command, str(extra)])
    main()
    assert "total_tensor_data_size" in out.read_text()
    monkeypatch.setattr("sys.argv", [*command, str(artifacts("cnn_portable").etrecord)])
    with pytest.raises(MissingDataError, match="does not have extra graphs"):
        main()


# --- programs


def pair(a: str, b: str) -> tuple[bytes, bytes]:
    return artifacts(a).pte.read_bytes(), artifacts(b).pte.read_bytes()


def changed_weight(name: str) -> tuple[bytes, bytes]:
    """A program, and one with another number in its largest constant."""
    from etscope.formats.program.pte import read_pte
    from etscope.formats.program.pte_schema import TensorValue

    data = artifacts(name).pte.read_bytes()
    program = read_pte(data)
    constants = [
        program.constant_span(value)
        for value in program.methods[0].values
        if isinstance(value, TensorValue) and value.is_constant and value.nbytes
    ]
    span = max(constants, key=lambda one: one.size)
    other = bytearray(data)
    other[span.offset + 4 : span.offset + 8] = b"\x00\x00\x80\x3f"  # 1.0
    return data, bytes(other)


@pytest.mark.parametrize("programs", ["weight", "backends"])
def test_differences_are_upstreams(programs: str) -> None:
    a, b = (
        changed_weight("cnn_portable")
        if programs == "weight"
        else pair("cnn_portable", "transformer_portable")
    )

    files = (a, b, "a.pte", "b.pte")
    ours, theirs = diff_pte(*files), upstream_diff.diff_pte(*files)

    assert theirs.plan_diffs
    assert len(ours.plan_diffs) == len(theirs.plan_diffs)
    for one, other in zip(ours.plan_diffs, theirs.plan_diffs, strict=True):
        mine, expected = plain(one), plain(other)
        for key in ("tensor_diffs", "evalue_diffs"):
            by_index = [
                {index_of(entry): entry for entry in result.pop(key)} for result in (mine, expected)
            ]
            assert by_index[0].keys() == by_index[1].keys()
            for index, entry in by_index[1].items():
                same_entry(by_index[0][index], entry)
        assert {key: mine[key] for key in expected} == expected
    if programs == "weight":
        # The first line has sizes in units of their own.
        texts = format_diff_result(ours), upstream_diff.format_diff_result(theirs)
        lines = [[line for line in text.splitlines()[1:] if line] for text in texts]
        assert lines[0] == lines[1]


def index_of(entry: dict[str, Any]) -> int:
    return int(entry.get("evalue_index", entry.get("tensor_a", {}).get("evalue_index", -1)))


def same_entry(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Equal but for how fields are written that are tables in the file."""
    for name, value in theirs.items():
        if name == "metadata_diffs":
            known = {field["field_name"] for field in ours[name]}
            assert {
                field["field_name"] for field in value if "extra" not in field["field_name"]
            } <= known
        elif name.startswith("byte_size"):  # upstream's are with the padding behind a tensor
            assert ours[name] <= value < ours[name] + 64 or ours[name] == value == 0
        elif name != "field_diffs":
            assert (
                ours[name] == pytest.approx(value)
                if isinstance(value, float)
                else ours[name] == value
            )
        else:
            assert [one["field_name"] for one in ours[name]] == [one["field_name"] for one in value]


def test_a_changed_delegate_is_a_difference() -> None:
    """Upstream says nothing of what is inside delegates and of named data."""
    from etscope.formats.program.pte import read_pte

    data = artifacts("cnn_xnnpack").pte.read_bytes()
    program = read_pte(data)
    blob = program.methods[0].delegates[0].blob
    other = bytearray(data)
    other[blob.offset + blob.size - 1] ^= 0xFF
    named = read_pte(data).named_data
    if named:
        other[named[0].blob.offset] ^= 0xFF

    result = diff_pte(data, bytes(other))

    assert result.plan_diffs[0].delegates_differ == ["0 XnnpackBackend"]
    assert [one.key for one in result.named_data_diffs] == [one.key for one in named[:1]]
    assert not upstream_diff.diff_pte(data, bytes(other)).plan_diffs
    assert "Delegates with other data: 0 XnnpackBackend" in format_diff_result(result)
