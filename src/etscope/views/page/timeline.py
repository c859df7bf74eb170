"""A few runs as they happened, for the page's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import RunSpans, few_runs, loading_runs, run_spans
from etscope.analysis.profile.trace import Trace
from etscope.model.event_table import EXECUTE, KERNEL_PREFIX, EventKey
from etscope.views.page.elements import Json
from etscope.views.page.method import ShownMethod

MOST_SPANS = 20_000
_CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")  # names of the runtime that stand around all of them


def timeline_document(trace: Trace, methods: Sequence[ShownMethod], scale: Scale) -> Json | None:
    """The `Timeline` of the runs that tell most: a track for each, below it those of its clocks.

    Every run starts at 0, so that runs are compared. None without any run.
    """
    shown: list[tuple[int, str, ShownMethod | None]] = []
    shown += [(run, "loading", None) for run in loading_runs(trace)[:1]]
    for method in methods:
        for position, why in few_runs(method.profile).items():
            run = int(method.profile.runs[position])
            shown.append((run, f"{method.name} · run {run} ({why})", method))
    if not shown:
        return None
    builder = _Builder(scale)
    each = MOST_SPANS // len(shown)
    for run, title, owner in shown:
        builder.add(run_spans(trace, run, each), title, owner)
    return builder.document(_note(methods, builder.left_out))


class _Builder:
    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._tracks: list[Json] = []
        self._names: dict[str, int] = {}
        self._columns: dict[str, list[Any]] = {
            name: [] for name in ("track", "start", "duration", "name", "level", "row")
        }
        self.left_out = 0

    def add(self, spans: RunSpans, title: str, method: ShownMethod | None) -> None:
        self.left_out += spans.left_out
        parent = len(self._tracks)
        self._tracks.append({"name": title, "parent": None, "note": None})
        for name, note in spans.tracks:
            self._tracks.append({"name": name, "parent": parent, "note": note})
        rows = [_row(event.key, method) for event in spans.events]
        named = [
            _name(event.key, row, method) for event, row in zip(spans.events, rows, strict=True)
        ]
        names = [self._names.setdefault(name, len(self._names)) for name in named]
        events = spans.event.tolist()
        columns = self._columns
        columns["track"] += (spans.track + parent + 1).tolist()
        columns["start"] += self._scale(spans.start).tolist()
        columns["duration"] += self._scale(spans.duration).tolist()
        columns["level"] += spans.level.tolist()
        columns["name"] += [names[event] for event in events]
        columns["row"] += [rows[event] for event in events]

    def document(self, note: str | None) -> Json:
        return {"note": note, "tracks": self._tracks, "names": list(self._names), **self._columns}


def _row(key: EventKey, method: ShownMethod | None) -> list[int] | None:
    if method is None:
        return None
    if key.instruction is not None:
        row = method.row_of(key.instruction, key.delegate_id)
    elif key.is_framework and key.name != EXECUTE:
        row = None
    else:
        row = method.row_named(key.name.removeprefix(KERNEL_PREFIX))
    return None if row is None else [method.index, row]


def _name(key: EventKey, row: list[int] | None, method: ShownMethod | None) -> str:
    """Name of a span: a call of an operator or a delegate by what it calls."""
    if row is None or method is None or key.name not in _CALLS:
        return key.name
    return method.rows[row[1]].name


def _note(methods: Sequence[ShownMethod], left_out: int) -> str | None:
    notes = []
    runs = sum(len(method.profile.runs) for method in methods)
    if any(len(method.profile.runs) > 3 for method in methods):
        notes.append(
            f"Of {runs:,} runs the first, the median and the slowest of each method are shown, all "
            "from their start."
        )
    if left_out:
        notes.append(f"{left_out:,} of the shortest spans are left out.")
    return " ".join(notes) or None
