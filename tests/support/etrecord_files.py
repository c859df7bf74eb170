"""ETRecords made for tests: small ones by hand, and real ones with members changed."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EDGE = "edge_dialect_exported_program/forward"
CORPUS = Path(__file__).parents[1] / "corpus" / "etrecord"
OLD_RELEASES = ("0.4.0", "0.7.0", "1.0.1", "1.2.0", "1.3.1", "1.4.1")


def old_record(release: str) -> Path:
    """A record that this release of ExecuTorch wrote."""
    return CORPUS / f"executorch-{release}.etrecord"


def zip_bytes(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def members_of(source: Path | bytes) -> dict[str, bytes]:
    """The members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(source: Path, **edits: bytes | None) -> bytes:
    """The record with members replaced, or left out where None; "__" stands for "/"."""
    members: dict[str, bytes | None] = dict(members_of(source))
    members.update({name.replace("__", "/"): data for name, data in edits.items()})
    return zip_bytes({name: data for name, data in members.items() if data is not None})


def changed_program(
    source: Path, edit: Callable[[dict[str, Any]], object], member: str = EDGE
) -> bytes:
    """The record with the JSON of a program changed in place by `edit`."""
    members = members_of(source)
    program = json.loads(members[member])
    edit(program)
    return zip_bytes({**members, member: json.dumps(program).encode()})


def tensor(*sizes: int | dict[str, Any], dtype: int = 7) -> dict[str, Any]:
    """An entry of `tensor_values`; a size that is not a number is a `SymInt`."""
    shape = [{"as_int": size} if isinstance(size, int) else size for size in sizes]
    return {
        "dtype": dtype,
        "sizes": shape,
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": 1} for _ in shape],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def node(
    name: str,
    target: str = "executorch.exir.dialects.edge.ops.aten.relu.default",
    inputs: tuple[str, ...] = ("x",),
    outputs: tuple[str, ...] | None = None,
    **metadata: str,
) -> dict[str, Any]:
    """A node that takes tensors and gives tensors."""
    return {
        "name": name,
        "target": target,
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": used}}} for used in inputs],
        "outputs": [{"as_tensor": {"name": value}} for value in outputs or (name,)],
        "metadata": metadata,
    }


def program(*nodes: dict[str, Any], **tensors: dict[str, Any]) -> dict[str, Any]:
    """A program of one input, `x`, whose last node's first value is the output."""
    last = nodes[-1]["outputs"][0] if nodes else {"as_tensor": {"name": "x"}}
    return {
        "graph_module": {
            "graph": {
                "inputs": [{"as_tensor": {"name": "x"}}],
                "outputs": [last],
                "nodes": list(nodes),
                "tensor_values": {"x": tensor(2, 3), **tensors},
                "sym_int_values": {},
                "sym_bool_values": {},
                "is_single_tensor_return": False,
                "custom_obj_values": {},
            },
            "signature": {
                "input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
                "output_specs": [{"user_output": {"arg": last}}],
            },
            "module_call_graph": [],
        },
        "opset_version": {"aten": 10},
        "range_constraints": {},
        "schema_version": {"major": 5, "minor": 4},
        "dialect": "",
        "verifiers": ["EDGE"],
    }


def record_bytes(
    content: dict[str, Any] | None = None, compression: int = zipfile.ZIP_STORED, **members: Any
) -> bytes:
    """A record of one method; further members as bytes, or as what their JSON says."""
    everything: dict[str, Any] = {
        "ETRECORD_V0": b"",
        EDGE: content or program(node("relu")),
        f"{EDGE}_state_dict": b"",
        f"{EDGE}_constants": b"",
        f"{EDGE}_example_inputs": b"",
        "debug_handle_map": {"forward": {"0": 1}},
        **{name.replace("__", "/"): data for name, data in members.items()},
    }
    return zip_bytes(
        {
            name: data if isinstance(data, bytes) else json.dumps(data).encode()
            for name, data in everything.items()
            if data is not None
        },
        compression,
    )
