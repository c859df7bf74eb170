"""`profiling()`: what each stage and pass of an export takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.model.table import Column, Kind, Table
from etscope.support.optional import require
from etscope.support.shown import Shown
from etscope.units import format_bytes

if TYPE_CHECKING:
    from etscope.support.stages import Stage, Stages

    Row = tuple[tuple[str, ...], Stage]  # with its name after the names of the stages around

_LEAST = 0.01  # of the whole time: stages that take less have no row in a short table


@dataclass(frozen=True, slots=True, eq=False)
class ExportProfile(Shown):
    """Time, memory and graph of the stages of an export; complete after `profiling()`."""

    stages: Stages

    @property
    def stopped(self) -> str | None:
        """The stage that an exception left, with its seconds; None if the export ended."""
        place = self.stages.stopped
        return None if place is None else self.stages.described(place)

    def table(self, *, short: bool = False) -> Table:
        """Return a row for each stage, below the stage that it is part of.

        Columns: calls; time and time without the stages inside, in ms; share of the whole; the
        highest resident memory of the process, and how far the stage raised it above all stages
        before, in bytes; nodes and bytes of weights that it added to the graph, less those removed.

        short: only stages that take 1 % of the time, and those that the notes name.
        """
        whole = self.stages.whole
        rows = list(whole.walk())
        told = [*self._told(rows)]
        named = {path for path, _ in told}
        kept = [
            (path, one)
            for path, one in rows
            if not short
            or one.seconds >= _LEAST * whole.seconds
            or any(path == longer[: len(path)] for longer in named)
        ]
        places, shown = zip(*kept, strict=True)
        content: dict[Column, list[Any]] = {
            Column("stage"): [path[-1] for path in places],
            Column("calls", Kind.COUNT, priority=3): [one.calls for one in shown],
            Column("time", Kind.DURATION, "ms"): [one.seconds * 1e3 for one in shown],
            Column("own_time", Kind.DURATION, "ms", priority=2): [
                one.own("seconds") * 1e3 for one in shown
            ],
            Column("share", Kind.SHARE): [one.seconds / whole.seconds for one in shown],
            Column("peak", Kind.BYTES): [one.peak or None for one in shown],
            Column("raised", Kind.BYTES): [one.raised if one.peak else None for one in shown],
            Column("added_nodes", Kind.COUNT, priority=1): [one.nodes for one in shown],
            Column("added_weights", Kind.BYTES, priority=1): [one.weights for one in shown],
        }
        if not short:
            content[Column("inside")] = [" > ".join(path[:-1]) for path in places]
        source = self.stages.resident.source
        notes = [f"Peak: {source}." if source else "Memory is not measured on this system."]
        notes += [sentence for _, sentence in told]
        if len(shown) < len(rows):
            notes.append(f"{len(rows) - len(shown)} shorter stages are not shown.")
        depth = [len(path) - 1 for path in places]
        return Table.of(content, title="Stages of the export", depth=depth, notes=tuple(notes))

    def _told(self, rows: Sequence[Row]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the stages that raise the peak and grow the graph most, with a sentence on each."""
        path, most = max(rows, key=lambda row: row[1].own("raised"))
        if raised := most.own("raised"):
            yield (
                path,
                f"{path[-1]} raises the peak most: by {format_bytes(raised)}, to "
                f"{format_bytes(most.peak)}.",
            )
        passes = [row for row in rows if not row[1].inside]
        path, most = max(passes, key=lambda row: row[1].nodes or 0)
        if (most.nodes or 0) > 0:
            yield path, f"{path[-1]} adds the most nodes: {most.nodes:,}."
        path, most = max(passes, key=lambda row: row[1].weights or 0)
        if (most.weights or 0) > 0:
            yield path, f"{path[-1]} adds the most bytes of weights: {format_bytes(most.weights)}."

    def save(self, path: Path) -> None:
        """Write the whole table as JSON, the document of `--format json`."""
        from etscope.views import write_table
        from etscope.views.output import open_output

        with open_output(path, binary=False) as out:
            write_table(self.table(), "json", out)


@contextmanager
def profiling() -> Iterator[ExportProfile]:
    """Measure the stages of the export inside: each call of `torch.export`, decomposition, pass,
    partitioner, `preprocess`, the memory plan and the serialisation.

        with profiling() as profile:
            exported = export(model, inputs, backend="xnnpack")
        print(profile.table())

    It works for your own lowering, too. Raises `MissingDependencyError` without ExecuTorch.
    """
    require("executorch.exir", wanted_by="profiling an export")
    from etscope.bridge.lowering.profiled import profiling as profiled

    with profiled() as stages:
        yield ExportProfile(stages)
