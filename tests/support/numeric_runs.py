"""Artefacts opened for numeric comparisons, and what PyTorch computes at each node."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from etscope import Inspector
from etscope.analysis.matching.matching import Matching, Pair, match
from etscope.analysis.numerics.runs import TracedMethod
from etscope.analysis.profile.logged_run import LoggedRun
from etscope.bridge.reference.reference import run_reference
from etscope.diagnosis.numeric_gap import Reference
from etscope.diagnosis.reference import reference_program
from tests.support.artifacts import artifacts

EDGE, ATEN = "edge_dialect_exported_program", "exported_program"


def inputs_of(name: str, method: str = "forward", case: int = 0) -> Any:
    """What the artefact's program was run on."""
    made = artifacts(name)
    assert made.inputs_pt is not None
    return torch.load(made.inputs_pt)[method][case]


def inspector(name: str, *, program: bool = True) -> Inspector:
    """An artefact with all its files, or without the program."""
    made = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Inspector(
            etdump_path=made.etdump,
            etrecord=made.etrecord,
            debug_buffer_path=made.debug_buffer,
            program=made.pte if program else None,
        )


@dataclass(frozen=True)
class Compared:
    """A run of an artefact, its matching with a graph, and the values of both sides."""

    logged: LoggedRun
    matching: Matching
    reference: Mapping[str, list[Any]]

    def values(self, pair: Pair) -> list[tuple[Any, Any]]:
        """(of the reference, logged) for each pass of a loop."""
        logged = [np.asarray(value, np.float64) for value in self.logged.values(pair)]
        expected = [
            value if pair.element is None else value[pair.element]
            for value in self.reference.get(pair.node, [])
        ]
        return list(zip(expected, logged, strict=True))

    def kinds(self) -> dict[str, set[str]]:
        """The reasons' classes of nodes without a partner, by node."""
        table: dict[str, set[str]] = {}
        for unpaired in self.matching.unpaired_nodes:
            table.setdefault(unpaired.node or "", set()).add(unpaired.kind)
        return table


@cache
def compared(
    name: str, reference: str, *, program: bool = True, method: str = "forward"
) -> Compared:
    """The first run of a method of an artefact, against one of its graphs."""
    trace = inspector(name, program=program).trace
    traced = TracedMethod(trace, method)
    logged = traced.logged(traced.run(None))
    graph = Reference(traced, reference, None).graph
    matching = match(
        graph,
        traced.symbols,
        logged.instructions,
        logged.specs,
        delegated=logged.delegated_specs,
        outputs=logged.outputs,
    )
    assert trace.record is not None
    values: dict[str, list[Any]] = {}
    for node, value in run_reference(
        reference_program(trace.record, graph.name), inputs_of(name, method)
    ):
        values.setdefault(node, []).append(_copied(value))
    return Compared(logged, matching, values)


def _copied(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_copied(item) for item in value]
    if isinstance(value, torch.Tensor):
        return value.detach().double().numpy().copy()
    return np.asarray(value, np.float64)
