"""Compare two programs: upstream's `executorch.devtools.pte_tool.diff_pte`.

Methods are compared in their order, and values by their index, without torch.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etscope.errors import EtscopeError, MissingDataError
from etscope.formats.bytes.files import open_source
from etscope.formats.etdump.writer import tensor_storage
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_schema import (
    DelegateCall,
    KernelCall,
    ListValue,
    Method,
    ScalarValue,
    TensorValue,
    ValueKind,
)
from etscope.formats.program.scalar_type import ScalarType
from etscope.support.exits import exit_with
from etscope.support.shown import Shown
from etscope.units import format_bytes

__all__ = [
    "EValueDiff",
    "ElementDiff",
    "ExecutionPlanDiff",
    "FieldDiff",
    "NamedDataDiff",
    "OperatorUsage",
    "PTEDiffResult",
    "TensorDataDiff",
    "TensorInfo",
    "diff_pte",
    "format_diff_result",
]


@dataclass
class OperatorUsage:
    """A use of a value as an argument of an operator, or of "delegate:<backend>"."""

    name: str
    arg_index: int


@dataclass
class TensorInfo:
    """A tensor: its index among the values, type, sizes, name, and place among the constants."""

    evalue_index: int
    scalar_type: ScalarType
    sizes: list[int]
    fqn: str | None
    data_buffer_idx: int
    operator_usages: list[OperatorUsage] = field(default_factory=list)


@dataclass
class FieldDiff:
    """A field with two values."""

    field_name: str
    value_a: Any
    value_b: Any


@dataclass
class ElementDiff:
    """An element of a tensor with two values; `flat_index` counts in the order of its sizes."""

    flat_index: int
    multi_index: tuple[int, ...]
    value_a: float
    value_b: float


@dataclass
class TensorDataDiff:
    """Two tensors at one index. Means and maxima cover the differing elements. NaN equals NaN; NaN
    and a number differ by NaN."""

    tensor_a: TensorInfo
    tensor_b: TensorInfo
    byte_size_a: int
    byte_size_b: int
    bytes_differ: bool
    metadata_diffs: list[FieldDiff] = field(default_factory=list)
    num_elements: int = 0
    num_differing: int = 0
    max_abs_diff: float = 0.0
    mean_abs_diff: float = 0.0
    element_diffs: list[ElementDiff] = field(default_factory=list)


@dataclass
class EValueDiff:
    """Two values at one index that are not both tensors."""

    evalue_index: int
    type_a: str
    type_b: str
    type_mismatch: bool = False
    field_diffs: list[FieldDiff] = field(default_factory=list)
    operator_usages_a: list[OperatorUsage] = field(default_factory=list)
    operator_usages_b: list[OperatorUsage] = field(default_factory=list)


@dataclass
class ExecutionPlanDiff(Shown):
    """Differences of two methods. Equal names, counts and sizes are None.

    `delegates_differ` lists delegates of equal backends with other data or options, as
    "1 XnnpackBackend"; `first_differing_instruction` is the first that calls something else or has
    other arguments.
    """

    plan_index: int
    name_a: str | None = None
    name_b: str | None = None
    operators_only_in_a: list[str] = field(default_factory=list)
    operators_only_in_b: list[str] = field(default_factory=list)
    delegates_only_in_a: list[str] = field(default_factory=list)
    delegates_only_in_b: list[str] = field(default_factory=list)
    non_const_buffer_sizes_a: list[int] | None = None
    non_const_buffer_sizes_b: list[int] | None = None
    value_count_a: int | None = None
    value_count_b: int | None = None
    instruction_count_a: int | None = None
    instruction_count_b: int | None = None
    tensor_diffs: list[TensorDataDiff] = field(default_factory=list)
    evalue_diffs: list[EValueDiff] = field(default_factory=list)
    tensors_only_in_a: list[TensorInfo] = field(default_factory=list)
    tensors_only_in_b: list[TensorInfo] = field(default_factory=list)
    delegates_differ: list[str] = field(default_factory=list)
    first_differing_instruction: int | None = None

    def has_differences(self) -> bool:
        """Return True if the methods differ in anything."""
        return any(
            value not in (None, []) for name, value in vars(self).items() if name != "plan_index"
        )


@dataclass
class NamedDataDiff:
    """A blob that is in one program only ("A" or "B"), or in both ("") with other bytes."""

    key: str
    only_in: str
    bytes_differ: bool = False


@dataclass
class PTEDiffResult(Shown):
    """Differences of two programs. `error`: why one is unreadable."""

    path_a: str
    path_b: str
    size_a: int
    size_b: int
    bitwise_equal: bool
    version_a: int | None = None
    version_b: int | None = None
    plan_diffs: list[ExecutionPlanDiff] = field(default_factory=list)
    extra_plans_in_a: list[str] = field(default_factory=list)
    extra_plans_in_b: list[str] = field(default_factory=list)
    named_data_diffs: list[NamedDataDiff] = field(default_factory=list)
    error: str | None = None


def diff_pte(
    data_a: bytes,
    data_b: bytes,
    path_a: str = "A",
    path_b: str = "B",
    max_samples: int = 10,
) -> PTEDiffResult:
    """Compare the bytes of two programs.

    path_a, path_b: their names in the result. max_samples: most elements to list for a tensor. The
    result's `error` names an unreadable file.
    """
    result = PTEDiffResult(path_a, path_b, len(data_a), len(data_b), data_a == data_b)
    if result.bitwise_equal:
        return result
    try:
        a, b = read_pte(data_a), read_pte(data_b)
    except EtscopeError as error:
        result.error = f"Deserialization failed: {error}"
        return result
    if a.version != b.version:
        result.version_a, result.version_b = a.version, b.version
    for index, (method_a, method_b) in enumerate(zip(a.methods, b.methods, strict=False)):
        found = _diff_methods(_Side(a, method_a), _Side(b, method_b), index, max_samples)
        if found.has_differences():
            result.plan_diffs.append(found)
    shared = min(len(a.methods), len(b.methods))
    result.extra_plans_in_a = [method.name for method in a.methods[shared:]]
    result.extra_plans_in_b = [method.name for method in b.methods[shared:]]
    blobs_a, blobs_b = ({one.key: one.blob for one in program.named_data} for program in (a, b))
    for key in sorted({*blobs_a, *blobs_b}):
        if key not in blobs_a or key not in blobs_b:
            result.named_data_diffs.append(NamedDataDiff(key, "A" if key in blobs_a else "B"))
        elif a.blob(blobs_a[key]) != b.blob(blobs_b[key]):
            result.named_data_diffs.append(NamedDataDiff(key, "", bytes_differ=True))
    return result


class _Side:
    """A method of one of the programs, and the operators that use each of its values."""

    def __init__(self, program: Program, method: Method) -> None:
        self.program = program
        self.method = method
        self.usages: dict[int, list[OperatorUsage]] = {}
        self.calls: list[tuple[Any, ...]] = []  # in comparable form
        for chain in method.chains:
            for instruction in chain.instructions:
                if isinstance(instruction, KernelCall):
                    name = method.operators[instruction.operator].full_name
                elif isinstance(instruction, DelegateCall):
                    name = f"delegate:{method.delegates[instruction.delegate].backend_id}"
                else:
                    self.calls.append((instruction,))
                    continue
                self.calls.append((name, instruction.args))
                for place, index in enumerate(instruction.args):
                    self.usages.setdefault(index, []).append(OperatorUsage(name, place))

    def info(self, index: int, tensor: TensorValue) -> TensorInfo:
        return TensorInfo(
            index,
            tensor.scalar_type,
            list(tensor.sizes),
            tensor.name or None,
            tensor.data_index,
            self.usages.get(index, []),
        )

    def data(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the elements of a constant or initial state; None for any other tensor."""
        try:
            return self.program.constant(self.method.name, index)
        except MissingDataError:
            return None

    def tensors_from(self, start: int) -> list[TensorInfo]:
        return [
            self.info(index, value)
            for index, value in enumerate(self.method.values[start:], start)
            if isinstance(value, TensorValue)
        ]


def _diff_methods(a: _Side, b: _Side, index: int, max_samples: int) -> ExecutionPlanDiff:
    one, other = a.method, b.method
    found = ExecutionPlanDiff(index)
    if one.name != other.name:
        found.name_a, found.name_b = one.name, other.name
    names = [[operator.full_name for operator in side.operators] for side in (one, other)]
    found.operators_only_in_a, found.operators_only_in_b = _only_in(*names)
    names = [[delegate.backend_id for delegate in side.delegates] for side in (one, other)]
    found.delegates_only_in_a, found.delegates_only_in_b = _only_in(*names)
    if one.buffer_sizes != other.buffer_sizes:
        found.non_const_buffer_sizes_a = list(one.buffer_sizes)
        found.non_const_buffer_sizes_b = list(other.buffer_sizes)
    if len(one.values) != len(other.values):
        found.value_count_a, found.value_count_b = len(one.values), len(other.values)
    if len(a.calls) != len(b.calls):
        found.instruction_count_a, found.instruction_count_b = len(a.calls), len(b.calls)
    for number, pair in enumerate(zip(a.calls, b.calls, strict=False)):
        if pair[0] != pair[1]:
            found.first_differing_instruction = number
            break
    for number, (left, right) in enumerate(zip(one.delegates, other.delegates, strict=False)):
        if left.backend_id == right.backend_id and (
            a.program.blob(left.blob) != b.program.blob(right.blob)
            or left.compile_specs != right.compile_specs
        ):
            found.delegates_differ.append(f"{number} {left.backend_id}")
    for number, values in enumerate(zip(one.values, other.values, strict=False)):
        if all(isinstance(value, TensorValue) for value in values):
            tensors = _diff_tensors(a, b, number, max_samples)
            if tensors is not None:
                found.tensor_diffs.append(tensors)
        else:
            evalue = _diff_values(a, b, number)
            if evalue is not None:
                found.evalue_diffs.append(evalue)
    shared = min(len(one.values), len(other.values))
    found.tensors_only_in_a = a.tensors_from(shared)
    found.tensors_only_in_b = b.tensors_from(shared)
    return found


def _only_in(a: Sequence[str], b: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that one list has more often than the other."""
    left, right = Counter(a), Counter(b)
    return sorted((left - right).elements()), sorted((right - left).elements())


# Names of a tensor's fields in the schema -> attributes of `TensorValue`.
_TENSOR_FIELDS = {
    "scalar_type": "scalar_type",
    "storage_offset": "storage_offset",
    "sizes": "sizes",
    "dim_order": "dim_order",
    "requires_grad": "requires_grad",
    "layout": "layout",
    "data_buffer_idx": "data_index",
    "allocation_info": "allocation",
    "shape_dynamism": "dynamism",
    "extra_tensor_info.mutable_data_segments_idx": "mutable_segment",
    "extra_tensor_info.fully_qualified_name": "name",
    "extra_tensor_info.location": "external",
    "extra_tensor_info.device": "device",
}


def _diff_tensors(a: _Side, b: _Side, index: int, max_samples: int) -> TensorDataDiff | None:
    left, right = a.method.values[index], b.method.values[index]
    assert isinstance(left, TensorValue) and isinstance(right, TensorValue)
    fields = [
        FieldDiff(name, _listed(getattr(left, of)), _listed(getattr(right, of)))
        for name, of in _TENSOR_FIELDS.items()
        if getattr(left, of) != getattr(right, of)
    ]
    data_a, data_b = a.data(index), b.data(index)
    bytes_a, bytes_b = (
        b"" if data is None else tensor_storage(data)[2].tobytes() for data in (data_a, data_b)
    )
    has_one_only = (data_a is None) != (data_b is None)
    if not fields and not has_one_only and bytes_a == bytes_b:
        return None
    found = TensorDataDiff(
        a.info(index, left),
        b.info(index, right),
        len(bytes_a),
        len(bytes_b),
        has_one_only or bytes_a != bytes_b,
        fields,
    )
    if data_a is not None and data_b is not None and bytes_a != bytes_b:
        # Compare the first elements of tensors with different sizes.
        count = min(data_a.size, data_b.size)
        one, other = (data.reshape(-1)[:count].astype(np.float64) for data in (data_a, data_b))
        differ = np.flatnonzero((one != other) & ~(np.isnan(one) & np.isnan(other)))
        with np.errstate(invalid="ignore"):
            distance = np.abs(one[differ] - other[differ])
        found.num_elements, found.num_differing = count, len(differ)
        if len(differ):
            found.max_abs_diff, found.mean_abs_diff = float(distance.max()), float(distance.mean())
        for flat in differ[:max_samples].tolist():
            place = tuple(int(at) for at in np.unravel_index(flat, data_a.shape))
            element = ElementDiff(flat, place, float(one[flat]), float(other[flat]))
            found.element_diffs.append(element)
    return found


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _diff_values(a: _Side, b: _Side, index: int) -> EValueDiff | None:
    left, right = a.method.values[index], b.method.values[index]
    if left == right:
        return None
    found = EValueDiff(
        index,
        left.kind.value,
        right.kind.value,
        left.kind is not right.kind,
        operator_usages_a=a.usages.get(index, []),
        operator_usages_b=b.usages.get(index, []),
    )
    if not found.type_mismatch:
        contents = [
            value.value if isinstance(value, ScalarValue) else list(value.items)
            for value in (left, right)
            if isinstance(value, (ScalarValue, ListValue))
        ]
        found.field_diffs.append(FieldDiff(_FIELD.get(left.kind, "items"), *contents))
    return found


# The schema's field with the content of a value; a list has "items".
_FIELD = {
    ValueKind.INT: "int_val",
    ValueKind.BOOL: "bool_val",
    ValueKind.DOUBLE: "double_val",
    ValueKind.STRING: "string_val",
}


# --- text


def format_diff_result(result: PTEDiffResult, verbose: bool = False) -> str:
    """Return the result as text. verbose: with the sizes of tensors in bytes."""
    lines = [
        f"Comparing: {result.path_a} ({format_bytes(result.size_a)}) "
        f"vs {result.path_b} ({format_bytes(result.size_b)})"
    ]
    if result.bitwise_equal:
        return "\n".join([*lines, "Status: bitwise equal"])
    lines.append("Status: NOT bitwise equal")
    if result.error is not None:
        return "\n".join([*lines, f"Error: {result.error}"])
    if result.version_a is not None:
        lines.append(f"Version: {result.version_a} vs {result.version_b}")
    for plan in result.plan_diffs:
        lines += ["", *_plan_lines(plan, verbose)]
    for side, names in (("A", result.extra_plans_in_a), ("B", result.extra_plans_in_b)):
        if names:
            lines += ["", f"Extra plans in {side}: {', '.join(names)}"]
    if result.named_data_diffs:
        lines += ["", "Named data differences:"]
        lines += [
            f"  {one.key!r}: " + (f"only in {one.only_in}" if one.only_in else "bytes differ")
            for one in result.named_data_diffs
        ]
    found_any = result.plan_diffs or result.extra_plans_in_a or result.extra_plans_in_b
    if not found_any and not result.named_data_diffs and result.version_a is None:
        lines.append("The programs' content is equal; they differ in layout or padding.")
    return "\n".join(lines)


def _plan_lines(plan: ExecutionPlanDiff, verbose: bool) -> Iterator[str]:
    names = ""
    if plan.name_a is not None:
        names = f' "{plan.name_a}" (name differs: {plan.name_a!r} vs {plan.name_b!r})'
    yield f"Plan {plan.plan_index}{names}:"
    for what, listed in (
        ("Operators only in A", plan.operators_only_in_a),
        ("Operators only in B", plan.operators_only_in_b),
        ("Delegates only in A", plan.delegates_only_in_a),
        ("Delegates only in B", plan.delegates_only_in_b),
        ("Delegates with other data", plan.delegates_differ),
    ):
        if listed:
            yield f"  {what}: {', '.join(listed)}"
    for what, a, b in (
        ("non_const_buffer_sizes", plan.non_const_buffer_sizes_a, plan.non_const_buffer_sizes_b),
        ("Value count", plan.value_count_a, plan.value_count_b),
        ("Instruction count", plan.instruction_count_a, plan.instruction_count_b),
    ):
        if a is not None:
            yield f"  {what}: {a} vs {b}"
    if plan.first_differing_instruction is not None:
        yield f"  First differing instruction: {plan.first_differing_instruction}"
    if plan.tensor_diffs:
        yield f"  Differing tensors ({len(plan.tensor_diffs)}):"
        for tensor in plan.tensor_diffs:
            yield from _tensor_lines(tensor, verbose)
    if plan.evalue_diffs:
        yield f"  Differing values ({len(plan.evalue_diffs)}):"
        for value in plan.evalue_diffs:
            types = value.type_a
            if value.type_mismatch:
                types = f"type: {value.type_a} vs {value.type_b}"
            yield f"    [idx={value.evalue_index}]  {types}"
            yield from _field_lines(value.field_diffs)
            sides = [("A", value.operator_usages_a)]
            if value.operator_usages_b != value.operator_usages_a:
                sides.append(("B", value.operator_usages_b))
            for side, usages in sides:
                for one in usages:
                    yield f"      used in {side} as arg {one.arg_index} of {one.name}"
    for side, infos in (("A", plan.tensors_only_in_a), ("B", plan.tensors_only_in_b)):
        if infos:
            yield f"  Tensors only in {side} ({len(infos)}):"
            yield from (f"    {_tensor_text(info)}" for info in infos)


def _tensor_lines(tensor: TensorDataDiff, verbose: bool) -> Iterator[str]:
    yield f"    {_tensor_text(tensor.tensor_a)}"
    if verbose:
        yield f"      byte sizes: {tensor.byte_size_a} vs {tensor.byte_size_b}"
    usages = tensor.tensor_a.operator_usages or tensor.tensor_b.operator_usages
    yield from (f"      used as arg {one.arg_index} of {one.name}" for one in usages)
    yield from _field_lines(tensor.metadata_diffs)
    if not tensor.num_differing:
        return
    yield f"      {tensor.num_differing} / {tensor.num_elements} elements differ"
    yield f"      max_abs_diff={tensor.max_abs_diff:.6g}  mean_abs_diff={tensor.mean_abs_diff:.6g}"
    if tensor.element_diffs:
        yield "      first differences:"
    for one in tensor.element_diffs:
        place = ",".join(map(str, one.multi_index))
        distance = abs(one.value_a - one.value_b)
        yield f"        [{place}]: {one.value_a} vs {one.value_b} (diff={distance:.6g})"
    more = tensor.num_differing - len(tensor.element_diffs)
    if tensor.element_diffs and more:
        yield f"        ... and {more} more"


def _field_lines(fields: Sequence[FieldDiff]) -> Iterator[str]:
    return (f"      {one.field_name}: {one.value_a} vs {one.value_b}" for one in fields)


def _tensor_text(info: TensorInfo) -> str:
    kind = "CT" if info.data_buffer_idx > 0 else "T"
    sizes = ",".join(map(str, info.sizes))
    name = f'  "{info.fqn}"' if info.fqn else ""
    return f"[idx={info.evalue_index}]  {kind} {info.scalar_type.name.lower()}[{sizes}]{name}"


def main() -> None:
    """Read two programs from the command line, and print their differences."""
    parser = argparse.ArgumentParser(description="Compare two ExecuTorch .pte files")
    parser.add_argument("file_a", help="first .pte file")
    parser.add_argument("file_b", help="second .pte file")
    parser.add_argument("-v", "--verbose", action="store_true", help="show sizes in bytes, too")
    parser.add_argument(
        "--max-samples", type=int, default=10, help="elements to list for a tensor (%(default)s)"
    )
    options = parser.parse_args()
    result = diff_pte(
        bytes(open_source(options.file_a, "program").buffer),
        bytes(open_source(options.file_b, "program").buffer),
        options.file_a,
        options.file_b,
        max_samples=options.max_samples,
    )
    print(format_diff_result(result, verbose=options.verbose))


if __name__ == "__main__":
    exit_with(main)
