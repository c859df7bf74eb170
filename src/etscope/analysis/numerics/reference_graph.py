"""A graph that runs are compared with, and what is found out once for all of them."""

from __future__ import annotations

from typing import Any

from etscope.analysis.matching.graph import Paths
from etscope.analysis.matching.logged_run import LoggedRun
from etscope.analysis.matching.matching import Matching
from etscope.analysis.numerics.gap import match_run
from etscope.analysis.numerics.subgraphs import Regions
from etscope.analysis.profile.trace import Trace
from etscope.model.graph import Graph


class KnownGraph:
    """A graph of one method with its paths, and its matchings with runs of one program.

    Runs that logged tensors of the same types and shapes have one matching.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.paths = Paths(graph)
        self._found: dict[Any, tuple[Matching, Regions]] = {}

    def matched(self, trace: Trace, logged: LoggedRun) -> tuple[Matching, Regions]:
        """Which value of the run is which of the graph, and what each was made of."""
        key = _key(logged)
        if key not in self._found:
            matching = match_run(trace, logged, self.graph)
            self._found[key] = matching, Regions(self.paths, matching.by_node)
        return self._found[key]


def _key(logged: LoggedRun) -> Any:
    """What of a run its matching depends on."""
    return (
        tuple((record.instruction_id, record.operator) for record in logged.instructions),
        logged.outputs,
        tuple((number, tuple(specs)) for number, specs in logged.specs.items()),
        tuple((place, tuple(specs)) for place, specs in logged.delegated_specs.items()),
    )


__all__ = ["KnownGraph"]
