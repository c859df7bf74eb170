"""Compare the operators of two traced jobs with `etscope.analysis.comparison.diff`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.analysis.comparison.compare_samples import Policy
from etscope.analysis.comparison.diff import Change, diff_traces
from etscope.analysis.comparison.diff_table import place
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.identify import ETRECORD, identify
from etscope.formats.program.program_file import read_program_file
from etscope.units import TimeScale

_MS = Scale(TimeScale.NS, TimeScale.MS)


@dataclass(frozen=True, slots=True)
class Dump:
    """An ETDump, and files that explain it: an ETRecord or a program; a record counts first."""

    path: Path
    explained_by: Sequence[Path] = ()

    def trace(self) -> Trace:
        """The dump, with its record if there is one, else with its program."""
        dump = read_etdump(self.path)
        program = None
        for path in self.explained_by:
            if identify(path) == ETRECORD:
                return Trace(dump=dump, record=read_etrecord(path))
            program = program or read_program_file(path)[0]
        return Trace(dump=dump, program=program)


def operator_changes(
    first: Dump, second: Dump, policy: Policy, repeats: Sequence[Dump] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each operator, the largest changes first, and sentences on how they were found.

    repeats: dumps of what the first ran, which tell the noise. Raises what `diff_traces` raises.
    """
    diff = diff_traces(
        first.trace(), second.trace(), policy, noise=[one.trace() for one in repeats]
    )
    rows = [
        _row(change) for method in diff.methods for change in method.changes if not change.depth
    ]
    rows.sort(key=lambda row: -abs(row["change_ms"]))
    return rows, [note for method in diff.methods for note in method.notes]


def _row(change: Change) -> dict[str, Any]:
    module, source = (None, None) if change.pair is None else place(change.pair.shown)
    comparison = change.comparison
    return {
        "name": change.name,
        "module": module,
        "source": source,
        "status": change.status,
        "first_ms": _ms(change.before),
        "second_ms": _ms(change.after),
        "change_ms": _ms(change.change),
        "relative": None if comparison is None else comparison.relative,
        "verdict": None if comparison is None else comparison.verdict.value,
        "reason": "" if comparison is None else comparison.reason,
    }


def _ms(ticks: float | None) -> float | None:
    return None if ticks is None else float(_MS(ticks))
