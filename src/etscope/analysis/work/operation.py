"""Values of the count of work: an operator with the sizes of its tensors, and its work.

A multiply-add is two operations, as in `torch.utils.flop_counter`. Operations on integers count
like those on floats. Bytes are those that an operator reads and writes itself, each tensor once: no
cache is assumed, and none is denied.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import scalar_type_of

WEIGHT, ACTIVATION, STATE = "weight", "activation", "state"

# Operators of these namespaces have formulas; all others are unknown, whatever their name.
_NAMED = re.compile(
    r"(?:executorch\.exir\.dialects\.(?:edge|backend)\.ops\.|torch\.ops\.)?(\w+)(?:\.|::)(\w+)"
)
_COPIES = frozenset({"index_copy"})  # not the copying form of a view
_MOST = 1 << 60  # elements; a file may claim any
_SUB_BYTE = re.compile(r"u?int([1-7])")


class UnfitError(Exception):
    """The arguments of an operator do not fit the formula for it, or a size is not known."""


@lru_cache(maxsize=4096)
def operator_name(target: str) -> tuple[str, str]:
    """Return the name to look up formulas ("aten.add"), and the operator's own name.

    target: as in a graph ("torch.ops.aten.add_.Tensor", "executorch.exir.dialects.edge.ops.aten.
    view_copy.default") or a program ("aten::add.out"). The first name is without overload, outer
    underscores and "_copy"; the second is "add_", "view_copy", "add".
    """
    found = _NAMED.match(target)
    if found is None:
        return target, target
    plain = found[2].strip("_")
    return f"{found[1]}.{plain if plain in _COPIES else plain.removesuffix('_copy')}", found[2]


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A tensor that an operator reads or writes. Each value is one object: reading one value twice
    differs from reading two equal values.

    dtype: torch's name without the prefix. role: "weight" (a constant), "state" (a buffer that the
    method writes, and keeps between runs) or "activation". stored: its bytes, if they are not those
    of its elements: weights with the scales of their channels.
    """

    dtype: str
    sizes: tuple[int, ...]
    role: str = ACTIVATION
    stored: int | None = None

    @property
    def elements(self) -> int:
        """The number of elements. Raises `UnfitError` if no memory could hold them."""
        elements = math.prod(self.sizes)
        if not 0 <= elements < _MOST:
            raise UnfitError(f"a tensor of {len(self.sizes)} dimensions that is too large")
        return elements

    @property
    def nbytes(self) -> int:
        """Bytes of all elements. Raises `UnfitError` for an unknown type of elements."""
        return self.bytes_of(self.elements) if self.stored is None else self.stored

    def bytes_of(self, elements: int) -> int:
        """Bytes of some of its elements, at most all."""
        if self.stored is not None:
            return min(self.stored, -(-self.stored * elements // max(1, self.elements)))
        elements = min(elements, self.elements)
        packed = _SUB_BYTE.fullmatch(self.dtype)
        if packed is not None:
            return -(-elements * int(packed[1]) // 8)
        try:
            return scalar_type_of(self.dtype).nbytes(elements)
        except UsageError as error:
            raise UnfitError(error.message) from error

    def size(self, dimension: int) -> int:
        """The size of a dimension. Raises `UnfitError` if there is none."""
        if not -len(self.sizes) <= dimension < len(self.sizes):
            raise UnfitError(f"a tensor of {len(self.sizes)} dimensions")
        return self.sizes[dimension]


# A tensor, a list of tensors (None for one that is left out), or a number, text or list of these;
# a number that is not known is its name in the graph.
Argument = Operand | tuple["Operand | None", ...] | int | float | str | list[int | str] | None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with the sizes of its tensors.

    name: as of `operator_name`, to look up its formula; own_name: with "_copy" and "_".
    arguments: by name in the operator's schema, "" where that is not known: they are then in its
    order. outputs: its tensors. is_view: it is known to copy nothing.
    """

    name: str
    own_name: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: tuple[Operand, ...]
    is_view: bool = False

    def argument(self, position: int, name: str) -> Argument:
        """The argument of that name in the schema, or at its position; None if left out."""
        for own, value in self.arguments:
            if own == name:
                return value
        if position < len(self.arguments) and not self.arguments[position][0]:
            return self.arguments[position][1]
        return None

    def tensor(self, position: int, name: str) -> Operand:
        """`argument`, which has to be a tensor. Raises `UnfitError` if it is not."""
        value = self.argument(position, name)
        if not isinstance(value, Operand):
            raise UnfitError(f"{self.name} without the tensor {name}")
        return value

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """All tensors that it takes, each once, in order."""
        found: dict[int, Operand] = {}
        for _, value in self.arguments:
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Operand):
                    found.setdefault(id(one), one)
        return tuple(found.values())

    @property
    def input(self) -> Operand:
        """The first tensor that it takes. Raises `UnfitError` without one."""
        if not self.inputs:
            raise UnfitError(f"{self.name} without a tensor")
        return self.inputs[0]

    @property
    def output(self) -> Operand:
        """The first tensor that it gives. Raises `UnfitError` without one."""
        if not self.outputs:
            raise UnfitError(f"{self.name} that gives no tensor")
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that are read and written, by what they are. Weights are only read."""

    weights: float = 0
    activations_read: float = 0
    activations_written: float = 0
    state_read: float = 0
    state_written: float = 0

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def total(self) -> float:
        return self.weights + self.activations + self.state

    @property
    def activations(self) -> float:
        return self.activations_read + self.activations_written

    @property
    def state(self) -> float:
        return self.state_read + self.state_written

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.weights + other.weights,
            self.activations_read + other.activations_read,
            self.activations_written + other.activations_written,
            self.state_read + other.state_read,
            self.state_written + other.state_written,
        )

    def times(self, factor: float) -> Traffic:
        """Return the bytes of that many runs."""
        return Traffic(
            self.weights * factor,
            self.activations_read * factor,
            self.activations_written * factor,
            self.state_read * factor,
            self.state_written * factor,
        )

    @classmethod
    def of(
        cls, read: Iterable[tuple[Operand, float]], written: Iterable[tuple[Operand, float]]
    ) -> Traffic:
        """Return the sum of tensors, each with the bytes of it that are read or written."""
        places = ((role, out) for role in (WEIGHT, ACTIVATION, STATE) for out in (False, True))
        by_role: dict[tuple[str, bool], float] = dict.fromkeys(places, 0)
        for is_output, tensors in ((False, read), (True, written)):
            for tensor, count in tensors:
                by_role[tensor.role, is_output] += count
        return cls(
            weights=by_role[WEIGHT, False] + by_role[WEIGHT, True],
            activations_read=by_role[ACTIVATION, False],
            activations_written=by_role[ACTIVATION, True],
            state_read=by_role[STATE, False],
            state_written=by_role[STATE, True],
        )


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class Work:
    """The known work of an operator, or of several together.

    flops, traffic: sums over the operators with known ones. inner: bytes that operators of a
    delegate's call hand to one another, which are not a part of `traffic`: they may stay in a
    cache. unknown: names of the operators with unknown FLOPs. is_bound: counted for the largest
    sizes that the program allows, because the run's are unknown. dtypes: the FLOPs by the type of
    numbers that they are computed in, sorted: for a quantized product "int8" or "8da4w".
    """

    flops: float = 0
    traffic: Traffic = NO_TRAFFIC
    inner: float = 0
    unknown: tuple[str, ...] = ()
    is_bound: bool = False
    dtypes: tuple[tuple[str, float], ...] = ()

    @property
    def known_flops(self) -> float | None:
        """FLOPs; None if nothing is known. A lower bound if some operators are not known."""
        return None if self.unknown and not self.flops else self.flops

    @property
    def known_bytes(self) -> float | None:
        """Bytes read and written; None if nothing is known. A lower bound if some operators are
        unknown.
        """
        return None if self.unknown and not self.traffic.total else self.traffic.total

    @property
    def intensity(self) -> float | None:
        """FLOPs for each byte; None without bytes, or if one of them is not known."""
        flops, moved = self.known_flops, self.known_bytes
        return None if flops is None or not moved else flops / moved

    def times(self, factor: float) -> Work:
        """Return the work of that many runs."""
        return replace(
            self.with_flops(self.flops * factor),
            traffic=self.traffic.times(factor),
            inner=self.inner * factor,
        )

    def with_flops(self, flops: float) -> Work:
        """Return the work with another number of FLOPs, divided among the same types in the same
        proportion.
        """
        factor = flops / self.flops if self.flops else 0.0
        return replace(
            self, flops=flops, dtypes=tuple((dtype, part * factor) for dtype, part in self.dtypes)
        )

    def in_dtype(self, dtype: str) -> Work:
        """Return the work with all FLOPs computed in one type."""
        return replace(self, dtypes=((dtype, self.flops),) if self.flops else ())


NO_WORK = Work()


def sum_of(works: Iterable[Work]) -> Work:
    """Return the work of all together."""
    flops: float = 0
    inner: float = 0
    traffic = NO_TRAFFIC
    unknown: dict[str, None] = {}
    dtypes: dict[str, float] = {}
    is_bound = False
    for work in works:
        flops, inner, traffic = flops + work.flops, inner + work.inner, traffic + work.traffic
        for dtype, part in work.dtypes:
            dtypes[dtype] = dtypes.get(dtype, 0) + part
        unknown.update(dict.fromkeys(work.unknown))
        is_bound |= work.is_bound
    return Work(flops, traffic, inner, tuple(unknown), is_bound, tuple(sorted(dtypes.items())))


def unknown_work(name: str) -> Work:
    """Return the work of an unknown operator."""
    return Work(unknown=(name,))


def every_tensor(operands: Iterable[Operand]) -> Iterator[tuple[Operand, float]]:
    """Yield tensors with all of their bytes."""
    return ((operand, operand.nbytes) for operand in operands)
