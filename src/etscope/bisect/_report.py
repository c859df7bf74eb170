"""What was found, as a table."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from etscope.bisect._answer import COMMAND, VALUE
from etscope.bisect._check import MetricCheck
from etscope.model.pieces import written
from etscope.model.table import Column, Kind, Table

if TYPE_CHECKING:
    from etscope.bisect._bisect import Bisected

_FAILURES = {
    VALUE: "wrong value",
    COMMAND: "the command says so",
    "lower": "cannot be lowered",
    "run": "fails to run",
}


def report_table(bisected: Bisected) -> Table:
    """One row for each failing piece."""
    check = bisected.check
    metric = check.metric if isinstance(check, MetricCheck) else None
    name, unit = ("status", None) if metric is None else (metric.name, metric.unit or None)
    rows = [
        {
            "piece": written(piece),
            "nodes": bisected.pieces.names(piece),
            "ops": _distinct(bisected.pieces.nodes[index].op for index in piece),
            "modules": _distinct(
                (bisected.pieces.nodes[index].modules or ("",))[-1] or None for index in piece
            ),
            "source": _distinct(_short(bisected.pieces.nodes[index].source) for index in piece),
            "failure": _FAILURES[answer.kind],
            name: answer.number,
            "detail": answer.detail or None,
        }
        for piece, answer in bisected.found
    ]
    columns = (
        Column("piece", priority=3),
        Column("nodes", Kind.LIST),
        Column("ops", Kind.LIST),
        Column("modules", Kind.LIST, priority=1),
        Column("source", Kind.LIST, priority=1),
        Column("failure", priority=2),
        Column(name, Kind.FLOAT, unit),
        Column("detail", priority=4),
    )
    return Table(
        columns=columns,
        values={column.name: [row[column.name] for row in rows] for column in columns},
        notes=_notes(bisected),
    )


def _distinct(texts: object) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))  # type: ignore[attr-defined]


def _short(source: str | None) -> str | None:
    return None if source is None else PurePath(source).name


def _notes(bisected: Bisected) -> tuple[str, ...]:
    count = len(bisected.pieces.nodes)
    tried = f"{bisected.tried} of the pieces of {count} nodes were tried"
    if bisected.unknown:
        tried += f"; of {bisected.unknown} nothing can be said"
    notes = [f"{tried}."]
    if not bisected.found:
        notes.insert(0, "Nothing to find: the whole model is good.")
    if bisected.repro is not None:
        notes.append(f"The first piece fails by itself: python {bisected.repro}")
    return tuple(notes)
