"""The work of the rows of a profile: FLOPs and bytes of one run, the mean over its runs.

A kernel has the work of its instruction in the program, a delegate's call the work of its
operators, and an event inside of it its operator's work. FLOPs add up: what a call's events do not
explain is the work of its rest. Bytes do not: a call has the bytes that cross its border, its
events the bytes that they read and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.xnnpack_events import InnerEvents, inner_events
from etscope.analysis.work.graph_work import GraphWork
from etscope.analysis.work.instruction_work import InstructionWork
from etscope.analysis.work.operation import Work, sum_of
from etscope.analysis.work.program_work import ProgramWork
from etscope.analysis.work.run_sizes import run_sizes

__all__ = ["ProfileWork", "profile_work"]


@dataclass(frozen=True)
class ProfileWork:
    """The work of a profile's rows in one run, the mean over its runs, by `id` of the row.

    together: for a row with the work of several, all of these: how it divides is not known.
    """

    profile: MethodProfile
    works: Mapping[int, Work]
    together: Mapping[int, Sequence[Row]]

    def of(self, rows: Iterable[Row]) -> Work | None:
        """Return the work of rows together; None if no row has any, as time outside of
        instructions."""
        known = [work for row in rows for work in self._of(row)]
        return sum_of(known) if known else None

    def _of(self, row: Row) -> list[Work]:
        if row.kind == "total":
            return [self.total]
        if row.parts:
            return [work for part in row.parts for work in self._of(part)]
        work = self.works.get(id(row))
        return [] if work is None else [work]

    def ticks_of(self, rows: Iterable[Row]) -> float:
        """Return the time that the work of rows took, in ticks."""
        parts = (part for row in rows for part in row.parts or (row,))
        every = {id(one): one for part in parts for one in self.together.get(id(part), (part,))}
        return sum(float(one.ticks.mean()) for one in every.values())

    @cached_property
    def total(self) -> Work:
        """The work of a run: of all instructions."""
        return sum_of(
            self.works[id(row)]
            for row in self.profile.rows
            if row.depth == 0 and id(row) in self.works
        )

    @property
    def unknown_share(self) -> float:
        """The share of the method's time in rows with some unknown work."""
        leaves = (leaf for group in self.profile.instructions for leaf in group.leaves)
        ticks = sum(
            float(leaf.ticks.mean())
            for leaf in leaves
            if id(leaf) in self.works and self.works[id(leaf)].unknown
        )
        return ticks / max(1.0, float(self.profile.total.mean()))


def profile_work(trace: Trace, profile: MethodProfile) -> ProfileWork | None:
    """Return the work of a profile's rows, counted once; None if neither a record nor a program has
    it."""
    key = "work of a profile", id(profile)
    # Kept with its profile, so that no other gets the same id.
    return trace.once(key, lambda: (profile, _profile_work(trace, profile)))[1]


def _profile_work(trace: Trace, profile: MethodProfile) -> ProfileWork | None:
    method = profile.method
    if method is None:
        return None
    run_nodes, program = trace.run_nodes(method), trace.recorded_program
    graph, listing = run_nodes.symbols.graph, trace.instructions(method)
    of_program = ProgramWork(program, method, listing) if program is not None and listing else None
    if graph is None and of_program is None:
        return None
    found: dict[int, list[Work]] = {}
    together: dict[int, Sequence[Row]] = {}
    most = None if graph is None else GraphWork(graph)
    for variant in run_sizes(trace, profile, graph):
        of_graph = None if graph is None else GraphWork(graph, variant.sizes)
        inner = _inner_events(trace, method)
        rows = InstructionWork(run_nodes, of_program, of_graph, most, inner, variant.sizes.position)
        for row, work in rows.of(profile.instructions):
            calls = float(row.calls[variant.runs].sum()) / len(profile.runs)
            found.setdefault(id(row), []).append(work.times(calls))
        together.update(rows.together)
    added = {key: sum_of(works) for key, works in found.items()}
    return ProfileWork(profile, _with_rests(profile, added), together)


def _inner_events(trace: Trace, method: str) -> InnerEvents:
    """Return XNNPACK's operators behind events. Without a record only their order decides."""
    program = trace.recorded_program
    if trace.record is not None or program is None:
        return trace.inner_events(method)

    def found() -> InnerEvents:
        blocks = [block for block in trace.blocks if trace.method_of(block) == method]
        return inner_events(blocks, program, method, trace.instructions(method))

    return trace.once(("inner events of a program", method), found)


def _with_rests(profile: MethodProfile, works: dict[int, Work]) -> dict[int, Work]:
    """Add the work of the rests of calls: what the call's other events do not explain."""
    found = dict(works)
    for group in profile.instructions:
        whole = works.get(id(group.head))
        if not group.is_split or whole is None:
            continue
        leaves = [leaf for leaf in group.leaves if id(leaf) in works]
        explained = sum_of(works[id(leaf)] for leaf in leaves)
        rest = next(
            (row for row in group.below if row.kind == "unaccounted" and row.depth == 1), None
        )
        left = whole.flops - explained.flops
        if rest is not None and left > 1e-9 * whole.flops:  # less is what rounding leaves
            parts = dict(explained.dtypes)
            types = ((name, max(0.0, part - parts.get(name, 0))) for name, part in whole.dtypes)
            found[id(rest)] = Work(left, unknown=whole.unknown, dtypes=tuple(types))
    return found
