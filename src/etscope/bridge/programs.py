"""`ExportedProgram`s of torch and ExecuTorch, to and from the members of an ETRecord."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

import numpy as np
import torch
from executorch import exir
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.program._program import (
    _default_decomposition_table,
    _update_exported_program_graph_module,
)
from executorch.exir.serde import export_serialize, schema
from executorch.exir.serde import serialize as exir_serialize
from torch._export.serde import schema as torch_schema
from torch._export.serde.serialize import SerializedArtifact, deserialize, deserialize_scalar_type
from torch._export.verifier import Verifier
from torch.export import ExportedProgram

from etscope.bridge.failures import innermost
from etscope.bridge.reference.reference import NamedProgram, call_names
from etscope.bridge.tensors import StoredWeights, tensor_from_numpy
from etscope.errors import FormatError, RecordError, reading
from etscope.formats.exported_program.exported_json import integer, sequence, union
from etscope.formats.torch_files.pt2_archive import KIND, StoredTensor, read_pt2
from etscope.formats.torch_files.torch_archive import read_tensors
from etscope.model.exported_graph import graph_from_program_json
from etscope.model.graph import Graph

# -- constants in branches of control flow
#
# `y * 2.0` inside a branch of `torch.cond` becomes, on the way to the edge dialect, a tensor that
# is an attribute of the branch. ExecuTorch (to 1.5) cannot serialize those. They are written as a
# call of `aten.full` that makes the same tensor. ExecuTorch reads and runs that.


@contextmanager
def branch_constants_allowed() -> Iterator[None]:
    """Let ExecuTorch's serializer also take tensors of one value as attributes.

    The serializer has no hook for this, so its class is exchanged for the time being.
    """
    original = exir_serialize.GraphModuleSerializer
    exir_serialize.GraphModuleSerializer = _Serializer
    try:
        yield
    finally:
        exir_serialize.GraphModuleSerializer = original


_NO_HANDLE = "0"  # ExecuTorch's UNSET_DEBUG_HANDLE


class _Serializer(exir_serialize.GraphModuleSerializer):  # type: ignore[misc]
    def handle_get_attr(self, node: torch.fx.Node) -> None:
        constant = _constant(node)
        if constant is None:
            return
        value = constant.flatten()[0].item()  # a bool, an int or a float
        dtype = export_serialize._TORCH_TO_SERIALIZE_DTYPE[constant.dtype]
        # Not an operation of the model: it must not share the debug handle and the origins of the
        # operation that uses it.
        metadata: dict[str, str] = {**self.serialize_metadata(node), "debug_handle": _NO_HANDLE}
        metadata.pop("from_node", None)
        self.graph_state.nodes.append(
            schema.Node(
                name=node.name,
                target="torch.ops.aten.full.default",
                inputs=[
                    _argument("size", as_ints=list(constant.shape)),
                    _argument("fill_value", **{f"as_{type(value).__name__}": value}),
                    _argument("dtype", as_scalar_type=dtype),
                ],
                outputs=[
                    schema.Argument.create(
                        as_tensor=self.serialize_tensor_output(node.name, node.meta["val"])
                    )
                ],
                metadata=metadata,
            )
        )

    def serialize_input(self, arg: Any, *rest: Any) -> Any:
        if isinstance(arg, torch.fx.Node) and _constant(arg) is not None:
            return schema.Argument.create(as_tensor=schema.TensorArgument(name=arg.name))
        return super().serialize_input(arg, *rest)


def _constant(node: torch.fx.Node) -> torch.Tensor | None:
    """Return the tensor of a node, if it is an attribute with equal elements."""
    if node.op != "get_attr" or "val" not in node.meta:
        return None
    value = getattr(node.graph.owning_module, node.target, None)
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return None
    is_uniform = value.numel() == 1 or bool((value == value.flatten()[0]).all())
    return value if is_uniform else None


def _argument(name: str, **value: Any) -> Any:
    return schema.NamedArgument(name=name, arg=schema.Argument.create(**value))


# Libraries of operators that ExecuTorch's package has and does not load by itself: part of their
# names in a program, and the module that registers them.
_LIBRARIES = {b".ops.llama.": "executorch.extension.llm.custom_ops.custom_ops"}


def check_kernels(program: ExportedProgram) -> None:
    """Raise `FormatError` for an operator that the dispatcher does not know, in the programs of
    delegates too: other operators of such names are TorchScript's, and some print, write files and
    warn."""
    for target in _targets(program):
        operator = target._op if isinstance(target, EdgeOpOverload) else target
        if isinstance(operator, torch._ops.OpOverload) and not (
            torch._C._dispatch_has_kernel(operator.name())
        ):
            raise FormatError(f"an operator that torch has no kernel of: {operator}")


def _targets(program: ExportedProgram) -> Iterator[object]:
    for module in program.graph_module.modules():
        if isinstance(module, LoweredBackendModule):
            yield from _targets(module.original_module)
        elif isinstance(module, torch.fx.GraphModule):
            yield from (node.target for node in module.graph.nodes)


# Releases before 1.3 call `torch.load` without `weights_only`.
UNPICKLES_FREELY = tuple(map(int, metadata.version("executorch").split(".")[:2])) < (1, 3)


@dataclass(frozen=True, slots=True)
class SerializedProgram:
    """The four members of a program in an ETRecord. An empty member is missing."""

    json: bytes
    state_dict: bytes
    constants: bytes
    example_inputs: bytes


def serialize_program(program: ExportedProgram, name: str) -> SerializedProgram:
    """Serialize a program with ExecuTorch's serializer; `name` is for the message.

    Raises `RecordError` for a program that the serializer refuses.
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
    """Return the JSON of the program's graph alone, parsed: no weights are copied."""
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


def decomposed_program(program: ExportedProgram) -> tuple[NamedProgram, Graph]:
    """Decompose a program as `to_edge` does; return it, and its graph."""
    made = program.run_decompositions(_default_decomposition_table())
    graph = graph_from_program_json(program_json(made, "decomposed"), "decomposed")
    names = [node.name for node in graph.nodes if node.kind == "call_function"]
    return NamedProgram(made, dict(zip(call_names(made), names, strict=True))), graph


def deserialize_program(
    program: SerializedProgram, name: str, weights: StoredWeights | None = None
) -> ExportedProgram:
    """Rebuild the program of a graph of a record, which must have been checked for safety (see
    `formats.torch_files.program_safety`).

    With `weights`, these are its `state_dict`, and stay in the file.
    """
    state = program.state_dict if weights is None else weights.stand_ins()
    artifact = export_serialize.SerializedArtifact(
        program.json, state, program.constants, program.example_inputs
    )
    try:
        for library, module in _LIBRARIES.items():
            if library in program.json:
                import_module(module)
        found: ExportedProgram = exir_serialize.deserialize(artifact)
    except Exception as error:
        age = ""
        with suppress(ValueError, LookupError, TypeError):
            first = json.loads(program.json)["graph_module"]["graph"]["nodes"][0]
            if "name" not in first:  # ExecuTorch 1.0 was the first that wrote it
                age = ", which is of ExecuTorch 0.7 or earlier"
        raise FormatError(
            f"torch cannot rebuild this program{age}: {innermost(error, 500)}",
            member=name,
            hint="the program's graph can be read without torch: etscope graph",
        ) from error
    check_kernels(found)
    if weights is not None:
        found._state_dict = weights
    return found


def _refused(name: str, error: Exception) -> RecordError:
    return RecordError(
        f"ExecuTorch cannot serialize the program {name!r}: {innermost(error, 500)}",
        hint="the record was not written; leave this program out, or change the model",
    )


def edge_programs(edge: Any) -> dict[str, ExportedProgram]:
    """Map each method to its edge program, of an `EdgeProgramManager` or `ExirExportedProgram`."""
    if isinstance(edge, exir.EdgeProgramManager):
        return {method: edge.exported_program(method) for method in sorted(edge.methods)}
    if isinstance(edge, exir.ExirExportedProgram):
        return {"forward": edge.exported_program}
    raise RecordError(f"Unsupported type of edge_dialect_program passed in {type(edge)}.")


def extra_programs(module: Any) -> dict[str, ExportedProgram]:
    """Map each method to its program, of what `ETRecord.add_extra_export_modules` takes."""
    if isinstance(module, ExportedProgram):
        return {"forward": module}
    if isinstance(module, (exir.EdgeProgramManager, exir.ExirExportedProgram)):
        return edge_programs(module)
    raise RecordError(f"Unsupported graph module type. {type(module)}")


def exported_programs(programs: Any) -> dict[str, ExportedProgram]:
    """Map each method to its exported program, of one program or a mapping of them.

    They get separate tables of weights: `to_backend` takes a delegate's weights out of the table
    that the lowered program shares with them.
    """
    found = {"forward": programs} if isinstance(programs, ExportedProgram) else programs
    if not isinstance(found, Mapping) or not all(
        isinstance(program, ExportedProgram) for program in found.values()
    ):
        raise RecordError(
            f"exported_program must be an ExportedProgram or a dict of them, not {type(programs)}"
        )
    for program in found.values():
        program._state_dict = copy.copy(program._state_dict)
        program._constants = copy.copy(program._constants)
    return dict(found)


class _AnyOperator(Verifier):  # type: ignore[misc]
    """Takes any operator: a graph that is only looked at need not be one to run."""

    dialect = "ETSCOPE_ANY"

    def allowed_op_types(self) -> tuple[Any, ...]:
        return (Callable,)


def with_graph(program: ExportedProgram, graph_module: torch.fx.GraphModule) -> ExportedProgram:
    """Return a program with another graph, for example one that a pass made from the program's
    graph. The graph may have any operators."""
    return _update_exported_program_graph_module(
        program, graph_module, override_verifiers=[_AnyOperator]
    )


def program_buffer(program: Any) -> bytes:
    """Return the .pte file of an ExecuTorch program, without leaving a copy in the program."""
    stream = io.BytesIO()
    program.write_to_file(stream)
    return stream.getvalue()


def save_tensors(content: Any) -> bytes:
    """Return the bytes of `torch.save`."""
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def load_tensors(data: memoryview) -> Any:
    """Load tensors, numbers and containers of a `torch.save` file, or of a plain pickle as
    ExecuTorch 1.2 and before wrote. `FormatError` if there is anything else."""
    if bytes(data[:2]) != b"PK":
        return _tensors_from_numpy(read_tensors(data))
    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        raise FormatError(f"torch cannot load these tensors: {innermost(error, 500)}") from error


def _tensors_from_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tensor_from_numpy(value)
    if isinstance(value, dict):
        return {key: _tensors_from_numpy(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors_from_numpy(content) for content in value)
    return value


# -- programs of .pt2 files, which `formats.torch_files.pt2_archive` has checked for code


def load_pt2(data: memoryview, path: str | None = None) -> Any:
    """Load the `ExportedProgram` of a .pt2 file; a dict of them by method when there are several.

    torch's own loader is not used: it unpickles and evaluates content of the file. Raises what
    `read_pt2` raises, and `FormatError` for a program that torch cannot rebuild.
    """
    programs: dict[str, ExportedProgram] = {}
    with reading(KIND, path):
        for name, program in read_pt2(data, path).items():
            storages: dict[str, torch.Tensor] = {}
            weights = {key: _tensor(one, storages) for key, one in program.weights.items()}
            storages = {}
            constants = {key: _tensor(one, storages) for key, one in program.constants.items()}
            inputs: Any = b""
            if len(program.sample_inputs):  # torch would unpickle bytes in their place
                inputs = load_tensors(program.sample_inputs)
                if not isinstance(inputs, tuple) or [type(i) for i in inputs] != [tuple, dict]:
                    raise FormatError(
                        "the sample inputs are not a tuple and a dict", member=program.name
                    )
            try:
                programs[name] = deserialize(
                    SerializedArtifact(program.json, weights, constants, inputs)
                )
            except Exception as error:
                raise FormatError(
                    f"torch cannot rebuild this program: {innermost(error)}", member=program.name
                ) from error
            check_kernels(programs[name])
    return next(iter(programs.values())) if list(programs) == ["model"] else programs


def _tensor(payload: StoredTensor, storages: dict[str, torch.Tensor]) -> torch.Tensor:
    """Make a weight as a view of its storage, which it may share."""
    meta = payload.meta
    dtype = deserialize_scalar_type(torch_schema.ScalarType(integer(meta["dtype"], "dtype")))
    size, stride = _numbers(meta["sizes"]), _numbers(meta["strides"])
    (offset,) = _numbers([meta["storage_offset"]])
    data = storages.get(payload.file)
    if data is None:
        # A copy, as the file must not change below the weights; and frombuffer takes no empty one.
        data = torch.frombuffer(bytearray(payload.data) or bytearray(1), dtype=torch.uint8)
        storages[payload.file] = data[: len(payload.data)]
    count = len(payload.data) // dtype.itemsize
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= count:
        raise FormatError(
            f"a weight of sizes {size} needs element {last:,} of a storage of {count:,}",
            member=payload.file,
        )
    elements = storages[payload.file][: count * dtype.itemsize].view(dtype)
    tensor = elements.as_strided(size, stride, offset if 0 not in size else 0)
    if payload.is_parameter:
        grad = bool(meta["requires_grad"]) and (dtype.is_floating_point or dtype.is_complex)
        return torch.nn.Parameter(tensor, requires_grad=grad)
    return tensor


def _numbers(values: Any) -> list[int]:
    numbers = []
    for value in sequence(values, "sizes"):
        tag, number = union(value)
        if tag != "as_int" or not 0 <= integer(number, "a size") < 1 << 48:
            raise FormatError(f"a weight of size {number!r:.60}")
        numbers.append(number)
    return numbers
