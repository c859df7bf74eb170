"""All operators on the runtime beside PyTorch, with the samples of PyTorch's own operator tests.

    python -m tests.support.faults.operator_samples [--part 1/20] [--xnnpack] [NAME…] > night.jsonl

PyTorch's table `op_db` has some samples for each of its 700 operators and each dtype, most with
arguments or numbers at the edges. What can be exported runs; a JSON line for each operator and
dtype has the number of samples that ran, and the samples that differ without being in the table of
`etscope.analysis.faults.operators`. Some hours for all.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice
from typing import Any
from unittest.mock import patch

import torch
from torch.utils import _pytree as pytree

from etscope.analysis.faults.faults import possible_faults
from tests.support.faults.operator_cases import Case, differs, tried

DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool
)  # fmt: skip
_MOST_SAMPLES, _MOST_ELEMENTS = 20, 10_000
_ROUNDINGS = 25  # times the tolerance of one operation: sums, products of matrices


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of a tensor among a program's inputs."""

    number: int


@cache
def operators() -> Mapping[str, Any]:
    """Return PyTorch's operators by name: "add", "nn.functional.conv2d", "std.unbiased"."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {}
    for op in op_db:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        named[name] = op
    return named


def cases_of(op: Any, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], dict[str, Case]]:
    """Return the inputs of a program with all samples of an operator, and the calls by number.

    Left out are large samples, results that are not tensors, and random results.
    """
    inputs: list[torch.Tensor] = []
    cases: dict[str, Case] = {}
    torch.manual_seed(0)
    given = (op.sample_inputs, op.reference_inputs)
    for sample in islice(chain(*(make("cpu", dtype) for make in given)), 4 * _MOST_SAMPLES):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if sum(one.numel() for one in tensors) > _MOST_ELEMENTS:
            continue
        slots = iter(range(len(inputs), len(inputs) + len(tensors)))
        leaves = [_Slot(next(slots)) if isinstance(one, torch.Tensor) else one for one in leaves]
        case = partial(_called, op.op, leaves, spec)
        if _is_function([*inputs, *tensors], case):
            like = {"memory_format": torch.contiguous_format}  # the runtime ends for others
            inputs += [one.detach().clone(**like) for one in tensors]
            cases[f"{len(cases)}"] = case
            if len(cases) == _MOST_SAMPLES:
                break
    return tuple(inputs), cases


def _called(op: Any, leaves: list[Any], spec: pytree.TreeSpec, *inputs: torch.Tensor) -> Any:
    filled = [inputs[one.number] if isinstance(one, _Slot) else one for one in leaves]
    first, args, kwargs = pytree.tree_unflatten(filled, spec)
    return op(first, *args, **kwargs)


def _is_function(inputs: list[torch.Tensor], case: Case) -> bool:
    """Return True if two calls give the same tensors, without the seed that some samples set."""
    try:
        with patch("torch.manual_seed", lambda seed: torch.seed()):
            first, second = (pytree.tree_leaves(case(*inputs)) for _ in range(2))
    except Exception:  # a sample that this build refuses
        return False
    if not first or not all(
        isinstance(one, torch.Tensor) and not one.is_complex() for one in first
    ):
        return False
    return not any(differs(*pair) for pair in zip(first, second, strict=True))


def unnamed_samples(name: str, dtype: torch.dtype, xnnpack: bool) -> dict[str, Any]:
    """Try the samples of an operator. Returns the number that ran, and those that differ although
    no different operator is known for them, with their arguments."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    inputs, cases = cases_of(operators()[name], dtype)
    found: dict[str, Any] = {"samples": len(cases), "ran": 0, "differ": {}}
    if not cases or not any(True for _ in tried(inputs, _first(cases), xnnpack=xnnpack)):
        return found  # as a rule, what cannot be exported once never can
    counts: list[str] = []
    for case, made, is_other in tried(inputs, cases, ran=counts.extend, roundings=_ROUNDINGS,
                                      xnnpack=xnnpack):  # fmt: skip
        if is_other and not possible_faults(made):
            found["differ"][case] = _text(inputs, cases[case])
    found["ran"] = len(counts)
    return found


def _first(cases: Mapping[str, Case]) -> dict[str, Case]:
    return dict(islice(cases.items(), 1))


def _text(inputs: tuple[torch.Tensor, ...], case: Any) -> str:
    """The arguments of a sample: shapes of tensors, all other values."""
    texts = []
    for leaf in case.args[1]:
        is_tensor = isinstance(leaf, _Slot)
        texts.append(str([*inputs[leaf.number].shape]) if is_tensor else str(leaf))
    return ", ".join(texts)[:200]


def night(names: list[str], *, xnnpack: bool) -> Iterator[dict[str, Any]]:
    """Yield the result of each operator and dtype. A process that ends is told, and begun anew."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context)
    wanted = {name: operators()[name].dtypes for name in names}
    for dtype in DTYPES:
        for name in [name for name, dtypes in wanted.items() if dtype in dtypes]:
            about = {"operator": name, "dtype": str(dtype).removeprefix("torch.")}
            try:
                found = pool.submit(unnamed_samples, name, dtype, xnnpack).result()
            except BrokenProcessPool:
                found = {"error": "the process ended"}
                pool = ProcessPoolExecutor(1, mp_context=context)
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"[:200]}
            if found.get("ran") == 0:
                del wanted[name]  # there is no kernel: neither for the other dtypes
            yield about | found
    pool.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="each M-th operator from N on")
    parser.add_argument("--xnnpack", action="store_true")
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    wanted = chosen.names or [*operators()][part - 1 :: parts]
    for line in night(wanted, xnnpack=chosen.xnnpack):
        print(json.dumps(line), flush=True)
