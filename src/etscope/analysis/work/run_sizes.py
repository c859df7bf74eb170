"""The sizes that tensors had in the runs of a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.logged_run import unfolded
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.trace import Trace
from etscope.analysis.work.sizes import Sizes, largest, solved, symbols_of
from etscope.errors import EtscopeError
from etscope.formats.etdump.debug_values import TensorRef
from etscope.formats.exported_program.symexpr import SYMBOL
from etscope.model.graph import Graph, TensorSpec


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
    runs = profile.runs.tolist()
    found: list[Mapping[str, int]] = [{} for _ in runs]
    if graph is not None and symbols:
        found = _by_tokens(profile, graph, symbols) or _by_values(trace, profile, symbols)
        if any(symbols.difference(one) for one in found):
            found = _by_inputs(trace, profile, graph) or found
    positions = np.full(len(runs), -1) if profile.calls is None else profile.calls.position
    limits = {} if graph is None else largest(graph).symbols  # of sizes that no input has, too
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for number, one in enumerate(found):
        groups.setdefault(tuple(sorted(one.items())), []).append(number)
    made = []
    for values, numbers in groups.items():
        mask = np.zeros(len(runs), np.bool_)
        mask[numbers] = True
        known, at = dict(values), positions[mask]
        sizes = Sizes(
            {**limits, **known},
            position=float(at.mean()) if (at >= 0).all() else None,
            bounds=frozenset(limits).difference(known),
        )
        made.append(RunSizes(sizes, mask))
    return made


def _by_tokens(
    profile: MethodProfile, graph: Graph, symbols: frozenset[str]
) -> list[Mapping[str, int]]:
    """The number of tokens of each call is the only symbol, as the size of an input of integers."""
    calls = profile.calls
    if calls is None or len(symbols) != 1 or not (calls.tokens > 0).all():
        return []
    (symbol,) = symbols
    is_size = any(
        symbol in spec.shape for _, spec in _inputs(graph) if spec.dtype in ("int64", "int32")
    )
    return [{symbol: int(count)} for count in calls.tokens] if is_size else []


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
        pairs = zip((spec for _, spec in specs), (tuple(a.shape) for a in arrays), strict=True)
        found.append(solved(pairs))
    return found


def _inputs(graph: Graph) -> list[tuple[str, TensorSpec]]:
    """The tensors among the inputs of the user, by name."""

    def tensors() -> Iterator[tuple[str, TensorSpec]]:
        for name in graph.inputs:
            node = graph.by_name.get(name)
            if node is None or name in graph.parameters or not node.outputs:
                continue
            if (spec := node.outputs[0].tensor) is not None:
                yield name, spec

    return list(tensors())
