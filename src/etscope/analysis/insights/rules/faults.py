"""Faults that a program has before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.faults import faults
from etscope.analysis.faults.state import state_notes
from etscope.analysis.insights.facts import Facts
from etscope.model.finding import Finding


def program_faults(facts: Facts) -> Iterator[Finding]:
    """Wrong results that the program alone, or with its record, shows: see `analysis.faults`."""
    export = facts.trace.export
    for fault in (*faults.program_faults(export), *state_notes(export)):
        if fault.method in (None, facts.profile.method):
            yield fault
