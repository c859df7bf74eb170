"""The part of the time inside delegates that has a line of Python, and why the rest has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etscope.analysis.profile.profile import InstructionRows, MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.tables.profile_table import LACKS_PROGRAM, lacks_program
from etscope.errors import MissingDataError
from etscope.model.table import Column, Kind, Table

_HAS_LINE = "has a line"


def coverage_tables(
    profiles: Sequence[MethodProfile], scale: Scale, *, has_record: bool
) -> list[Table]:
    """Return a table for each method: the time of each backend's calls, by the reason why it has a
    line of Python or none, longest first. The times of a backend add up to its calls.

    Numbers that are not a part of the time (cycles, estimates, times of a device) are counted as
    `other_events`, by the same reasons.

    Raises `MissingDataError` when no delegate was called.
    """
    calling = [p for p in profiles if any(row.kind == "delegate" for row in p.rows)]
    if not calling:
        raise MissingDataError(
            "no delegate was called", hint="without --coverage, all instructions are shown"
        )
    return [_table(profile, scale, has_record) for profile in calling]


def _table(profile: MethodProfile, scale: Scale, has_record: bool) -> Table:
    # By backend and reason: the parts of the time, and the number of other events.
    parts: dict[str, dict[str, list[Row]]] = {}
    others: dict[tuple[str, str], int] = {}
    for group in profile.instructions:
        if group.head.kind != "delegate":
            continue
        backend = group.head.attribution.backend_id or "delegate"
        reasons = parts.setdefault(backend, {})
        for leaf in group.leaves:
            reasons.setdefault(_reason(group, leaf, has_record), []).append(leaf)
        for row, after in zip(group.below, (*group.below[1:], None), strict=True):
            # Only events with an identifier that are not a sum of others could have a node.
            is_sum = after is not None and after.depth > row.depth
            is_phase = row.meaning is None or row.meaning.identifier is None
            if not row.own_clock or is_sum or is_phase:
                continue
            reason = _reason(group, row, has_record)
            reasons.setdefault(reason, [])
            others[backend, reason] = others.get((backend, reason), 0) + 1
    content = []
    for backend, reasons in parts.items():
        times = {
            reason: sum(float(row.ticks.mean()) for row in rows) for reason, rows in reasons.items()
        }
        whole = sum(times.values())
        for reason, time in sorted(times.items(), key=lambda item: -item[1]):
            events = len(reasons[reason])
            content.append(
                (
                    profile.method,
                    backend,
                    reason,
                    events or None,
                    scale.one(time) if events else None,
                    time / whole if events and whole else None,
                    others.get((backend, reason)),
                )
            )
    columns = (
        Column("method", priority=9),
        Column("backend"),
        Column("line"),
        Column("events", Kind.COUNT),
        Column("avg", Kind.DURATION, scale.unit),
        Column("share", Kind.SHARE, title="share of backend"),
        Column("other_events", Kind.COUNT, title="other numbers"),
    )
    title = f"{profile.title('unnamed method')} · lines of what ran inside delegates"
    notes = (LACKS_PROGRAM,) if lacks_program(profile) else ()
    table = Table.of_rows(columns, content, title=title, notes=notes)
    return replace(table, breaks=frozenset({len(content)}))


def _reason(group: InstructionRows, row: Row, has_record: bool) -> str:
    """Return why the time of a row has a line, or none."""
    own = row.attribution
    if not has_record:
        return "no ETRecord was given"
    if row is group.head:
        if len(own.lines) == 1:
            return _HAS_LINE
        if not own.lines:
            return "the nodes of the call have no line"
        return f"the call has only one time, for {len(own.lines):,} lines"
    if row.kind == "unaccounted":
        return "no event explains it"
    if own.nodes and own.lines:
        return _HAS_LINE
    if own.nodes:
        return "its nodes have no line"
    if row.meaning is not None and row.meaning.identifier is None:
        return "a phase of the call"
    if any(one.attribution.nodes for one in group.below):
        return "no node is known for the event's identifier"
    return "no node is known for any event of the call"
