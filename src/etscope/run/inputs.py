"""The inputs of one method, from whatever a user gives for them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etscope.errors import MismatchError, UsageError
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Method
from etscope.formats.torch_files.tensor_files import TensorFile, read_tensor_file
from etscope.model.input_names import record_input_names
from etscope.run._arrays import plain_value
from etscope.run._flatten import Signature, flatten, signature_of
from etscope.run._generate import generate_inputs
from etscope.run._input_validation import fitted, place

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
