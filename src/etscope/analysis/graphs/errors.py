"""Numeric errors on the nodes of graphs: the rows of a diagnosis under the keys of the views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from etscope.analysis.graphs.views import GraphView, NodeError
from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.rows import Numerics, NumericsRow
from etscope.model.graph import Node


def with_errors(views: Iterable[GraphView], found: Numerics) -> tuple[GraphView, ...]:
    """The views with the errors that a diagnosis found, where they are of its method.

    A row is of a node of its reference graph; in the others it stands at the node that this one
    is, or comes from, which is known from the edge graph only. Of several rows of one node (passes
    of a loop, several outputs) the worst counts.
    """
    views = tuple(views)
    reference = next((view for view in views if view.linked.name == found.reference), None)
    if reference is None:
        return views
    nodes = {key: node.node for key, node in reference.by_key.items()}
    rows = [(nodes[row.pair.node], row) for row in found.rows if row.pair.node in nodes]
    return tuple(
        replace(view, errors=_errors(view, reference, rows, found.metric))
        if view.method == found.method
        else view
        for view in views
    )


def _errors(
    view: GraphView,
    reference: GraphView,
    rows: Iterable[tuple[Node, NumericsRow]],
    metric: Metric,
) -> Mapping[str, NodeError]:
    keys: dict[int, str] = {}
    for placed in view.nodes:
        keys.setdefault(id(placed.node), placed.key)
    worst: dict[str, NumericsRow] = {}
    for node, row in rows:
        places = (node,) if view is reference else view.linked.behind((node,))
        for place in places:
            key = keys.get(id(place))
            if key is None:
                continue
            before = worst.get(key)
            if before is None or _badness(row, metric) > _badness(before, metric):
                worst[key] = row
    return {
        key: NodeError(metric.name, row.total, row.local, row.verdict) for key, row in worst.items()
    }


def _badness(row: NumericsRow, metric: Metric) -> tuple[float, float]:
    return metric.badness(row.total), metric.badness(row.local)
