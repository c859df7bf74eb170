"""The page's diagnosis of a run's values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etscope.analysis.graphs.executed import EXECUTED
from etscope.analysis.graphs.views import ViewNode
from etscope.analysis.numerics.rows import WRONG, Numerics, NumericsRow, described
from etscope.analysis.numerics.value_report import LOCAL, TOTAL, value_sections
from etscope.analysis.numerics.values import ValueComparison
from etscope.views.output import finite
from etscope.views.page.elements import Json, Lines, section_document, table_document
from etscope.views.page.graphs import ShownGraph
from etscope.views.page.method import (
    ShownMethod,
)


def numerics_document(
    found: Numerics, methods: Sequence[ShownMethod], graphs: Sequence[ShownGraph], lines: Lines
) -> Json:
    """The page's `Numerics`: a diagnosis, and the nodes of each graph that its values belong to."""
    of_method = [shown for shown in graphs if shown.view.method in (found.method, None)]
    reference = {shown.view.linked.name: shown for shown in of_method}.get(found.reference)
    named = {} if reference is None else reference.view.by_key
    ran = next((shown for shown in methods if shown.profile.method == found.method), None)
    rows: list[int | None] = [None] * len(found.rows)
    if ran is not None:
        for number, row in enumerate(found.rows):
            inner = ran.row_of(row.pair.instruction, row.pair.delegate_id)
            rows[number] = ran.row_of(row.pair.instruction, None) if inner is None else inner
    return {
        "method": found.method,
        "metric": found.metric.name,
        "largerIsWorse": found.metric.better == "lower",
        "fine": found.is_fine,
        "table": table_document(found.table()),
        "rows": rows,
        "lines": [lines.index(row.lines[0]) if row.lines else None for row in found.rows],
        "nodes": {
            shown.view.key: [_node_of_value(shown, row, named) for row in found.rows]
            for shown in of_method
        },
        "values": [
            {
                "row": number,
                "shown": LOCAL if row.verdict == WRONG or row.values.total is None else TOTAL,
                "local": value_document(row.values.local),
                "total": None if row.values.total is None else value_document(row.values.total),
            }
            for number, row in enumerate(found.rows)
            if row.values is not None
        ],
        "coverage": table_document(found.coverage.table()),
        # The summary shows the notes up to this one.
        "verdict": found.what_it_is or found.verdict,
        "named": [{"row": found.rows.index(row), "text": described(row)} for row in found.named],
        # Doubts about the inputs first.
        "notes": [*found.doubts, *(note for note in found.notes if note not in found.doubts)],
    }


def value_document(compared: ValueComparison) -> Json:
    """The page's `ValueDoc`: tables of a compared value, and the numbers that are drawn."""
    histogram, channels, quantized = compared.histogram, compared.channels, compared.quantized
    return {
        "sections": [
            section_document(section)
            for section in value_sections(compared, "")
            if section.name != "histogram"
        ],
        "histogram": None
        if histogram is None
        else {
            "low": histogram.low,
            "high": histogram.high,
            "reference": list(histogram.reference),
            "device": list(histogram.device),
            "clippedShare": histogram.clipped_share,
        },
        "channels": None
        if channels is None
        else {
            "axis": channels.axis,
            "count": channels.count,
            "perEntry": channels.per_entry,
            "rms": finite(list(channels.profile)),
        },
        "range": None if quantized is None else [quantized.low, quantized.high],
    }


def _node_of_value(
    shown: ShownGraph, row: NumericsRow, named: Mapping[str, ViewNode]
) -> int | None:
    """Return the node of a graph for a value: the reference's, or the last one that leads to it.

    named: the nodes of the reference graph, by key.
    """
    reference = named.get(row.pair.node)
    linked = shown.view.linked
    behind: Iterable[int] = ()
    if reference is not None:
        same = shown.view.by_key.get(reference.key)
        if same is not None and same.node is reference.node:
            return shown.index[reference.key]
        behind = shown.indices(linked.behind((reference.node,)))
    if not behind and shown.view.key.startswith(f"{EXECUTED}/"):
        behind = shown.indices(linked.ran(row.pair.instruction))
    return max(behind, default=None)
