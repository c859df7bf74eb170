"""The diagnosis of a run's values for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etscope.analysis.graphs.views import EXECUTED, ViewNode
from etscope.analysis.numerics.rows import Numerics, NumericsRow
from etscope.views.page.graphs import ShownGraph
from etscope.views.page.lines import Lines
from etscope.views.page.method import ShownMethod
from etscope.views.page.tables import Json, table_document


class ShownNumerics:
    """A diagnosis, and which node of each graph the values are of."""

    def __init__(self, found: Numerics, graphs: Sequence[ShownGraph]) -> None:
        self.found = found
        mine = [shown for shown in graphs if shown.view.method in (found.method, None)]
        reference = {shown.view.linked.name: shown for shown in mine}.get(found.reference)
        named = None if reference is None else reference.view.by_key
        self.nodes: Mapping[str, list[int | None]] = {
            shown.view.key: [_index(shown, row, named) for row in found.rows] for shown in mine
        }

    def document(self, methods: Sequence[ShownMethod], lines: Lines) -> Json:
        """The page's `Numerics`."""
        found = self.found
        ran = next((shown for shown in methods if shown.profile.method == found.method), None)
        return {
            "method": found.method,
            "metric": found.metric.name,
            "largerIsWorse": found.metric.better == "lower",
            "fine": found.is_fine,
            "table": table_document(found.table()),
            "rows": [None if ran is None else _row(ran, row) for row in found.rows],
            "lines": [lines.index(row.lines[0]) if row.lines else None for row in found.rows],
            "nodes": dict(self.nodes),
            "coverage": table_document(found.coverage.table()),
            "notes": _notes(found),
        }


def _notes(found: Numerics) -> list[str]:
    """All there is to say, doubts about the inputs first."""
    return [*found.doubts, *(note for note in found.notes if note not in found.doubts)]


def _row(shown: ShownMethod, row: NumericsRow) -> int | None:
    inner = shown.row_of(row.pair.instruction, row.pair.delegate_id)
    return shown.row_of(row.pair.instruction, None) if inner is None else inner


def _index(shown: ShownGraph, row: NumericsRow, named: Mapping[str, ViewNode] | None) -> int | None:
    """The node of a graph that a value is of: that of the reference, or what leads to it."""
    reference = None if named is None else named.get(row.pair.node)
    linked = shown.view.linked
    if (
        reference is not None
        and reference.key in shown.index
        and (shown.view.by_key[reference.key].node is reference.node)
    ):
        return shown.index[reference.key]
    behind: Iterable[int] = ()
    if reference is not None:
        behind = shown.indices(linked.behind((reference.node,)))
    if not behind and shown.view.key.startswith(f"{EXECUTED}/"):
        behind = shown.indices(linked.ran(row.pair.instruction))
    return max(behind, default=None)
