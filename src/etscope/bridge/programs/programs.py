"""`ExportedProgram`s of torch and ExecuTorch, to and from the members of an ETRecord."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import torch
from executorch import exir
from executorch.exir.serde import export_serialize
from executorch.exir.serde import serialize as exir_serialize
from torch.export import ExportedProgram

from etscope.bridge.programs.branch_constants import branch_constants_allowed
from etscope.bridge.programs.kernels import check_kernels
from etscope.bridge.programs.weights import StoredWeights
from etscope.bridge.tensors import tensor_from_numpy
from etscope.errors import FormatError, RecordError
from etscope.formats.torch_files.torch_archive import read_tensors

# Releases before 1.3 call `torch.load` without `weights_only`.
UNPICKLES_FREELY = tuple(map(int, metadata.version("executorch").split(".")[:2])) < (1, 3)


@dataclass(frozen=True, slots=True)
class SerializedProgram:
    """The four members that an ETRecord keeps of a program. Empty bytes stand for nothing."""

    json: bytes
    state_dict: bytes
    constants: bytes
    example_inputs: bytes


def serialize_program(program: ExportedProgram, name: str) -> SerializedProgram:
    """The program as ExecuTorch's serializer writes it; `name` is for the message.

    Raises `RecordError` for what the serializer refuses.
    """
    try:
        with branch_constants_allowed():
            artifact = exir_serialize.serialize(program)
    except Exception as error:
        raise _refused(name, error) from error
    return SerializedProgram(
        artifact.exported_program, artifact.state_dict, artifact.constants, artifact.example_inputs
    )


def program_json(program: ExportedProgram, name: str) -> dict[str, Any]:
    """The JSON of the program's graph alone, parsed: no weights are copied."""
    try:
        with branch_constants_allowed():
            serializer = exir_serialize.GraphModuleSerializer(
                program.graph_signature, program.module_call_graph
            )
            module = serializer.serialize(program.graph_module)
        content = export_serialize._dataclass_to_dict(module)
    except Exception as error:
        raise _refused(name, error) from error
    parsed: dict[str, Any] = json.loads(
        json.dumps(
            {
                "graph_module": content,
                "schema_version": {"major": exir_serialize.SCHEMA_VERSION[0]},
                "verifiers": [verifier.dialect for verifier in program.verifiers],
            },
            cls=export_serialize.EnumEncoder,
        )
    )
    return parsed


def deserialize_program(
    program: SerializedProgram, name: str, weights: StoredWeights | None = None
) -> ExportedProgram:
    """The program of a graph of a record that was found safe (see `formats.program_safety`).

    With `weights`, these are its `state_dict`, and stay where they are.
    """
    state = program.state_dict if weights is None else weights.stand_ins()
    artifact = export_serialize.SerializedArtifact(
        program.json, state, program.constants, program.example_inputs
    )
    try:
        found: ExportedProgram = exir_serialize.deserialize(artifact)
    except Exception as error:
        raise FormatError(
            f"torch cannot rebuild this program: {_innermost(error)}",
            member=name,
            hint="its graph can be read without torch: etscope graph",
        ) from error
    check_kernels(found)
    if weights is not None:
        found._state_dict = weights
    return found


def _refused(name: str, error: Exception) -> RecordError:
    return RecordError(
        f"ExecuTorch cannot serialize the program {name!r}: {_innermost(error)}",
        hint="the record was not written; leave this program out, or change the model",
    )


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error)[:500]}"


def edge_programs(edge: Any) -> dict[str, ExportedProgram]:
    """method -> edge program, of an `EdgeProgramManager` or an `ExirExportedProgram`."""
    if isinstance(edge, exir.EdgeProgramManager):
        return {method: edge.exported_program(method) for method in sorted(edge.methods)}
    if isinstance(edge, exir.ExirExportedProgram):
        return {"forward": edge.exported_program}
    raise RecordError(f"Unsupported type of edge_dialect_program passed in {type(edge)}.")


def extra_programs(module: Any) -> dict[str, ExportedProgram]:
    """method -> program, of what `add_extra_export_modules` takes."""
    if isinstance(module, ExportedProgram):
        return {"forward": module}
    if isinstance(module, (exir.EdgeProgramManager, exir.ExirExportedProgram)):
        return edge_programs(module)
    raise RecordError(f"Unsupported graph module type. {type(module)}")


def exported_programs(programs: Any) -> dict[str, ExportedProgram]:
    """method -> exported program, of one program or a mapping of them."""
    if isinstance(programs, ExportedProgram):
        return {"forward": programs}
    if isinstance(programs, Mapping) and all(
        isinstance(program, ExportedProgram) for program in programs.values()
    ):
        return dict(programs)
    raise RecordError(
        f"exported_program must be an ExportedProgram or a dict of them, not {type(programs)}"
    )


def program_buffer(program: Any) -> bytes:
    """The .pte file of an ExecuTorch program, without leaving a second copy in the program."""
    stream = io.BytesIO()
    program.write_to_file(stream)
    return stream.getvalue()


def save_tensors(content: Any) -> bytes:
    """The bytes that `torch.save` gives."""
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def load_tensors(data: memoryview) -> Any:
    """Tensors, numbers and containers of a `torch.save` file, or of a plain pickle as ExecuTorch
    1.2 and before wrote. Nothing else is loaded: `FormatError` if there is anything else."""
    if bytes(data[:2]) != b"PK":
        return _tensors_from_numpy(read_tensors(data))
    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        raise FormatError(f"torch cannot load these tensors: {_innermost(error)}") from error


def _tensors_from_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tensor_from_numpy(value)
    if isinstance(value, dict):
        return {key: _tensors_from_numpy(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors_from_numpy(content) for content in value)
    return value
