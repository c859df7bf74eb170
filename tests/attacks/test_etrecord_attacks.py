"""Hostile ETRecords: results or typed errors, in bounded time and memory, and nothing is run."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.analysis.info.etrecord_info import slim_etrecord
from etscope.errors import FormatError
from etscope.etrecord import parse_etrecord
from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.exported_graph import graph_from_record
from tests.attacks.hostile import MIB, Call, little_memory
from tests.attacks.mutated_etrecords import touch
from tests.support.artifacts import ROOT, artifacts
from tests.support.etrecord_files import (
    EDGE,
    changed_program,
    members_of,
    node,
    old_record,
    program,
    record_bytes,
    tensor,
    zip_bytes,
)
from tests.support.fuzz import fuzzed

MUTATED = ("two_methods", "cond", "dynamic_shape", "bundled", "cnn_xnnpack_lowered")


def own_record() -> bytes:
    """A record with all members that only etscope writes."""
    artifact = artifacts("cnn_xnnpack_lowered")
    stream = io.BytesIO()
    assert artifact.etrecord is not None
    slim_etrecord(artifact.etrecord, stream)
    method = {"instructions": ["delegate:XnnpackBackend"], "graph_sha256": "ab"}
    prints = {"version": 1, "program_sha256": "ab", "program_bytes": 3, "methods": {"m": method}}
    members = members_of(stream.getvalue())
    graph = members[EDGE]
    return zip_bytes(
        {
            **members,
            "etscope/program_buffer_constants": artifact.pte.read_bytes(),
            "etscope/fingerprints_constants": json.dumps(prints).encode(),
            "etscope/exported_program/m/json_constants": graph,
            "etscope/export_graph_ids_constants": b'{"m": 7}',
        }
    )


@fuzzed(300, nightly=4000)
def test_mutated_records(seed: int, count: int, tmp_path: Path) -> None:
    own = tmp_path / "own.etrecord"
    own.write_bytes(own_record())
    files = [own, old_record("0.4.0"), old_record("1.2.0")]
    files += [artifacts(name).etrecord for name in MUTATED]  # type: ignore[misc]
    command = [sys.executable, "-m", "tests.attacks.mutated_etrecords", str(seed), str(count)]

    child = subprocess.run(
        [*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["peak_mb"] < 128


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for start in (b"", b"PK\3\4", b"PK\5\6"):
        with suppress(FormatError):
            touch(start + data)


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.binary(max_size=50), max_size=6))
def test_any_members(members: dict[str, bytes]) -> None:
    with suppress(FormatError):
        touch(zip_bytes({**members, "ETRECORD_V0": b""}))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=5), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON, st.sampled_from(["debug_handle_map", "delegate_map", "export_graph_id", EDGE]))
def test_any_json(content: Any, member: str) -> None:
    touch(record_bytes(**{member: json.dumps(content).encode()}))


# -- code


def witness_call(witness: Path) -> str:
    return f"open({str(witness)!r}, 'w').close()"


def code_in_a_size(graph: dict[str, Any], call: str) -> None:
    used = graph["inputs"][-1]["as_tensor"]["name"]
    size = {"as_expr": {"expr_str": f"[{call}, 1][1]", "hint": None}}
    graph["tensor_values"][used]["sizes"][0] = size


def code_in_the_name_of_an_input(graph: dict[str, Any], call: str) -> None:
    """torch writes the names of inputs into the source of a function, as they are."""
    used = graph["inputs"][-1]["as_tensor"]["name"]
    name = f"x={call}"
    graph["inputs"][-1]["as_tensor"]["name"] = name
    graph["tensor_values"][name] = graph["tensor_values"].pop(used)
    for call_node in graph["nodes"]:
        for argument in call_node["inputs"]:
            if argument["arg"].get("as_tensor") == {"name": used}:
                argument["arg"]["as_tensor"]["name"] = name


CODE = [code_in_a_size, code_in_the_name_of_an_input]


def record_with_code(plant: Callable[[dict[str, Any], str], None], witness: Path) -> bytes:
    def edit(content: dict[str, Any]) -> None:
        plant(content["graph_module"]["graph"], witness_call(witness))

    source = artifacts("two_methods").etrecord
    assert source is not None
    return changed_program(source, edit, "edge_dialect_exported_program/encode")


@pytest.mark.parametrize("plant", CODE)
def test_code_in_a_program_does_not_run(plant: Any, tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    from etscope.bridge.programs import SerializedProgram, deserialize_program

    data = record_with_code(plant, tmp_path / "ran")
    touch(data)
    with pytest.raises(FormatError, match=r"not a(n expression| name) that torch writes"):
        _ = parse_etrecord(io.BytesIO(data)).edge_dialect_program
    assert list(tmp_path.iterdir()) == []

    # Without the check it would.
    name = "edge_dialect_exported_program/encode"
    text = bytes(read_etrecord(data).program_text(name))
    with suppress(FormatError):
        deserialize_program(SerializedProgram(text, b"", b"", b""), "encode")
    assert [file.name for file in tmp_path.iterdir()] == ["ran"]


@pytest.mark.parametrize("is_archive", [False, True])
@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "member", ["reference_outputs", "representative_inputs", f"{EDGE}_state_dict", EDGE]
)
def test_pickles_do_not_run(member: str, protocol: int, is_archive: bool, tmp_path: Path) -> None:
    data = pickle.dumps({"forward": [Call(tmp_path / "ran")]}, protocol)
    if is_archive:
        data = zip_bytes({"archive/data.pkl": data, "archive/version": b"3\n"})
    source = record_bytes(**{member: data})
    assert touch(source) > 0
    record = parse_etrecord(io.BytesIO(source))
    fields = {"reference_outputs": "_reference_outputs", EDGE: "edge_dialect_program"}
    pytest.importorskip("executorch")
    with pytest.raises(FormatError):
        _ = getattr(record, fields.get(member, "_representative_inputs"))
        _ = record.edge_dialect_program
    assert list(tmp_path.iterdir()) == []


# -- size


def claimed(data: bytes, name: str, size: int) -> bytes:
    """The archive with another unpacked size of a member in its directory."""
    changed = bytearray(data)
    entry = data.index(b"PK\1\2")
    while changed[entry + 46 :].split(b"PK")[0] != name.encode():
        entry = data.index(b"PK\1\2", entry + 1)
    struct.pack_into("<L", changed, entry + 24, size)
    return bytes(changed)


@pytest.mark.parametrize("member", [EDGE, "debug_handle_map", "reference_outputs"])
def test_zip_bombs(member: str) -> None:
    bomb = record_bytes(
        compression=zipfile.ZIP_DEFLATED, **{member: b"[" + b" " * 100 * MIB + b"]"}
    )
    with little_memory(4 * MIB), pytest.raises(FormatError, match="unpacks from"):
        read_etrecord(bomb)
    record = read_etrecord(claimed(bomb, member, 1000))
    with little_memory(4 * MIB), pytest.raises(FormatError, match="declared size"):
        record.archive.read(member)


def test_bombs_in_what_is_small_in_the_file() -> None:
    inner = zip_bytes({"archive/data.pkl": b"N" * 100 * MIB}, zipfile.ZIP_DEFLATED)
    record = read_etrecord(record_bytes(reference_outputs=inner))
    with little_memory(4 * MIB), pytest.raises(FormatError, match="unpacks from"):
        record.reference_outputs()

    bomb = b"[" + b"[]," * 6_000_000 + b"[]]"
    record = read_etrecord(record_bytes(**{EDGE: bomb}))
    with little_memory(100 * MIB), pytest.raises(FormatError, match="values is too large"):
        record.program_json(EDGE)


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_json_deeper_than_the_stack(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    for member in (EDGE, "debug_handle_map", "delegate_map", "etscope/fingerprints_constants"):
        assert touch(record_bytes(**{member: deep})) > 0


def test_branches_within_branches() -> None:
    content = program(node("relu"))
    for _ in range(60):
        cond = node("cond", "torch.ops.higher_order.cond")
        graph = content["graph_module"]["graph"]
        cond["inputs"] = [{"name": "", "arg": {"as_graph": {"name": "g", "graph": graph}}}]
        content = program(cond)
    touch(record_bytes(content))


def test_a_graph_of_one_name() -> None:
    """Names are made different from each other in a time that grows with their number."""
    nodes = [node("relu_1", "torch.ops.aten.relu.default") for _ in range(20_000)]
    record = read_etrecord(record_bytes(program(*nodes)))
    graph = graph_from_record(record, EDGE)
    assert len({call.name for call in graph.nodes}) == len(graph.nodes)


HARD_STACKS = (
    *('File "' * 20_000, 'File "a", line 1, in ' * 20_000, '"' * 100_000 + ", line 1"),
    *('  File "a", line 1\n' * 20_000, " " * 100_000 + "x", "^" * 100_000 + "x"),
)
HARD_MODULES = ("[" * 100_000, "(" * 100_000 + ",,", ",;" * 50_000, ";" * 99_999)


def test_texts_that_are_hard_to_read() -> None:
    for text in HARD_STACKS:
        touch(record_bytes(program(node("relu", stack_trace=text))))
    for text in HARD_MODULES:
        touch(record_bytes(program(node("relu", nn_module_stack=text))))
    size = {"as_expr": {"expr_str": "(" * 8000, "hint": None}}
    assert touch(record_bytes(program(node("relu"), relu=tensor(size)))) == 1
    assert touch(record_bytes(export_graph_id=b"1" * 1_000_000)) > 0
    assert touch(record_bytes(debug_handle_map=b'{"forward": {"' + b"1" * 10_000 + b'": 1}}')) > 0
