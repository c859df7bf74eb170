"""Programs as ExecuTorch 0.1 to 0.3 wrote them.

These releases do not run with a torch of today, so a record of 0.4 is changed to their layout, as
`exir/serde` of 0.2.1 and 0.3.0 has it.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.exported_graph import graph_from_program_json, graph_from_record
from tests.support.artifacts import ROOT
from tests.support.etrecord_files import EDGE, members_of, old_record, zip_bytes

ARGUMENT = [
    *("as_none", "as_tensor", "as_tensors", "as_int", "as_ints", "as_float", "as_floats"),
    *("as_string", "as_strings", "as_sym_int", "as_sym_ints", "as_scalar_type"),
    *("as_memory_format", "as_layout", "as_device", "as_bool", "as_bools", "as_sym_bool"),
    *("as_sym_bools", "as_graph", "as_optional_tensors", "as_custom_obj"),
]
INPUT_SPEC = ["user_input", "parameter", "buffer", "tensor_constant", "custom_obj"]
OUTPUT_SPEC = ["user_output", "loss_output", "buffer_mutation", "gradient_to_parameter"]
UNIONS = [["as_expr", "as_int"], ARGUMENT, INPUT_SPEC, OUTPUT_SPEC]


def with_nulls(value: Any) -> Any:
    """All keys of a union in it, the others null."""
    if isinstance(value, list):
        return [with_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    content = {key: with_nulls(item) for key, item in value.items()}
    for tags in UNIONS:
        if len(content) == 1 and next(iter(content)) in tags:
            return {tag: content.get(tag) for tag in tags}
    return content


def as_0_3(program: dict[str, Any]) -> dict[str, Any]:
    """Unversioned schema (1, 0)."""
    return {**program, "schema_version": {"major": 1, "minor": 0}}


def as_0_2(program: dict[str, Any]) -> dict[str, Any]:
    """All keys of all unions, no verifiers, a version that says nothing."""
    old = {**with_nulls(program), "schema_version": {"major": -1, "minor": -1}, "dialect": "EDGE"}
    del old["verifiers"]
    return old


def as_0_1(program: dict[str, Any]) -> dict[str, Any]:
    """As 0.2, with constraints that later schemas do not have, and no version at all."""
    old = {**as_0_2(program), "equality_constraints": [], "example_inputs": None}
    del old["schema_version"]
    return old


@pytest.mark.parametrize("older", [as_0_1, as_0_2, as_0_3])
@pytest.mark.parametrize("name", [EDGE, "aten/forward"])
def test_their_graphs_are_the_same(name: str, older: Any) -> None:
    record = read_etrecord(old_record("0.4.0"))
    graph = graph_from_record(record, name)
    old = graph_from_program_json(older(record.program_json(name)), name)
    dialect = "EDGE" if older is not as_0_3 else graph.dialect
    assert old == dataclasses.replace(graph, dialect=dialect)


def test_a_record_of_0_1_has_one_sibling_and_two_maps() -> None:
    old = members_of(old_record("0.4.0"))
    kept = ("ETRECORD_V0", "edge_dialect_exported_program", "debug_handle_map", "delegate_map")
    members = {name: old[name] for name in kept}
    members["edge_dialect_exported_program_state_dict"] = b""
    members["program_buffer"] = b"not read by anyone"
    record = read_etrecord(zip_bytes(members))
    assert record.graph_names == (EDGE,)
    later = read_etrecord(old_record("0.4.0"))
    assert graph_from_record(record, EDGE) == graph_from_record(later, EDGE)
    assert record.instruction_id_to_num_outs_map is None
    assert record.reference_outputs() is None


def test_descriptions_of_october_2023() -> None:
    """They are one level deeper than those of 0.1, in ExecuTorch's own example record."""
    record = read_etrecord(ROOT / "tests/corpus/etrecord/executorch-0.4.0.etrecord")
    program = copy.deepcopy(record.program_json(EDGE))
    graph = program["graph_module"]["graph"]
    assert graph["tensor_values"]
    graph["tensor_values"] = {key: {"meta": one} for key, one in graph["tensor_values"].items()}
    assert graph_from_program_json(program, EDGE) == graph_from_record(record, EDGE)
