"""The memory plans of a program, to look at: what is alive at the peak and which instructions made
it, how much is alive when, and where and when each value lives."""

from __future__ import annotations

from collections.abc import Mapping

from etscope.analysis.memory.memory import MemoryPlan, memory_plan
from etscope.errors import MissingDataError
from etscope.formats.program.pte import Program
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind


def memory_report(program: Program, about: Mapping[str, str]) -> Report:
    """A report with the sections "memory" (what the method takes), "memory_peak" (the values alive
    at the peak), "memory_live" (bytes alive at each instruction) and "memory_values" (place and
    life of each planned value), those of all methods one below the other.

    Raises `MissingDataError` for a program that plans no memory.
    """
    plans = {method.name: memory_plan(program, method.name) for method in program.methods}
    if not any(plan.values for plan in plans.values()):
        raise MissingDataError(
            "this program plans no memory: it has no tensors whose place is known before it runs",
            hint="export with memory planning, which is ExecuTorch's default",
        )
    sections = [
        summary_section(plans),
        peak_section(plans),
        _live(plans),
        _values(plans),
    ]
    return Report(about, tuple(section for section in sections if len(section.table)))


def summary_section(plans: Mapping[str, MemoryPlan]) -> Section:
    """One row for each kind of memory that a method takes."""
    return rows(
        "memory",
        "Memory",
        (
            Column("method"),
            Column("memory"),
            Column("size", Kind.BYTES),
            Column("peak", Kind.BYTES, title="alive at peak"),
        ),
        [(name, *row) for name, plan in plans.items() for row in plan.summary().rows()],
    )


def peak_section(plans: Mapping[str, MemoryPlan]) -> Section:
    """One row for each value alive where a method's plan is fullest (of several such instructions
    the first), the largest first. `share` is of the peak; values that share place and time, as
    views do, each have their whole size."""
    content, notes = [], []
    for name, plan in plans.items():
        for instruction in plan.peak_instructions[:1]:
            peak = plan.peak_bytes
            if not peak:
                continue
            others = len(plan.peak_instructions) - 1
            also = f", and at {others:,} more" if others else ""
            notes.append(
                f"{name}: {peak:,} bytes are alive at instruction {instruction} "
                f"({plan.labels[instruction]}){also}."
                if instruction < len(plan.labels)
                else f"{name}: {peak:,} bytes are alive."
            )
            content += [
                (
                    name,
                    value.value,
                    str(value.tensor),
                    value.nbytes,
                    value.nbytes / peak,
                    value.role,
                    value.op,
                    value.first if value.op is not None else None,
                    value.last,
                )
                for value in plan.live_at(instruction)
                if value.nbytes
            ]
    return rows(
        "memory_peak",
        "Alive at the peak of planned memory",
        (
            Column("method"),
            Column("value", Kind.INT, priority=4),
            Column("tensor"),
            Column("size", Kind.BYTES),
            Column("share", Kind.SHARE),
            Column("role", priority=1),
            Column("made_by", title="made by"),
            Column("instruction", Kind.INT, title="#"),
            Column("last", Kind.INT, title="alive until #", priority=2),
        ),
        content,
        tuple(notes),
    )


def _live(plans: Mapping[str, MemoryPlan]) -> Section:
    """One row an instruction: what is alive, and what begins and ends there."""
    content = []
    for name, plan in plans.items():
        born: dict[int, int] = {}
        last: dict[int, int] = {}
        for value in plan.values:
            if value.last >= value.first:
                born[value.first] = born.get(value.first, 0) + 1
                last[value.last] = last.get(value.last, 0) + 1
        for number, (size, label) in enumerate(zip(plan.live_bytes, plan.labels, strict=False)):
            share = size / plan.peak_bytes if plan.peak_bytes else None
            begin, end = born.get(number, 0), last.get(number, 0)
            content.append((name, number, label, size, share, begin, end))
    return rows(
        "memory_live",
        "Planned memory alive at each instruction",
        (
            Column("method"),
            Column("instruction", Kind.INT, title="#"),
            Column("op"),
            Column("alive", Kind.BYTES),
            Column("of_peak", Kind.SHARE, title="of the peak"),
            Column("begin", Kind.COUNT, title="values that begin", priority=2),
            Column("end", Kind.COUNT, title="values that end", priority=2),
        ),
        content,
    )


def _values(plans: Mapping[str, MemoryPlan]) -> Section:
    """Place and life of each planned value: the tables of the plans, one below the other."""
    tables = [(name, plan.table()) for name, plan in plans.items()]
    columns = (Column("method"), *tables[0][1].columns)
    content = [(name, *row) for name, table in tables for row in table.rows()]
    return rows("memory_values", "Values in planned memory", columns, content)
