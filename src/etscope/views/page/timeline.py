"""A few runs as they happened, for the page's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import RunSpans, few_runs, loading_runs, run_spans
from etscope.analysis.profile.trace import Trace
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
    notes = []
    runs = sum(len(method.profile.runs) for method in methods)
    if any(len(method.profile.runs) > 3 for method in methods):
        notes.append(
            f"Of {runs:,} runs the first, the median and the slowest of each method are shown, all "
            "from their start."
        )
    if builder.left_out:
        notes.append(f"{builder.left_out:,} of the shortest spans are left out.")
    return builder.document(" ".join(notes) or None)


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
        rows: list[list[int] | None] = []
        names: list[int] = []
        for event in spans.events:
            row = None if method is None else method.row_of_event(event.key)
            name = event.key.name
            if method is not None and row is not None and name in _CALLS:
                name = method.rows[row].name  # of what it calls
            rows.append(None if method is None or row is None else [method.index, row])
            names.append(self._names.setdefault(name, len(self._names)))
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
