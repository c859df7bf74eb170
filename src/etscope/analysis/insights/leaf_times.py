"""The times of a method's leaves, the words for them, and the selectors that pick them.

Each number is a sum of leaves. A selector is given only if it picks exactly these, by the nodes of
the leaves (`--select`) and by the modules that the tables show (the page's filter).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.profile.profile import InstructionRows, Leaf, MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_type, short_lines
from etscope.analysis.selector_fields import fields_of_row
from etscope.errors import UsageError
from etscope.model.finding import Finding, Place, Quantity, Severity
from etscope.model.selector import Selector
from etscope.units import TimeScale, count, duration_decimals, format_durations, format_share

COARSE_STEP_NS = 1000  # of a clock of whole microseconds


@dataclass(frozen=True)
class LeafTimes:
    """The times of a method's leaves, and how to put them in words."""

    profile: MethodProfile
    scale: Scale

    # -- numbers

    @cached_property
    def total(self) -> float:
        """Average ticks of Method::execute."""
        return float(self.profile.total.mean())

    @property
    def members(self) -> Sequence[Leaf]:
        """All leaves, each with its instruction."""
        return self.profile.leaves

    @cached_property
    def groups(self) -> Sequence[InstructionRows]:
        """The rows of the profile by instruction."""
        return self.profile.instructions

    @cached_property
    def averages(self) -> Mapping[int, float]:
        """Average ticks of each leaf, by its `id`."""
        return {id(leaf): float(leaf.ticks.mean()) for _, leaf in self.members}

    def ticks(self, members: Iterable[Leaf]) -> float:
        return sum(self.averages[id(leaf)] for _, leaf in members)

    def share(self, ticks: float) -> float:
        return ticks / self.total if self.total else 0.0

    def quantity(self, ticks: float) -> Quantity:
        return Quantity(float(self.scale(ticks)), self.scale.unit, self.share(ticks))

    def text(self, ticks: float) -> str:
        """Format a time with its unit, with as many decimals as the tables."""
        decimals = duration_decimals([float(self.scale(self.total))], self.scale.unit)
        value = float(self.scale(ticks))
        return f"{format_durations([value], self.scale.unit, decimals)[0]} {self.scale.unit}"

    def with_share(self, ticks: float) -> str:
        return f"{self.text(ticks)} ({format_share(self.share(ticks))})"

    def taken(self, members: Iterable[Leaf]) -> str:
        """The time of leaves together, with its share."""
        return self.with_share(self.ticks(members))

    def by_kind(
        self, members: Iterable[Leaf], kind_of: Callable[[Row], str]
    ) -> dict[str, list[Leaf]]:
        """Group leaves by the kind of their row, the kind with most time first."""
        kinds: dict[str, list[Leaf]] = {}
        for one in members:
            kinds.setdefault(kind_of(one[1]), []).append(one)
        return dict(sorted(kinds.items(), key=lambda item: -self.ticks(item[1])))

    def lines(self, members: Sequence[Leaf]) -> str:
        """Say where the leaves are written: the line with most of their time."""
        times: dict[str, float] = {}
        for _, leaf in members:
            for line in leaf.attribution.lines[:1]:
                short = short_lines((line,))
                times[short] = times.get(short, 0.0) + self.averages[id(leaf)]
        if not times:
            return ""
        others = len(times) - 1
        more = f" and {count(others, 'other line')}" if others else ""
        return f", at {max(times, key=lambda line: times[line])}{more}"

    def is_coarse(self, events: Sequence[Leaf]) -> bool:
        """Return whether a clock of nanoseconds shows whole microseconds only."""
        if self.scale.source is not TimeScale.NS or not events:
            return False
        return all((leaf.ticks % COARSE_STEP_NS == 0).all() for _, leaf in events)

    # -- selectors

    @cached_property
    def cells(self) -> Mapping[int, tuple[Mapping[str, Sequence[str]], ...]]:
        """Texts that selectors match in each row, by the row's `id`: the fields of its nodes
        (`--select`), and the cells of the tables (the page's filter).
        """
        found = {}
        for row in (row for group in self.groups for row in (group.head, *group.below)):
            fields, written = fields_of_row(row), row.attribution
            types = {kind for node in written.located if (kind := module_type(node))}
            of_tables = {
                "name": [row.name],
                "op": written.op_types,
                "module": [written.module] if written.module else [],
                "type": list(types) if len(types) == 1 else [],
                "file": [str(line) for line in written.all_lines],
                "id": [str(row.instruction_id)] if row.depth == 0 else [],
            }
            found[id(row)] = fields, {**fields, **of_tables}
        return found

    def selector(self, members: Sequence[Leaf], *candidates: str) -> str | None:
        """Return the first selector that picks just these leaves, both by nodes and by cells."""
        wanted = {id(leaf) for _, leaf in members}
        for text in candidates:
            try:
                selector = Selector(text)
            except UsageError:  # a name that the language cannot say
                continue
            if all(self.picked(selector, way) == wanted for way in (0, 1)):
                return text
        return None

    def picked(self, selector: Selector, way: int) -> set[int]:
        """The `id` of the leaves that a selector picks, by their nodes (0) or cells (1)."""
        return {
            id(leaf)
            for group in self.groups
            for leaf in group.kept(lambda row: selector.matches(self.cells[id(row)][way]))
        }

    def finding(
        self,
        kind: str,
        severity: Severity,
        sentence: str,
        members: Sequence[Leaf],
        *candidates: str,
        by: tuple[str, str] | None = None,
    ) -> Finding:
        """A finding about leaves. by: the roll-up, and its row, if no selector picks them."""
        select = self.selector(members, *candidates)
        view = "modules" if select is None and by is not None and by[0] == "module" else "events"
        command: tuple[str, ...] = ("inspect",)
        if select is not None:
            command += ("--select", select)
            place = Place(view, select=select)
        elif by is not None:
            command += ("--by", by[0])
            place = Place(view, by=by[0], name=by[1])
        else:
            place = Place(view)
        return Finding(
            kind,
            severity,
            sentence,
            self.profile.method,
            self.quantity(self.ticks(members)),
            place,
            command,
        )


def quoted(name: str) -> str:
    """Return a name as a pattern that matches only this name. Quotes in a name cannot be written in
    a pattern.
    """
    return f'"{name}"' if re.search(r"[\s()]", name) else name
