"""Sentences on memory, size and numerics, shown with the times of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import memory_plans
from etscope.analysis.numerics.rows import Numerics
from etscope.formats.run_json import SavedMemory, SavedRun
from etscope.units import format_bytes, format_float


@dataclass(frozen=True, slots=True)
class RunTotals:
    """RunTotals of a run other than times.

    planned_bytes: allocated by the runtime for tensors, by method. program_bytes: of the program,
    None if unknown. numerics: the diagnosis of logged values, None without one. memory: of the
    process that ran it.
    """

    planned_bytes: Mapping[str, int] = field(default_factory=dict)
    program_bytes: int | None = None
    numerics: Numerics | None = None
    memory: SavedMemory | None = None


def totals_of(
    export: Export, numerics: Numerics | None = None, saved: SavedRun | None = None
) -> RunTotals:
    """Return the totals of a run, from its program, a diagnosis and its notes."""
    memory, program = None if saved is None else saved.memory, export.recorded_program
    if program is None:
        return RunTotals(numerics=numerics, memory=memory)
    planned = {name: plan.planned_bytes for name, plan in memory_plans(export).items()}
    return RunTotals(planned, len(program.source.buffer), numerics, memory)


def total_changes(before: RunTotals, after: RunTotals, method: str | None) -> Iterator[str]:
    """Yield a sentence for each total of both sides."""
    name = method or ""
    sizes = [
        ("Planned memory", before.planned_bytes.get(name), after.planned_bytes.get(name)),
        ("Program", before.program_bytes, after.program_bytes),
    ]
    was, now = before.memory, after.memory
    # Else Python, torch or the recorded values would be the difference.
    if was and now and (was.runner, was.traced) == (now.runner, now.traced):
        sizes.append((f"Peak memory of {was.in_words()}", was.peak_rss, now.peak_rss))
    for what, one, other in sizes:
        if one is None or other is None:
            continue
        if one == other:
            yield f"{what}: {format_bytes(one)} as before."
        else:
            share = f" ({other / one - 1:+.1%})" if one else ""
            yield f"{what}: {format_bytes(one)} → {format_bytes(other)}{share}."
    numerics = before.numerics, after.numerics
    if numerics[0] is None or numerics[1] is None:
        return
    texts = []
    for found in (numerics[0], numerics[1]):
        text = "fine" if found.is_fine else "not fine"
        # The error of the last value that was compared.
        errors = [row.total for row in found.rows if row.total is not None]
        if errors:
            text += f", {found.metric.name} {format_float(errors[-1])} at the end"
        texts.append(text)
    if all(found is not None and found.method == method for found in numerics):
        yield f"Numerics: {texts[0]} before, {texts[1]} after."
