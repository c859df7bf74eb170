"""Programs of .pt2 files as torch's, from what `formats.pt2` has found to run nothing."""

from __future__ import annotations

from typing import Any

import executorch.exir  # noqa: F401  (registers the operators of quantised and edge programs)
import torch
from torch._export.serde import schema
from torch._export.serde.serialize import (
    SerializedArtifact,
    deserialize,
    deserialize_scalar_type,
)
from torch.export import ExportedProgram

from etscope.bridge.failures import innermost
from etscope.bridge.programs.programs import check_kernels, load_tensors
from etscope.errors import FormatError, reading
from etscope.formats.exported_program.exported_json import integer, sequence, union
from etscope.formats.exported_program.pt2 import KIND, Payload, Pt2Program, read_pt2


def load_pt2(data: memoryview, path: str | None = None) -> Any:
    """The `ExportedProgram` of a .pt2 file; a dict of them by method when there are several.

    torch's own loader is not used: it unpickles and evaluates what the file says. Raises what
    `read_pt2` raises, and `FormatError` for what torch cannot rebuild.
    """
    with reading(KIND, path):
        programs = {name: _load(program) for name, program in read_pt2(data, path).items()}
    return next(iter(programs.values())) if list(programs) == ["model"] else programs


def _load(program: Pt2Program) -> ExportedProgram:
    storages: dict[str, torch.Tensor] = {}
    weights = {name: _tensor(one, storages) for name, one in program.weights.items()}
    storages = {}
    constants = {name: _tensor(one, storages) for name, one in program.constants.items()}
    inputs = _sample_inputs(program)
    artifact = SerializedArtifact(program.json, weights, constants, inputs)
    try:
        found: ExportedProgram = deserialize(artifact)
    except Exception as error:
        raise FormatError(
            f"torch cannot rebuild this program: {innermost(error)}", member=program.name
        ) from error
    check_kernels(found)
    return found


def _sample_inputs(program: Pt2Program) -> Any:
    """Arguments by position and by keyword. torch would unpickle bytes in their place."""
    if not len(program.sample_inputs):
        return b""
    inputs = load_tensors(program.sample_inputs)
    if not isinstance(inputs, tuple) or [type(part) for part in inputs] != [tuple, dict]:
        raise FormatError("the sample inputs are not a tuple and a dict", member=program.name)
    return inputs


def _tensor(payload: Payload, storages: dict[str, torch.Tensor]) -> torch.Tensor:
    """A weight as a view of its storage, which it may share."""
    meta = payload.meta
    dtype = deserialize_scalar_type(schema.ScalarType(integer(meta["dtype"], "dtype")))
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
