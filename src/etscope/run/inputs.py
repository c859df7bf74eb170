"""The inputs of one method: from the values or files of a user, or generated."""

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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.errors import EtscopeError, MismatchError, UsageError, reading
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.input_validation import (
    MAX_LISTED,
    InputProblem,
    Leaf,
    as_program_input,
    check_count,
    check_value,
)
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Method, ScalarValue, TensorValue, ValueKind
from etscope.formats.program.scalar_type import ScalarType, in_dim_order
from etscope.formats.torch_files.tensor_files import TensorFile, read_tensor_file
from etscope.model.exported_graph import record_input_names

if TYPE_CHECKING:
    from etscope.analysis.matching.export import Export

__all__ = ["file_inputs"]

# Flat values, and the user's name for each, None where there is none.
_Named = tuple[Sequence[Any], Sequence[str | None]]


def method_inputs(
    program: Program,
    method: str,
    given: Any,
    *,
    seed: int,
    input_names: Sequence[str] | None = None,
) -> tuple[CaseValue | None, ...]:
    """Return inputs that `method` takes, flat, as in `etscope.run.job.JobCall`: tensors dense in
    the order of dimensions that the program expects.

    given: None to generate them from `seed`; a path of a file of tensors (or a `TensorFile`); a
        tuple or list of the method's arguments, which may nest as torch's pytree does; a mapping
        of names to values; or a single value.
    input_names: the names of the method's inputs, in order, if they are known.

    Raises `MissingDataError` for a method that the program does not have; `MismatchError`, with all
    problems, for inputs that the program does not take; `UsageError` for values that cannot be
    inputs and for names that give no order; and what `read_tensor_file` raises.
    """
    found = program.method(method)
    if given is None:
        return generate_inputs(program, method, seed)
    known = input_names if input_names and len(input_names) == len(found.inputs) else None
    values, names = _flat(given, found, known)
    if known is not None and len(values) == len(known):
        names = known
    places = [
        f"input {index}" if name is None else f"input {index} ({name})"
        for index, name in enumerate(names)
    ]
    plain = [plain_value(value, place) for value, place in zip(values, places, strict=True)]
    expected = [found.values[index] for index in found.inputs]
    wrong = check_count(plain, expected)
    if wrong is not None:
        raise _mismatch(program, method, [wrong.text], [wrong])
    problems = {
        place: problem
        for place, value, wanted in zip(places, plain, expected, strict=True)
        if (problem := check_value(value, wanted)) is not None
    }
    if problems:
        lines = [f"{place}: {problem.text}" for place, problem in problems.items()]
        raise _mismatch(program, method, lines, list(problems.values()))
    return tuple(map(as_program_input, plain, expected))


def _mismatch(
    program: Program, method: str, lines: list[str], problems: list[InputProblem]
) -> MismatchError:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    shown = [*lines[:MAX_LISTED], *more]
    listed = "".join(f"\n  {line}" for line in shown) if len(shown) > 1 else f" {shown[0]}"
    hints = [problem.hint for problem in problems if problem.hint is not None]
    if program.source.path is not None:
        hints.append(f"etscope info {program.source.path} shows what the program takes")
    return MismatchError(
        f"these inputs do not fit the method {method!r}:{listed}",
        hint="; ".join(hints[-2:]) or None,
    )


def file_inputs(file: str | TensorFile, export: Export, method: str) -> list[Any]:
    """Return the inputs of a method from a file of tensors, flat, in the method's order; without a
    program, in the file's order. Raises what `method_inputs` raises."""
    program, record = export.recorded_program, export.record
    if program is None:
        return list((read_tensor_file(file) if isinstance(file, str) else file).values)
    names = None if record is None else record_input_names(record, method)
    return list(method_inputs(program, method, file, seed=0, input_names=names))


def plain_value(value: Any, place: str) -> Leaf:
    """Convert one input to an array, a number, text or None. Arrays and tensors of the CPU are not
    copied, and torch is not imported: a caller that has its tensors has loaded it.

    Raises `UsageError`, which begins with `place`, for anything else.
    """
    is_numpy = isinstance(value, (np.ndarray, np.generic))  # np.float64 is a float, too
    if value is None or (isinstance(value, (bool, int, float, str)) and not is_numpy):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            raise UsageError(
                f"{place}: a tensor that is sparse, quantized or without data",
                hint="give dense tensors with values: tensor.to_dense(), tensor.dequantize()",
            )
        from etscope.bridge.tensors import numpy_from_tensor

        try:
            return numpy_from_tensor(value)
        except (TypeError, RuntimeError) as error:  # a type that numpy lacks, or no values
            raise UsageError(f"{place}: cannot read this {value.dtype} tensor: {error}") from error
    if is_numpy or hasattr(value, "__array__"):
        array = np.asarray(value)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    raise UsageError(
        f"{place}: a {type(value).__name__} is neither a tensor nor a number",
        hint="give numpy arrays, torch tensors, numbers, or nested tuples, lists and dicts of them",
    )


# -- nested inputs as a flat list, in the order of torch's pytree
#
# A program has the nesting of its inputs (`Method.input_tree`, torch's pytree text). A dict's
# values are taken in the order of the keys at export, whatever their order now.

_DICTS = ("builtins.dict", "collections.OrderedDict")
_MAX_DEPTH = 200  # each level takes a few of Python's 1,000 frames


@dataclass(frozen=True, slots=True)
class Tree:
    """The nesting of one argument. `keys`: the keys of a dict; a leaf, and an unknown container,
    has no children.
    """

    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] | None = None

    def children_of(self, value: Any) -> list[tuple[Any, Tree]] | None:
        """Return the content of a container, each part with its tree; None for a leaf."""
        if isinstance(value, Mapping):
            if self.keys is None:
                return _pairs(list(value.values()), self.children)
            if set(self.keys) != set(value):
                here, there = (", ".join(map(repr, keys)) or "none" for keys in (value, self.keys))
                raise MismatchError(
                    f"a dict with the keys {here} where the program was exported with {there}"
                )
            return [
                (value[key], below) for key, below in zip(self.keys, self.children, strict=True)
            ]
        if isinstance(value, (list, tuple, deque)):
            return _pairs(list(value), self.children)
        torch = sys.modules.get("torch")
        if torch is not None:  # classes that were registered with torch's pytree
            found = torch.utils._pytree.tree_leaves(value)
            if len(found) != 1 or found[0] is not value:
                return _pairs(list(found), self.children)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            # torch.export leaves out fields that are None
            fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
            return _pairs([field for field in fields if field is not None], self.children)
        return None


_UNKNOWN = Tree()


@dataclass(frozen=True, slots=True)
class Signature:
    """The nesting of the positional and the keyword arguments of a method."""

    positional: tuple[Tree, ...] = ()
    keyword: Tree = _UNKNOWN

    def keyword_tree(self, given: Mapping[Any, Any]) -> Tree | None:
        """Return the tree with the keys of `given`: of all the arguments if all are keyword
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
        """Trees of all arguments, in the order of the flat inputs."""
        return self.positional + self.keyword.children


def signature_of(input_tree: str) -> Signature:
    """Parse `Method.input_tree`. The runtime does without it, so a text that cannot be read gives
    an empty signature."""
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
    """Return the leaves of `values`, each nested as its tree; if there are more or fewer trees than
    values, they belong to something else and are not used.

    Raises `MismatchError` for a dict with other keys than at export, `UsageError` for containers
    nested deeper than 200 levels.
    """
    leaves: list[Any] = []
    for value, tree in _pairs(values, trees):
        _collect(value, tree, leaves, 0)
    return leaves


def _pairs(values: Sequence[Any], trees: Sequence[Tree]) -> list[tuple[Any, Tree]]:
    fitting = trees if len(trees) == len(values) else [_UNKNOWN] * len(values)
    return list(zip(values, fitting, strict=True))


def _collect(value: Any, tree: Tree, leaves: list[Any], depth: int) -> None:
    children = tree.children_of(value)
    if children is None:
        leaves.append(value)
        return
    if depth == _MAX_DEPTH:
        raise UsageError(f"the inputs nest more than {_MAX_DEPTH} levels deep")
    for child, below in children:
        _collect(child, below, leaves, depth + 1)


def _flat(given: Any, method: Method, known: Sequence[str] | None) -> _Named:
    signature = signature_of(method.input_tree)
    if isinstance(given, (str, os.PathLike)):
        given = read_tensor_file(given)
    ordered = True
    if isinstance(given, TensorFile):
        file = given
        given = file.content
        if given is None:
            given = {n: v for n, v in zip(file.names, file.values, strict=True) if n is not None}
            ordered = file.ordered
            if len(given) < len(file.values):
                return file.values, file.names
    if isinstance(given, Mapping):
        return _flat_mapping(given, signature, known, ordered)
    arguments = given if isinstance(given, (list, tuple)) else (given,)
    leaves = flatten(arguments, signature.trees)
    return leaves, [None] * len(leaves)


def _flat_mapping(
    given: Mapping[Any, Any], signature: Signature, known: Sequence[str] | None, ordered: bool
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
    """Order values with other names than the program's inputs: by the numbers at the ends of the
    names, else in the given order."""
    if known is not None and not set(known).isdisjoint(keys):
        strange = ", ".join(repr(key) for key in keys if key not in known)
        missing = ", ".join(repr(name) for name in known if name not in keys)
        wrong = [f"the program has no input {strange}"] if strange else []
        wrong += [f"a value for {missing} is missing"] if missing else []
        raise MismatchError(
            f"the names do not fit: {'; '.join(wrong)}", hint=f"inputs are: {', '.join(known)}"
        )
    matches = [match for key in keys if (match := _NUMBERED.fullmatch(str(key))) is not None]
    numbers = [int(match[2]) for match in matches]
    stems = {match[1] for match in matches}
    counting = sorted(numbers) in (list(range(len(keys))), list(range(1, len(keys) + 1)))
    # The rest of the name is the same in all, or they count from 0 or 1 without a gap.
    if len(set(numbers)) == len(keys) and (counting or len(stems) == 1):
        return [key for _, key in sorted(zip(numbers, keys, strict=True), key=lambda pair: pair[0])]
    if not ordered:
        raise UsageError(
            f"the order of the inputs {', '.join(map(str, keys))} is not known: a safetensors "
            "file keeps none",
            hint="name the tensors as the record's inputs and give the record, or name them "
            "with numbers: 0, 1, 2",
        )
    return keys


_NUMBERED = re.compile(r"(.*?)(\d+)")

# -- generated inputs: the same numbers on each machine
#
# The native runner has the same formula (`docs/how-to/run.md`). It must never change: recorded
# results would lose their meaning.

MAX_BYTES = 8 << 30  # of one generated tensor

_MASK = (1 << 64) - 1
_INPUT_STEP = 0xD1B54A32D192ED03
_ELEMENT_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_CHUNK = 1 << 18  # elements at a time: intermediate values stay in the cache

_FLOATS = frozenset(
    {
        *(ScalarType.HALF, ScalarType.FLOAT, ScalarType.DOUBLE, ScalarType.BFLOAT16),
        *(ScalarType.FLOAT8E5M2, ScalarType.FLOAT8E4M3FN),
        *(ScalarType.FLOAT8E5M2FNUZ, ScalarType.FLOAT8E4M3FNUZ),
    }
)
_COMPLEX = frozenset({ScalarType.COMPLEX64, ScalarType.COMPLEX128})
_BITS = frozenset(
    {
        *(ScalarType.SHORT, ScalarType.INT, ScalarType.LONG, ScalarType.BOOL),
        *(ScalarType.UINT16, ScalarType.UINT32, ScalarType.UINT64),
    }
)
_BYTES = frozenset({ScalarType.BYTE, ScalarType.CHAR})
_SCALARS = frozenset({ValueKind.INT, ValueKind.DOUBLE, ValueKind.BOOL, ValueKind.NULL})


def generate_inputs(program: Program, method: str, seed: int) -> tuple[CaseValue | None, ...]:
    """Generate inputs of a method, flat: tensors of random numbers, and for other inputs the value
    in the program (the runtime takes no other).

    Floats are uniform in [-1, 1), and so are the two parts of complex numbers; bytes in all of
    their range; other integers 0 or 1, which are good indices of any table. Sizes that may vary
    have their largest value. Arrays are dense in the order of dimensions that the program expects.
    Raises `MissingDataError` for a method that the program does not have, `UsageError` for an input
    of a type without such numbers.
    """
    found = program.method(method)
    inputs: list[CaseValue | None] = []
    for index, value in enumerate(found.values[i] for i in found.inputs):
        if isinstance(value, TensorValue):
            inputs.append(_generated_tensor(value, index, seed))
        elif isinstance(value, ScalarValue) and value.kind in _SCALARS:
            inputs.append(value.value)  # type: ignore[arg-type]  # not text, by its kind
        else:
            raise UsageError(f"cannot generate input {index}: it is a {value.kind.value}")
    return tuple(inputs)


def _generated_tensor(tensor: TensorValue, index: int, seed: int) -> npt.NDArray[Any]:
    kind = tensor.scalar_type
    if kind not in _FLOATS | _COMPLEX | _BITS | _BYTES:
        raise UsageError(f"cannot generate input {index}: {tensor} is packed or quantized")
    if min(tensor.sizes, default=0) < 0:
        raise UsageError(
            f"cannot generate input {index}: {tensor} has sizes without a bound",
            hint="give an input",
        )
    # With a size of 0 the other sizes count, too: numpy has limits for them.
    size = kind.nbytes(math.prod(max(size, 1) for size in tensor.sizes))
    if size > MAX_BYTES:
        raise UsageError(
            f"cannot generate input {index}: {tensor} takes {size:,} bytes",
            hint="give an input of smaller sizes",
        )
    flat: npt.NDArray[Any] = np.empty(math.prod(tensor.sizes), kind.numpy_dtype)
    parts = flat.view(flat.real.dtype) if kind in _COMPLEX else flat  # a number for each part
    base = int(_mix(np.array([(seed + (index + 1) * _INPUT_STEP) & _MASK], np.uint64))[0])
    for start in range(0, len(parts), _CHUNK):
        stop = min(start + _CHUNK, len(parts))
        numbers = np.arange(start + 1, stop + 1, dtype=np.uint64)
        numbers *= np.uint64(_ELEMENT_STEP)
        numbers += np.uint64(base)
        bits = _mix(numbers)
        if kind in _FLOATS | _COMPLEX:
            # 24 bits: exact in float32. The narrower types round these, to the nearest.
            floats = (bits >> np.uint64(40)).astype(np.float32)
            parts[start:stop] = floats * np.float32(2**-23) - np.float32(1)
        elif kind in _BYTES:
            parts[start:stop] = (bits >> np.uint64(56)).astype(np.uint8).view(kind.numpy_dtype)
        else:
            parts[start:stop] = bits >> np.uint64(63)
    return in_dim_order(flat.reshape(tensor.sizes), tensor.dim_order)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the last step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, 2014), modulo 2**64."""
    mixed: npt.NDArray[np.uint64] = numbers ^ (numbers >> np.uint64(30))
    mixed *= np.uint64(_FACTORS[0])
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_FACTORS[1])
    mixed ^= mixed >> np.uint64(31)
    return mixed
