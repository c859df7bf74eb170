"""The sizes of tensors in runs: symbolic sizes of a graph with the values that symbols had."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.logged_run import unfolded
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.trace import Trace
from etscope.analysis.work.operation import UnfitError
from etscope.errors import EtscopeError, FormatError
from etscope.formats.etdump.debug_values import TensorRef
from etscope.formats.exported_program.symexpr import SYMBOL, check_expression
from etscope.model.graph import Graph, TensorSpec

_Number = int | float
_BINARY: Mapping[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., _Number]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "IntTrueDiv": operator.truediv,
    "ceiling": math.ceil,
    "CeilToInt": math.ceil,
    "floor": math.floor,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "ToFloat": float,
    "Identity": lambda value: value,
}


@dataclass(frozen=True)
class Sizes:
    """The values of the symbols in a graph's shapes in a run: "s6" -> 5.

    position: for a language model, the position of the call's first token in its context, or the
    mean over several calls; None if unknown. bounds: the symbols with unknown values in the run;
    the largest values that the program allows are used for them.
    """

    symbols: Mapping[str, int] = field(default_factory=dict)
    position: float | None = None
    bounds: frozenset[str] = frozenset()

    def size(self, size: int | str) -> int:
        """A size as a number. Raises `UnfitError` for a symbol without a value."""
        if isinstance(size, int):
            return size
        if size in self.symbols:
            return self.symbols[size]
        try:
            value = _value(_parsed(size).body, self.symbols)
            whole = int(value)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise UnfitError(f"the size {size}: {error}") from error
        if value != whole or whole < 0:
            raise UnfitError(f"the size {size} is {value}")
        return whole

    def shape(self, spec: TensorSpec) -> tuple[int, ...]:
        """The sizes of a tensor. Raises `UnfitError` for a symbol without a value."""
        return tuple(map(self.size, spec.shape))

    def is_bound(self, spec: TensorSpec) -> bool:
        """Return True if a size of the tensor is only a bound."""
        return any(
            not self.bounds.isdisjoint(SYMBOL.findall(size))
            for size in spec.shape
            if isinstance(size, str)
        )


@lru_cache(maxsize=4096)
def _parsed(expression: str) -> ast.Expression:
    try:
        check_expression(expression)
        return ast.parse(expression, mode="eval")
    except (FormatError, SyntaxError, ValueError) as error:
        raise UnfitError(f"the size {expression[:80]} is not arithmetic") from error


def _value(node: ast.expr, symbols: Mapping[str, int]) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(one, symbols) for one in arguments))
    raise UnfitError(f"the value of {ast.unparse(node)[:80]} is not known")


def symbols_of(graph: Graph) -> frozenset[str]:
    """The symbols in the sizes of a graph's inputs."""
    found: set[str] = set()
    for name in graph.inputs:
        for value in graph.by_name[name].outputs if name in graph.by_name else ():
            for size in () if value.tensor is None else value.tensor.shape:
                if isinstance(size, str):
                    found.update(SYMBOL.findall(size))
    return frozenset(found)


def largest(graph: Graph) -> Sizes:
    """The largest sizes that the program was exported for; symbols without a limit have none."""
    return Sizes(dict(graph.limits), bounds=frozenset(graph.limits))


def solved(pairs: Iterable[tuple[TensorSpec, tuple[int, ...]]]) -> dict[str, int]:
    """The values of symbols that stand alone as a size of a tensor, from the tensor's sizes."""
    found: dict[str, int] = {}
    for spec, sizes in pairs:
        if len(spec.shape) == len(sizes):
            for symbol, size in zip(spec.shape, sizes, strict=True):
                if isinstance(symbol, str) and SYMBOL.fullmatch(symbol):
                    found.setdefault(symbol, size)
    return found


# -- the sizes of the runs of a profile


@dataclass(frozen=True, slots=True, eq=False)
class RunSizes:
    """Runs of the same sizes. runs: bool, True for each run of the profile that has them."""

    sizes: Sizes
    runs: npt.NDArray[np.bool_]


def run_sizes(trace: Trace, profile: MethodProfile, graph: Graph | None) -> list[RunSizes]:
    """Return the sizes of the profile's runs, runs of equal sizes together.

    They come from the tokens of a language model's call, from logged values, or from the
    inputs that `etscope run --save` kept; without any of these they are the largest that the
    program allows. The position in the context is the mean of the calls: work grows evenly with it.
    """
    symbols = frozenset[str]() if graph is None else symbols_of(graph)
    number = len(profile.runs)
    found: list[Mapping[str, int]] = [{}] * number
    if graph is not None and symbols:
        calls, (symbol, *others) = profile.calls, symbols
        inputs = [one for one in _inputs(graph) if one.dtype in ("int64", "int32")]
        is_size = not others and any(symbol in one.shape for one in inputs)
        if is_size and calls is not None and (calls.tokens > 0).all():
            found = [{symbol: int(tokens)} for tokens in calls.tokens]
        else:
            found = _by_values(trace, profile, symbols)
        if any(symbols.difference(one) for one in found):
            found = _by_inputs(trace, profile, graph) or found
    positions = np.full(number, -1) if profile.calls is None else profile.calls.position
    limits = {} if graph is None else graph.limits  # of sizes that no input has, too
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, one in enumerate(found):
        groups.setdefault(tuple(sorted(one.items())), []).append(index)
    made = []
    for values, indices in groups.items():
        mask = np.isin(np.arange(number), indices)
        known, at = dict(values), positions[mask]
        sizes = Sizes(
            {**limits, **known},
            position=float(at.mean()) if (at >= 0).all() else None,
            bounds=frozenset(limits).difference(known),
        )
        made.append(RunSizes(sizes, mask))
    return made


def _by_values(
    trace: Trace, profile: MethodProfile, symbols: frozenset[str]
) -> list[Mapping[str, int]]:
    """The sizes of logged values, which nodes of the graph have as symbols."""
    number_of = {run: number for number, run in enumerate(profile.runs.tolist())}
    found: list[Mapping[str, int]] = [{} for _ in number_of]
    if profile.method is None:
        return found
    specs: dict[int, list[TensorSpec]] = {}
    for instruction, nodes in trace.run_nodes(profile.method).nodes.items():
        tensors = [value.tensor for value in nodes[0].outputs] if len(nodes) == 1 else []
        known = [tensor for tensor in tensors if tensor is not None]
        plain = (size for tensor in known for size in tensor.shape if isinstance(size, str))
        if len(known) == len(tensors) and any(map(SYMBOL.fullmatch, plain)):
            specs[instruction] = known
    for block in trace.blocks:
        logged = [key for key in block.keys if key.debug and key.delegate_id is None]
        for position, run in enumerate(block.runs.tolist()):
            if run not in number_of:
                continue
            symbols_found: dict[str, int] = {}
            for key in logged:
                expected = specs.get(-1 if key.instruction is None else key.instruction, [])
                if not expected or symbols <= symbols_found.keys():
                    continue
                rows = (trace.dump.value(block.row(position, at)) for at in key.debug)
                values = [one for one in unfolded(list(rows)) if isinstance(one, TensorRef)]
                if len(values) == len(expected):
                    pairs = ((spec, one.sizes) for spec, one in zip(expected, values, strict=True))
                    symbols_found = {**solved(pairs), **symbols_found}
            found[number_of[run]] = symbols_found
    return found


def _by_inputs(trace: Trace, profile: MethodProfile, graph: Graph) -> list[Mapping[str, int]]:
    """Return the sizes of the inputs that were saved next to the dump; [] if unknown."""
    given: list[Sequence[Any] | None] = []
    with suppress(EtscopeError):  # the files are gone, or damaged: nothing else needs them
        for call in trace.known_calls:
            given += [None if call.inputs is None else call.inputs.values] * (call.runs or 0)
    specs = _inputs(graph)
    if len(given) != len(trace.executions):
        return []
    by_run = dict(zip(trace.executions, given, strict=True))
    found: list[Mapping[str, int]] = []
    for run in profile.runs.tolist():
        values = by_run.get(run)
        arrays = [] if values is None else [one for one in values if hasattr(one, "shape")]
        if len(arrays) != len(specs):
            return []
        pairs = zip(specs, (tuple(one.shape) for one in arrays), strict=True)
        found.append(solved(pairs))
    return found


def _inputs(graph: Graph) -> list[TensorSpec]:
    """The tensors among the inputs of the user."""
    nodes = [graph.by_name.get(name) for name in graph.inputs if name not in graph.parameters]
    values = [node.outputs[0].tensor for node in nodes if node is not None and node.outputs]
    return [tensor for tensor in values if tensor is not None]
