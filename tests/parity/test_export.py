"""The record of an export says what upstream's own flow writes of the same program."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower

from etscope.export import export
from tests.support.etrecord_files import EDGE, members_of
from tests.support.export.factories import Tiny

INPUTS = (torch.linspace(-1, 1, 16).reshape(2, 8),)
MAPS = ("debug_handle_map", "delegate_map", "instruction_id_to_num_outs_map")


def upstreams(model: torch.nn.Module, backend: str) -> Any:
    program = torch.export.export(model, INPUTS, strict=True)
    if backend == "portable":
        return to_edge(program, generate_etrecord=True).to_executorch()
    return to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    ).to_executorch()


def saved(record: Any, tmp_path: Any) -> dict[str, bytes]:
    record.save(str(tmp_path / "record"))
    return members_of(tmp_path / "record")


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
def test_the_program_and_the_record_are_upstreams(backend: str, tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = Tiny().eval()
    theirs = upstreams(model, backend)
    ours = export(model, INPUTS, backend=backend)

    assert ours.program_bytes() == theirs.buffer
    expected = saved(theirs.get_etrecord(), tmp_path)
    members = saved(ours.record, tmp_path)
    for name in MAPS:
        assert json.loads(members[name]) == json.loads(expected[name])
    graphs = [json.loads(one[EDGE])["graph_module"]["graph"] for one in (members, expected)]
    named = [[(node["name"], node["target"]) for node in graph["nodes"]] for graph in graphs]
    assert named[0] == named[1]
    assert all(name in members for name in expected)


def test_upstreams_tools_read_record_and_bundle(tmp_path: Any) -> None:
    from executorch.devtools import parse_etrecord
    from executorch.devtools.bundled_program.serialize import (
        deserialize_from_flatbuffer_to_bundled_program,
    )

    exported = export(Tiny(), INPUTS)
    program, record, bundle = exported.save(tmp_path)

    found = parse_etrecord(str(record))
    assert found._debug_handle_map.keys() == {"forward"}
    torch.testing.assert_close(found._representative_inputs[0], INPUTS[0])
    torch.testing.assert_close(
        found._reference_outputs["forward"][0], list(exported.reference_outputs["forward"])
    )
    read = deserialize_from_flatbuffer_to_bundled_program(bundle.read_bytes())
    assert io.BytesIO(read.program).getvalue() == program.read_bytes()
    assert [suite.method_name for suite in read.method_test_suites] == ["forward"]
