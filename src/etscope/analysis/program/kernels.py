"""The kernels that an app must register for a program: their types, and the selective build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import KernelCall, ListValue, Method, TensorValue, ValueKind

_LISTS = (ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST)


def kernel_types(program: Program) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the element types that each kernel gets, by method and operator ("aten::add.out")."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for method, name, tensors in _calls(program):
        types = found.setdefault((method.name, name), {})
        types.update((tensor.scalar_type.torch_name, None) for tensor in tensors)
    return {key: tuple(types) for key, types in found.items()}


def selective_build(programs: Sequence[Program]) -> str:
    """Return YAML for EXECUTORCH_SELECT_OPS_YAML: the operators of the programs, with the types and
    orders of dimensions of each call. The form is as in codegen/tools/gen_oplist.py, and a key is
    described in runtime/kernel/operator_registry.h: "v1/6;0,1|6;0,1" for two float32 matrices."""
    keys: dict[str, set[str]] = {}
    files: dict[str, dict[str, None]] = {}
    for program in programs:
        for _, name, tensors in _calls(program):
            each = (
                f"{int(one.scalar_type)};{','.join(map(str, one.dim_order))}" for one in tensors
            )
            keys.setdefault(name, set()).add(f"v1/{'|'.join(each)}".removesuffix("/"))
            files.setdefault(name, {})[program.source.name] = None
    lines = ["build_features: []", "custom_classes: []", "et_kernel_metadata:"]
    for name in sorted(keys):
        lines += [f"  {name}:", *(f"  - {key}" for key in sorted(keys[name]))]
    lines += ["include_all_non_op_selectives: false", "include_all_operators: false"]
    lines += ["kernel_metadata: {}", "operators:"]
    for name in sorted(keys):
        lines += [f"  {name}:", "    debug_info:", *(f'    - "{file}"' for file in files[name])]
        lines += [f"    {key}" for key in _OPERATOR]
    return "\n".join((*lines, ""))


_OPERATOR = ("include_all_overloads: false", "is_root_operator: true", "is_used_for_training: true")


def _calls(program: Program) -> Iterator[tuple[Method, str, list[TensorValue]]]:
    """Yield the calls of kernels with their tensors; a list has its first one."""
    for method in program.methods:
        for instruction in method.instructions:
            if isinstance(instruction, KernelCall):
                values = (method.values[index] for index in instruction.args)
                name = method.operators[instruction.operator].full_name
                yield method, name, [one for value in values for one in _tensors(method, value)]


def _tensors(method: Method, value: object) -> Iterator[TensorValue]:
    if isinstance(value, TensorValue):
        yield value
    elif isinstance(value, ListValue) and value.kind in _LISTS:
        items = (method.values[int(item)] for item in value.items if item >= 0)
        yield from [one for one in items if isinstance(one, TensorValue)][:1]
