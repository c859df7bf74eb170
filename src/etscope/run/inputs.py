"""The inputs of one method, from whatever a user gives for them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import EtscopeError, MismatchError, UsageError, reading
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_fit import is_same_number, sizes_fit
from etscope.formats.program.pte_schema import Method, ScalarValue, TensorValue, Value, ValueKind
from etscope.formats.program.scalar_type import ScalarType, in_dim_order, scalar_type_of
from etscope.formats.torch_files.tensor_files import TensorFile, read_tensor_file
from etscope.model.exported_graph import record_input_names

# Inputs made of a program's own description of them: the same numbers on each machine.
#
# The native runner makes them, too, by the formula that `docs/inputs.md` gives; so that recorded
# results keep their meaning, it must never change.


MAX_BYTES = 8 << 30  # of one generated tensor

_MASK = (1 << 64) - 1
_INPUT_STEP = 0xD1B54A32D192ED03
_ELEMENT_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_CHUNK = 1 << 18  # elements at a time: what is in between stays in the cache

_FLOATS = frozenset(
    {
        *(ScalarType.HALF, ScalarType.FLOAT, ScalarType.DOUBLE, ScalarType.BFLOAT16),
        *(ScalarType.FLOAT8E5M2, ScalarType.FLOAT8E4M3FN),
        *(ScalarType.FLOAT8E5M2FNUZ, ScalarType.FLOAT8E4M3FNUZ),
    }
)
_BITS = frozenset(
    {
        *(ScalarType.SHORT, ScalarType.INT, ScalarType.LONG, ScalarType.BOOL),
        *(ScalarType.UINT16, ScalarType.UINT32, ScalarType.UINT64),
    }
)
_BYTES = frozenset({ScalarType.BYTE, ScalarType.CHAR})
_SCALARS = frozenset({ValueKind.INT, ValueKind.DOUBLE, ValueKind.BOOL, ValueKind.NULL})


def generate_inputs(program: Program, method: str, seed: int) -> tuple[CaseValue | None, ...]:
    """Inputs of a method, flat: tensors of random numbers, and for the rest the value that the
    program holds (the runtime takes no other).

    Floats are uniform in [-1, 1), bytes in all of their range, other integers 0 or 1, which are
    good indices of any table. Sizes that may vary are as large as they may be. Arrays are dense in
    the order of dimensions that the program expects. Raises `MissingDataError` for a method that
    is not there, `UsageError` for an input of a type that has no such numbers.
    """
    found = program.method(method)
    return tuple(
        _generated(found.values[value], index, seed) for index, value in enumerate(found.inputs)
    )


def _generated(value: Any, index: int, seed: int) -> CaseValue | None:
    if isinstance(value, TensorValue):
        return _generated_tensor(value, index, seed)
    if isinstance(value, ScalarValue) and value.kind in _SCALARS:
        return value.value  # type: ignore[return-value]  # no text, by its kind
    raise UsageError(f"cannot generate input {index}: it is a {value.kind.value}")


def _generated_tensor(tensor: TensorValue, index: int, seed: int) -> npt.NDArray[Any]:
    kind = tensor.scalar_type
    if kind not in _FLOATS | _BITS | _BYTES:
        raise UsageError(f"cannot generate input {index}: {tensor} is of no plain type")
    if min(tensor.sizes, default=0) < 0:
        raise UsageError(
            f"cannot generate input {index}: {tensor} has sizes without a bound",
            hint="give an input",
        )
    # Sizes beside a size of 0 count, too: numpy has limits for them.
    size = kind.nbytes(math.prod(max(size, 1) for size in tensor.sizes))
    if size > MAX_BYTES:
        raise UsageError(
            f"cannot generate input {index}: {tensor} takes {size:,} bytes",
            hint="give an input of smaller sizes",
        )
    count = math.prod(tensor.sizes)
    flat: npt.NDArray[Any] = np.empty(count, kind.numpy_dtype)
    base = _mix(seed + (index + 1) * _INPUT_STEP)
    for start in range(0, count, _CHUNK):
        flat[start : start + _CHUNK] = _values(kind, base, start, min(count - start, _CHUNK))
    return in_dim_order(flat.reshape(tensor.sizes), tensor.dim_order)


def _values(kind: ScalarType, base: int, start: int, count: int) -> npt.NDArray[Any]:
    """Elements `start` to `start + count`, in the order of the sizes."""
    numbers = np.arange(start + 1, start + 1 + count, dtype=np.uint64)
    numbers *= np.uint64(_ELEMENT_STEP)
    numbers += np.uint64(base)
    bits = _mix_all(numbers)
    values: npt.NDArray[Any]
    if kind in _FLOATS:
        # 24 bits: exact in float32. The narrower types round these, to the nearest.
        values = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    elif kind in _BYTES:
        values = (bits >> np.uint64(56)).astype(np.uint8).view(kind.numpy_dtype)
    else:
        values = bits >> np.uint64(63)
    return values


def _mix(number: int) -> int:
    """The end of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
    2014), of a number modulo 2**64."""
    return int(_mix_all(np.array([number & _MASK], np.uint64))[0])


def _mix_all(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed: npt.NDArray[np.uint64] = numbers ^ (numbers >> np.uint64(30))
    mixed *= np.uint64(_FACTORS[0])
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_FACTORS[1])
    mixed ^= mixed >> np.uint64(31)
    return mixed


# Whatever a user gives as one input, as a numpy array or a plain value. torch is not needed: who
# gives its tensors has loaded it.


Leaf = npt.NDArray[Any] | int | float | bool | str | None


def plain_value(value: Any, place: str) -> Leaf:
    """An array, a number, text or None. Arrays and tensors of the CPU are not copied.

    Raises `UsageError`, which begins with `place`, for anything else.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return _native(np.asarray(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _array_of_tensor(torch, value, place)
    if hasattr(value, "__array__"):
        return _native(np.asarray(value))
    raise UsageError(
        f"{place}: a {type(value).__name__} is neither a tensor nor a number",
        hint="give numpy arrays, torch tensors, numbers, or nested tuples, lists and dicts of them",
    )


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same values in the byte order of this machine."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _array_of_tensor(torch: Any, tensor: Any, place: str) -> npt.NDArray[Any]:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise UsageError(
            f"{place}: a tensor that is sparse, quantized or without data",
            hint="give dense tensors with values: tensor.to_dense(), tensor.dequantize()",
        )
    from etscope.bridge.tensors import numpy_from_tensor  # torch is loaded: this is its tensor

    try:
        return numpy_from_tensor(tensor)
    except (TypeError, RuntimeError) as error:  # a type that numpy lacks; a tensor without values
        raise UsageError(f"{place}: cannot read this {tensor.dtype} tensor: {error}") from error


# Nested inputs as a flat list, in the order in which torch's pytree would list them.
#
# A program tells how its inputs nest (`Method.input_tree`, torch's pytree text). By it, a dict's
# values are taken in the order of the keys at export, whatever the order they are given in now.


_DICTS = ("builtins.dict", "collections.OrderedDict")
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Tree:
    """How values nest. `keys` are those of a dict; a leaf, and anything that is not known, has no
    children."""

    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] | None = None

    @property
    def by_key(self) -> dict[Any, Tree]:
        return dict(zip(self.keys or (), self.children, strict=True))


_UNKNOWN = Tree()


@dataclass(frozen=True, slots=True)
class Signature:
    """How the positional and the keyword arguments of a method nest."""

    positional: tuple[Tree, ...] = ()
    keyword: Tree = _UNKNOWN

    def keyword_tree(self, given: Mapping[Any, Any]) -> Tree | None:
        """The tree whose keys are those of `given`: of all the arguments if all are keyword
        arguments, or of the one argument that is a dict; None if neither fits."""
        if not self.positional:
            candidate = self.keyword
        elif len(self.positional) == 1 and not self.keyword.children:
            candidate = self.positional[0]
        else:
            return None
        return candidate if candidate.keys and set(candidate.keys) == set(given) else None

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Of all arguments, in the order of the flat inputs."""
        return self.positional + self.keyword.children


def signature_of(input_tree: str) -> Signature:
    """What `Method.input_tree` says. The runtime does without it, and so do we: what cannot be
    read is as if it were not there."""
    try:
        with reading("input tree"):
            _, root = json.loads(input_tree)
            positional, keyword = _tree(root).children
            return Signature(positional.children, keyword)
    except EtscopeError:
        return Signature()


def _tree(node: Mapping[str, Any]) -> Tree:
    children = tuple(_tree(child) for child in node["children_spec"])
    if node["type"] not in _DICTS:
        return Tree(children)
    keys = tuple(json.loads(node["context"]))
    return Tree(children, keys) if len(set(keys)) == len(keys) == len(children) else _UNKNOWN


def flatten(values: Sequence[Any], trees: Sequence[Tree]) -> list[Any]:
    """The leaves of `values`, each nested as the tree of its place; trees of another number are
    of something else, and not used.

    Raises `MismatchError` for a dict with other keys than at export, `UsageError` for containers
    that nest without end.
    """
    leaves: list[Any] = []
    for value, tree in _pairs(values, trees):
        _collect(value, tree, leaves, 0)
    return leaves


def _pairs(values: Sequence[Any], trees: Sequence[Tree]) -> list[tuple[Any, Tree]]:
    fitting = trees if len(trees) == len(values) else [_UNKNOWN] * len(values)
    return list(zip(values, fitting, strict=True))


def _collect(value: Any, tree: Tree, leaves: list[Any], depth: int) -> None:
    children = _children(value, tree)
    if children is None:
        leaves.append(value)
        return
    if depth == _MAX_DEPTH:
        raise UsageError(f"the inputs nest more than {_MAX_DEPTH} levels deep")
    for child, below in children:
        _collect(child, below, leaves, depth + 1)


def _children(value: Any, tree: Tree) -> list[tuple[Any, Tree]] | None:
    """What a container holds, None for a leaf."""
    if isinstance(value, Mapping):
        return _children_of_mapping(value, tree)
    if isinstance(value, (list, tuple, deque)):
        return _pairs(list(value), tree.children)
    if (known := _known_to_torch(value)) is not None:
        return _pairs(known, tree.children)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # torch.export leaves out what is None
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return _pairs([field for field in fields if field is not None], tree.children)
    return None


def _children_of_mapping(value: Mapping[Any, Any], tree: Tree) -> list[tuple[Any, Tree]]:
    if tree.keys is None:
        return _pairs(list(value.values()), tree.children)
    if set(tree.keys) != set(value):
        raise MismatchError(
            f"a dict with the keys {_shown(value)} where the program was exported with "
            f"{_shown(tree.keys)}"
        )
    return [(value[key], below) for key, below in tree.by_key.items()]


def _shown(keys: Any) -> str:
    return ", ".join(map(repr, keys)) or "none"


def _known_to_torch(value: Any) -> list[Any] | None:
    """The leaves of an object of a class that was registered with torch's pytree."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    leaves = torch.utils._pytree.tree_leaves(value)
    return None if len(leaves) == 1 and leaves[0] is value else list(leaves)


_NUMBERED = re.compile(r"(.*?)(\d+)")

# Flat values, and what each is called by who gave them.
_Named = tuple[Sequence[Any], Sequence[str | None]]


def method_inputs(
    program: Program,
    method: str,
    given: Any,
    *,
    seed: int,
    input_names: Sequence[str] | None = None,
) -> tuple[CaseValue | None, ...]:
    """Inputs that `method` takes, flat, as `etscope.run.job.JobCall` wants them.

    given: None to generate them from `seed`; a path of a file of tensors (or a `TensorFile`); a
        tuple or list of the method's arguments, which may nest as torch's pytree does; a mapping
        of names to values; or a single value.
    input_names: what the method's inputs are called, in order, if it is known.

    Raises `MissingDataError` for a method that is not there; `MismatchError`, with all that is
    wrong, for inputs that the program does not take; `UsageError` for what is no input at all or
    has names that give no order; and what `read_tensor_file` raises.
    """
    found = program.method(method)
    if given is None:
        return generate_inputs(program, method, seed)
    known = input_names if input_names and len(input_names) == len(found.inputs) else None
    values, names = _flat(given, found, known)
    if known is not None and len(values) == len(known):
        names = known
    plain = [
        plain_value(value, place(index, name))
        for index, (value, name) in enumerate(zip(values, names, strict=True))
    ]
    return fitted(plain, names, found, program.source.path)


def file_inputs(
    file: str | TensorFile, program: Program | None, record: RecordView | None, method: str
) -> list[Any]:
    """The inputs of a method from a file of tensors, flat, in the method's order; without a program
    that tells the order, in the file's. Raises what `method_inputs` raises."""
    if program is None:
        return list((read_tensor_file(file) if isinstance(file, str) else file).values)
    names = None if record is None else record_input_names(record, method)
    return list(method_inputs(program, method, file, seed=0, input_names=names))


def _flat(given: Any, method: Method, known: Sequence[str] | None) -> _Named:
    signature = signature_of(method.input_tree)
    if isinstance(given, (str, os.PathLike)):
        given = read_tensor_file(given)
    if isinstance(given, TensorFile):
        return _flat_file(given, signature, known)
    return _flat_values(given, signature, known)


def _flat_file(file: TensorFile, signature: Signature, known: Sequence[str] | None) -> _Named:
    if file.content is not None:
        return _flat_values(file.content, signature, known)
    by_name = {n: v for n, v in zip(file.names, file.values, strict=True) if n is not None}
    if len(by_name) < len(file.values):
        return file.values, file.names
    return _flat_mapping(by_name, signature, known, ordered=file.ordered)


def _flat_values(given: Any, signature: Signature, known: Sequence[str] | None) -> _Named:
    if isinstance(given, Mapping):
        return _flat_mapping(given, signature, known)
    arguments = given if isinstance(given, (list, tuple)) else (given,)
    leaves = flatten(arguments, signature.trees)
    return leaves, [None] * len(leaves)


def _flat_mapping(
    given: Mapping[Any, Any],
    signature: Signature,
    known: Sequence[str] | None,
    *,
    ordered: bool = True,
) -> _Named:
    tree = signature.keyword_tree(given)
    if known is not None and set(known) == set(given):
        keys: Sequence[Any] = list(known)
    elif tree is not None:
        leaves = flatten([given], [tree])
        return leaves, [None] * len(leaves)
    else:
        keys = _ordered_keys(list(given), known, ordered)
    values: list[Any] = []
    names: list[str | None] = []
    for key in keys:
        leaves = flatten([given[key]], ())
        values += leaves
        names += [str(key)] if len(leaves) == 1 else [f"{key}.{n}" for n in range(len(leaves))]
    return values, names


def _ordered_keys(keys: list[Any], known: Sequence[str] | None, ordered: bool) -> list[Any]:
    """The order of values that are not called as the program's inputs are."""
    if known is not None and not set(known).isdisjoint(keys):
        strange = ", ".join(repr(key) for key in keys if key not in known)
        missing = ", ".join(repr(name) for name in known if name not in keys)
        wrong = [f"there is no input {strange}"] if strange else []
        wrong += [f"there is no value for {missing}"] if missing else []
        raise MismatchError(
            f"the names do not fit: {'; '.join(wrong)}", hint=f"inputs are: {', '.join(known)}"
        )
    numbers = _numbers([str(key) for key in keys])
    if numbers is not None:
        return [key for _, key in sorted(zip(numbers, keys, strict=True), key=lambda pair: pair[0])]
    if not ordered:
        raise UsageError(
            f"nothing tells the order of the inputs {', '.join(map(str, keys))}: a safetensors "
            "file keeps none",
            hint="name them as the record's inputs and give the record, or name them with numbers: "
            "0, 1, 2",
        )
    return keys


def _numbers(names: list[str]) -> list[int] | None:
    """The numbers at the ends of the names, if all have one and it tells the order: the rest is
    the same in all, or they count from 0 or 1 without a gap."""
    found = [_NUMBERED.fullmatch(name) for name in names]
    matches = [match for match in found if match is not None]
    if len(matches) < len(names):
        return None
    numbers = [int(match[2]) for match in matches]
    stems = {match[1] for match in matches}
    counting = sorted(numbers) in (list(range(len(names))), list(range(1, len(names) + 1)))
    return numbers if len(set(numbers)) == len(numbers) and (counting or len(stems) == 1) else None


# Whether inputs are what a method takes: asked before anything runs, and all of them.


_MAX_PROBLEMS = 20
_NAMES = {
    ValueKind.INT: "the int",
    ValueKind.BOOL: "the bool",
    ValueKind.DOUBLE: "the float",
    ValueKind.STRING: "the text",
}


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong with one input, and what may help."""

    text: str
    hint: str | None = None


def fitted(
    values: Sequence[Leaf], names: Sequence[str | None], method: Method, program: str | None
) -> tuple[CaseValue | None, ...]:
    """The inputs as the runtime takes them: tensors dense in the order of dimensions that the
    program expects, with the same values.

    `program` is its file, for a hint. Raises `MismatchError` with all that does not fit.
    """
    expected = [method.values[index] for index in method.inputs]
    if len(values) != len(expected):
        raise _mismatch(method, program, [_count_problem(values, expected)])
    problems = [
        _Problem(f"{place(index, names[index])}: {problem.text}", problem.hint)
        for index, (value, wanted) in enumerate(zip(values, expected, strict=True))
        if (problem := _problem(value, wanted)) is not None
    ]
    if problems:
        raise _mismatch(method, program, problems)
    return tuple(map(_ready, values, expected))


def place(index: int, name: str | None) -> str:
    """How messages call an input."""
    return f"input {index}" if name is None else f"input {index} ({name})"


def _mismatch(method: Method, program: str | None, problems: list[_Problem]) -> MismatchError:
    lines = [problem.text for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    listed = "".join(f"\n  {line}" for line in lines) if len(lines) > 1 else f" {lines[0]}"
    hints = [problem.hint for problem in problems if problem.hint is not None]
    if program is not None:
        hints.append(f"what the program takes: etscope info {program}")
    return MismatchError(
        f"these inputs do not fit the method {method.name!r}:{listed}",
        hint="; ".join(hints[-2:]) or None,
    )


def _count_problem(values: Sequence[Leaf], expected: Sequence[Value]) -> _Problem:
    numbers = sum(isinstance(value, (bool, int, float)) for value in values)
    hint = None
    if numbers == len(values) > 0:
        hint = "a list of numbers is a number of inputs; give a numpy array for a tensor"
    return _Problem(
        f"{_counted(values, _shown_value)} where the program takes "
        f"{_counted(expected, _shown_expected)}",
        hint,
    )


def _counted(items: Sequence[Any], shown: Any) -> str:
    plural = "" if len(items) == 1 else "s"
    listed = [shown(item) for item in items[:_MAX_PROBLEMS]]
    more = ", …" if len(items) > _MAX_PROBLEMS else ""
    return f"{len(items)} input{plural}" + (f" ({', '.join(listed)}{more})" if items else "")


def _problem(value: Leaf, wanted: Value) -> _Problem | None:
    """What is wrong with an input, None if nothing is."""
    shown = f"{_shown_value(value)} where the program takes {_shown_expected(wanted)}"
    if isinstance(wanted, TensorValue):
        return _tensor_problem(value, wanted, shown)
    if not isinstance(wanted, ScalarValue):
        return _Problem(f"{shown}, which nothing can be given for")
    if wanted.value is None:
        hint = "what has no value at export, as text, is None in the program; give None"
        return None if value is None else _Problem(shown, hint)
    if is_same_number(_as_number(value), wanted.value):
        return None
    return _Problem(shown, "numbers are fixed at export, and the runtime takes no others")


def _tensor_problem(value: Leaf, wanted: TensorValue, shown: str) -> _Problem | None:
    if not isinstance(value, np.ndarray):
        return _Problem(shown, "give a numpy array or a torch tensor")
    try:
        kind = scalar_type_of(value.dtype)
    except UsageError:
        kind = None
    if kind is not wanted.scalar_type:
        return _Problem(shown, f"array.astype({_shown_type(wanted)}) converts it")
    return None if sizes_fit(value.shape, wanted) else _Problem(shown)


def _shown_type(tensor: TensorValue) -> str:
    """Its type as an argument of `astype`."""
    dtype = tensor.scalar_type.numpy_dtype
    return f'"{dtype.name}"' if dtype.isbuiltin == 1 else f"ml_dtypes.{dtype.name}"


def _as_number(value: Leaf) -> bool | int | float | str | npt.NDArray[Any] | None:
    """What a file or numpy gives as an array without dimensions, as the number it is."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        number: bool | int | float = value.item()
        return number
    return value


def _ready(value: Leaf, wanted: Value) -> CaseValue | None:
    if isinstance(wanted, TensorValue) and isinstance(value, np.ndarray):
        return in_dim_order(value, wanted.dim_order)
    number: Any = _as_number(value)
    is_double = isinstance(wanted, ScalarValue) and wanted.kind is ValueKind.DOUBLE
    ready: CaseValue | None = float(number) if is_double else number
    return ready


def _shown_value(value: Leaf) -> str:
    if isinstance(value, np.ndarray):
        return _shown_array(value)
    if isinstance(value, str):
        return f"the text {value!r:.60}"
    if value is None:
        return "None"
    kind = "bool" if isinstance(value, bool) else type(value).__name__
    return f"the {kind} {value!r:.60}"


def _shown_array(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def _shown_expected(value: Value) -> str:
    if isinstance(value, TensorValue):
        return str(value)
    if isinstance(value, ScalarValue):
        return "None" if value.value is None else f"{_NAMES[value.kind]} {value.value!r:.60}"
    return f"a {value.kind.value}"
