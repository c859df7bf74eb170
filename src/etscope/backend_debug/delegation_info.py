"""Count delegated operators: upstream's `executorch.devtools.backend_debug.delegation_info`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etscope.support.optional import require
from etscope.support.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DelegationBreakdown",
    "DelegationInfo",
    "get_delegation_info",
    "print_delegation_info",
]

_CALL = "executorch_call_delegate"


@dataclass
class DelegationBreakdown:
    """Numbers of one operator's nodes inside and outside delegates."""

    op_type: str = ""
    delegated: int = 0
    non_delegated: int = 0


@dataclass
class DelegationInfo(Shown):
    """Delegates of a lowered graph, and its nodes inside and outside them by operator."""

    num_delegated_subgraphs: int
    num_delegated_nodes: int
    num_non_delegated_nodes: int
    delegation_by_operator: dict[str, DelegationBreakdown]

    def get_summary(self) -> str:
        """Three lines with the numbers of delegates and nodes."""
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )

    def get_operator_delegation_dataframe(self) -> pd.DataFrame:
        """A pandas DataFrame with a row for each operator, by name, and a last one "Total".

        Columns: op_type, occurrences_in_delegated_graphs, occurrences_in_non_delegated_graphs.
        """
        pandas = require("pandas", wanted_by="get_operator_delegation_dataframe")
        rows = sorted(self.delegation_by_operator.values(), key=lambda row: row.op_type)
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "op_type": [*(row.op_type for row in rows), "Total"],
                "occurrences_in_delegated_graphs": [
                    *(row.delegated for row in rows),
                    sum(row.delegated for row in rows),
                ],
                "occurrences_in_non_delegated_graphs": [
                    *(row.non_delegated for row in rows),
                    sum(row.non_delegated for row in rows),
                ],
            }
        )
        return frame


def get_delegation_info(graph_module: Any) -> DelegationInfo:
    """Count the nodes of a lowered `torch.fx.GraphModule`, including branches and loops.

    An operator's name is its nodes' name without the number ("aten_add_tensor").
    """
    by_operator: dict[str, DelegationBreakdown] = {}
    delegates = 0
    for node, is_delegated in _nodes(graph_module):
        if node.op == "get_attr":
            delegates += 1
            continue
        op_type = re.sub(r"_\d+$", "", node.name)
        if op_type == _CALL and not is_delegated:
            continue
        row = by_operator.setdefault(op_type, DelegationBreakdown(op_type))
        row.delegated += is_delegated
        row.non_delegated += not is_delegated
    return DelegationInfo(
        num_delegated_subgraphs=delegates,
        num_delegated_nodes=sum(row.delegated for row in by_operator.values()),
        num_non_delegated_nodes=sum(row.non_delegated for row in by_operator.values()),
        delegation_by_operator=by_operator,
    )


def _nodes(graph_module: Any) -> Iterator[tuple[Any, bool]]:
    """The calls of a graph, of its delegates (True) and of its branches and loops; before a
    delegate's calls comes the `get_attr` that names it."""
    for node in graph_module.graph.nodes:
        if node.op == "call_function":
            yield node, False
        elif node.op == "get_attr":
            held = getattr(graph_module, node.target, None)
            lowered = getattr(held, "original_module", None)
            if lowered is not None:
                yield node, True
                yield from ((one, True) for one in lowered.graph.nodes if one.op == "call_function")
            elif hasattr(held, "graph"):
                yield from _nodes(held)


def print_delegation_info(graph_module: Any) -> None:
    """Print the summary and the table of `get_delegation_info`."""
    info = get_delegation_info(graph_module)
    print(info.get_summary())
    tabulate = require("tabulate", wanted_by="print_delegation_info").tabulate
    table = info.get_operator_delegation_dataframe()
    print(tabulate(table, headers="keys", tablefmt="fancy_grid"))
