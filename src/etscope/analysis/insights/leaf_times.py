"""Findings about time: which part of the model takes it, and what takes it beside the model.

Each number is a sum of leaves. A selector is given only if it picks exactly these, by the nodes of
the leaves (`--select`) and by the modules that the tables show (the page's filter).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from etscope.analysis.delegates.xnnpack import event_kind, untaken_types
from etscope.analysis.insights import thresholds
from etscope.analysis.profile.counted import SLOW_RATIO
from etscope.analysis.profile.profile import InstructionRows, Leaf, MethodProfile, Row
from etscope.analysis.profile.rollup import NO_MODULE, ROOT, Group, rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import block_family, module_type, short_lines
from etscope.analysis.selector_fields import fields_of_row
from etscope.errors import UsageError
from etscope.formats.program.pte import Program
from etscope.model.finding import Finding, Place, Quantity, Severity
from etscope.model.selector import Selector
from etscope.model.statistics import statistic
from etscope.units import TimeScale, count, duration_decimals, format_durations, format_share

# What moves or converts values without computing any: kernels by the start of their names, and the
# names that XNNPACK gives such operators.
_LAYOUT_KERNELS = (
    "permute_copy", "transpose_copy", "t_copy", "clone", "_clone_dim_order", "_to_copy",
    "_to_dim_order_copy", "_conj_physical", "expand_copy", "copy_", "contiguous",
    "quantize_", "dequantize_", "choose_qparams",
)  # fmt: skip
_LAYOUT_DELEGATED = ("Transpose", "Convert", "Copy")

_LONGEST_CODE = 60  # characters of a line that are shown in a sentence


@dataclass(frozen=True)
class TimeFindings:
    """The findings about the time of a method, and the words for its numbers.

    program: the one that ran, if it is known.
    """

    profile: MethodProfile
    scale: Scale
    program: Program | None = None

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
        """A time in as many decimals as the tables show it, with its unit."""
        decimals = duration_decimals([float(self.scale(self.total))], self.scale.unit)
        value = float(self.scale(ticks))
        return f"{format_durations([value], self.scale.unit, decimals)[0]} {self.scale.unit}"

    def with_share(self, ticks: float) -> str:
        return f"{self.text(ticks)} ({format_share(self.share(ticks))})"

    # -- selectors

    @cached_property
    def cells(self) -> Mapping[int, tuple[Mapping[str, Sequence[str]], ...]]:
        """By the `id` of a row, what selectors match: of its nodes (`--select`), and of the cells
        of the tables (the page's filter)."""
        return {
            id(row): (fields, {**fields, **_cells(row)})
            for group in self.groups
            for row in (group.head, *group.below)
            for fields in [fields_of_row(row)]
        }

    def selector(self, members: Sequence[Leaf], *candidates: str) -> str | None:
        """Return the first selector that picks just these leaves, however it is applied."""
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

    # -- which part of the model

    def slowest_module(self) -> Finding | None:
        """The layer that takes most of the time itself: repeated blocks count as one."""
        modules = rollup(self.profile, "module").groups
        own = {one.name: one.members for one in modules if one.name not in (ROOT, NO_MODULE)}
        types: dict[str, str] = {}
        for path, leaves in own.items():
            for _, leaf in leaves:
                kinds = {kind for node in leaf.attribution.located if (kind := module_type(node))}
                if len(kinds) == 1:
                    types[path] = kinds.pop()
        families: dict[tuple[str, str | None], list[str]] = {}
        for path in own:
            families.setdefault((block_family(path), types.get(path)), []).append(path)
        if not families:
            return None
        (pattern, kind), paths = max(
            families.items(), key=lambda item: self.ticks(m for path in item[1] for m in own[path])
        )
        members = [member for path in paths for member in own[path]]
        ticks = self.ticks(members)
        if self.share(ticks) < thresholds.NAMED_SHARE:
            return None
        longest = max(paths, key=lambda path: self.ticks(own[path]))
        name = paths[0] if len(paths) == 1 else pattern
        select = self.selector(members, f"module:{name}", f"module:{name} and not module:{name}.*")
        if select is None:  # its leaves are not its own alone: tell the row of the roll-up
            return self._module_of_roll_up(longest, types.get(longest))
        what = ", ".join(filter(None, (f"{len(paths)} modules" * (len(paths) > 1), kind)))
        sentence = f"The layer that takes most time is {name}{f' ({what})' if what else ''}: "
        sentence += self.with_share(ticks)
        if " not " in select:
            sentence += ", without the modules inside it"
        if len(paths) > 1:
            sentence += f"; most of it in {longest}, {self.text(self.ticks(own[longest]))}"
        sentence += self._lines(members)
        return self.finding("slowest-module", Severity.FACT, sentence + ".", members, select)

    def _module_of_roll_up(self, path: str, kind: str | None) -> Finding:
        """A module with all inside it, as the roll-up by module has it."""
        tree = rollup(self.profile, "module").tree()
        ticks = next(float(one.ticks.mean()) for one in tree if one.name == path)
        sentence = (
            f"The layer that takes most time is {path}{f' ({kind})' if kind else ''}: "
            f"{self.with_share(ticks)}, with the modules inside it."
        )
        return Finding(
            "slowest-module",
            Severity.FACT,
            sentence,
            self.profile.method,
            self.quantity(ticks),
            Place("modules", by="module", name=path),
            ("inspect", "--by", "module"),
        )

    def _lines(self, members: Sequence[Leaf]) -> str:
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

    def slowest_operator(self) -> Finding | None:
        """The operator type that takes most of the time."""
        groups = self._operators("kernel", "delegated", "other")
        if not groups:
            return None
        longest = max(groups, key=lambda one: float(one.ticks.mean()))
        name, members, ticks = longest.name, longest.members, float(longest.ticks.mean())
        if self.share(ticks) < thresholds.NAMED_SHARE:
            return None
        places = f" in {len(members):,} places" if len(members) > 1 else ""
        where = " inside delegates" if members[0][1].kind == "delegated" else ""
        sentence = (
            f"The operator that takes most time is {name}{where}: {self.with_share(ticks)}{places}"
            f"{self._lines(members)}."
        )
        quoted = _quoted(name)
        numbered = _quoted(f"{name} #*")
        return self.finding(
            "slowest-operator",
            Severity.FACT,
            sentence,
            members,
            f"name:{quoted}",
            f"name:{numbered}",
            f"name:{quoted} or name:{numbered}",
            by=("op", name),
        )

    def _operators(self, *kinds: str) -> list[Group]:
        """The operators of these kinds of rows."""
        return [one for one in rollup(self.profile, "op").groups if one.rows[0].kind in kinds]

    def slowest_line(self) -> Finding | None:
        """The line of Python behind most of the time."""
        found = [
            one
            for one in rollup(self.profile, "source").groups
            if len(one.rows[0].attribution.lines) == 1
        ]
        if not found:
            return None
        longest = max(found, key=lambda one: float(one.ticks.mean()))
        members, ticks = longest.members, float(longest.ticks.mean())
        (line,) = longest.rows[0].attribution.lines
        if self.share(ticks) < thresholds.NAMED_SHARE:
            return None
        text = line.text.strip()
        is_whole = 0 < len(text) <= _LONGEST_CODE and text.count("(") == text.count(")")
        code = f" ({text})" if is_whole else ""
        short = short_lines((line,))
        return self.finding(
            "slowest-line",
            Severity.FACT,
            f"The line behind most time is {short}{code}: {self.with_share(ticks)}.",
            members,
            f"file:{_quoted(short)}",
            f"file:{_quoted(str(line))}",
            by=("source", str(line)),
        )

    # -- what takes time beside the model's own work

    def islands(self) -> Finding | None:
        """The operators that run outside of delegates, in a method that has some."""
        calls = [group for group in self.groups if group.head.kind == "delegate"]
        members = [member for member in self.members if member[1].kind == "kernel"]
        ticks = self.ticks(members)
        if not members:
            return None
        if not calls:
            sentence = self.nothing_delegated(members)
            return self.finding(
                "nothing-delegated", Severity.COST, sentence, members, "kind:kernel"
            )
        if self.share(ticks) < thresholds.ISLANDS_SHARE:
            return None
        longest = max(self._operators("kernel"), key=lambda one: float(one.ticks.mean()))
        worst, its = longest.name, longest.members
        outside = f"outside of {count(len(calls), 'delegate call')}"
        if len(members) == 1:
            sentence = (
                f"One operator runs on a portable kernel, {outside}: {worst}, "
                f"{self.with_share(ticks)}"
            )
        else:
            places = f" in {len(its):,} places" if len(its) > 1 else ""
            sentence = (
                f"{len(members):,} operators run on portable kernels, {outside}: "
                f"{self.with_share(ticks)}; most of it in {worst}, "
                f"{self.text(float(longest.ticks.mean()))}{places}"
            )
        sentence += f"{self._lines(its)}.{self.untaken_types}"
        return self.finding("islands", Severity.COST, sentence, members, "kind:kernel")

    def nothing_delegated(self, kernels: Sequence[Leaf]) -> str:
        """The sentence for a method without delegate calls. kernels: its leaves."""
        taken = self.with_share(self.ticks(kernels))
        return f"Nothing is delegated: kernels of the runtime take {taken}.{self.untaken_types}"

    @cached_property
    def untaken_types(self) -> str:
        """The types of tensors that keep operators out of delegates, as a sentence after others; ""
        without any."""
        for method in () if self.program is None else self.program.methods:
            if method.name == self.profile.method and (why := untaken_types(method)):
                return f" {why}."
        return ""

    def layout_changes(self) -> Finding | None:
        """The time in changes of layout and type, which compute nothing."""
        members = [member for member in self.members if _is_layout(member[1])]
        ticks = self.ticks(members)
        if self.share(ticks) < thresholds.LAYOUT_SHARE:
            return None
        kinds = rollup(self.profile, lambda _, leaf: _kind_of(leaf) if _is_layout(leaf) else "")
        groups = kinds.largest(lambda one: float(one.ticks.mean()))
        listed = [one.name for one in groups if one.name]
        longest = max(members, key=lambda member: self.averages[id(member[1])])
        sentence = (
            f"Changes of layout and type ({', '.join(listed[:4])}) take {self.with_share(ticks)}"
        )
        if len(members) > 1:
            sentence += (
                f" in {len(members):,} places, the most in {longest[1].name} of instruction "
                f"{longest[0].head.instruction_id}, {self.text(self.ticks([longest]))}"
            )
        sentence += self._lines([longest])
        select = " or ".join(f"name:{_quoted(name)}*" for name in listed)
        return self.finding(
            "layout-changes", Severity.COST, sentence + ".", members, select, by=("op", listed[0])
        )

    def framework(self) -> Finding | None:
        """The time that no instruction accounts for."""
        ticks = float(self.profile.unaccounted.mean())
        if self.share(ticks) < thresholds.FRAMEWORK_SHARE:
            return None
        return Finding(
            "framework",
            Severity.COST,
            f"No instruction accounts for {self.with_share(ticks)}: the runtime's own work between "
            "them, and what tracing costs.",
            self.profile.method,
            self.quantity(ticks),
            Place("events"),
            ("inspect", "--by", "type"),
        )

    # -- what could not be measured

    def delegate_rest(self) -> Finding | None:
        """The time that a delegate's events leave over, and how well they are known."""
        rest = [member for member in self.members if member[1].kind == "unaccounted"]
        events = [member for member in self.members if member[1].kind == "delegated"]
        coarse = self._is_coarse(events)
        ticks = self.ticks(rest)
        step = thresholds.COARSE_STEP_NS
        short = [m for m in events if self.averages[id(m[1])] < thresholds.COARSE_STEPS * step]
        if self.share(ticks) >= thresholds.REST_SHARE:
            heads = len({id(group.head) for group, _ in rest})
            calls = f"{heads:,} delegate calls" if heads > 1 else "delegate call"
            sentence = f"No event explains {self.with_share(ticks)} of the {calls}"
            if coarse:
                lost = len(events) * step
                sentence += ": the delegate logs whole microseconds, so that " + (
                    f"each of {len(events):,} events can be up to 1 us too short, together up to "
                    f"{self.text(lost)}"
                    if len(events) > 1
                    else "its one event can be up to 1 us too short"
                )
            return self.finding(
                "delegate-rest", Severity.UNKNOWN, sentence + ".", rest, "kind:unaccounted"
            )
        if coarse and self.share(self.ticks(short)) >= thresholds.COARSE_SHARE:
            sentence = (
                f"{count(len(short), 'event')} inside delegates, together "
                f"{self.with_share(self.ticks(short))}, "
                "are logged in whole microseconds and take less than 5 of them: their times are "
                "rough."
            )
            return self.finding("coarse-clock", Severity.UNKNOWN, sentence, short)
        return None

    def _is_coarse(self, events: Sequence[Leaf]) -> bool:
        """Return whether a clock of nanoseconds shows whole microseconds only."""
        if self.scale.source is not TimeScale.NS or not events:
            return False
        return all((leaf.ticks % thresholds.COARSE_STEP_NS == 0).all() for _, leaf in events)

    def undivided(self) -> Finding | None:
        """The delegate calls of which no events tell what takes the time."""
        members = [member for member in self.members if member[1].kind == "delegate"]
        ticks = self.ticks(members)
        if self.share(ticks) < thresholds.REST_SHARE:
            return None
        below = [row for group, _ in members for row in group.below]
        why = "log no events of their own"
        if any(row.meaning is not None and row.meaning.is_estimate for row in below):
            why = "log estimates, which are not measured"
        elif any(row.own_clock for row in below):
            why = "log no times on the clock of the runtime"
        elif below:
            why = "log events that hold one another"
        sentence = (
            f"{count(len(members), 'delegate call')}, {self.with_share(ticks)}, "
            f"{why if len(members) > 1 else why.replace('log', 'logs', 1)}: what takes the time "
            "inside is not known."
        )
        ids = " or ".join(f"id:{group.head.instruction_id}" for group, _ in members)
        return self.finding("undivided", Severity.UNKNOWN, sentence, members, "kind:delegate", ids)

    # -- one run that makes an average

    def outlier(self) -> Finding | None:
        """The leaf with the longest average of those that one run makes.

        A run that is slow as a whole is told by itself, not by each of its leaves.
        """
        if len(self.profile.runs) < thresholds.OUTLIER_FEWEST:
            return None
        totals = self.profile.total
        is_slow = totals >= SLOW_RATIO * np.median(totals)
        found: list[tuple[float, Leaf]] = []
        for group, leaf in self.members:
            mean, most = self.averages[id(leaf)], float(leaf.ticks.max())
            others = (mean * len(leaf.ticks) - most) / (len(leaf.ticks) - 1)
            if others < thresholds.OUTLIER_DROP * mean and not is_slow[leaf.ticks.argmax()]:
                found.append((mean, (group, leaf)))
        if not found:
            return None
        mean, (group, leaf) = max(found, key=lambda item: item[0])
        if self.share(mean) < thresholds.OUTLIER_SHARE:
            return None
        at = int(leaf.ticks.argmax())
        others = (mean * len(leaf.ticks) - float(leaf.ticks[at])) / (len(leaf.ticks) - 1)
        more = f" ({len(found) - 1} more averages are like this)" if len(found) > 1 else ""
        sentence = (
            f"One run makes the average of {leaf.name}, {self.with_share(mean)}: "
            f"{self.text(float(leaf.ticks[at]))} in run {int(self.profile.runs[at])}, "
            f"{self.text(others)} on average in the others, "
            f"{self.text(statistic(leaf.ticks, 'p50'))} as a median{more}."
        )
        number = group.head.instruction_id
        return Finding(
            "outlier",
            Severity.COST,
            sentence,
            self.profile.method,
            self.quantity(mean),
            Place("events", name=leaf.name, instruction=number),
            ("inspect", "--select", f"id:{number}", "--columns", "event,avg,p50,min,max,first"),
        )

    def all(self) -> Iterator[Finding]:
        """Yield all findings about time."""
        if not self.total:
            return
        for found in (
            self.slowest_module(),
            self.slowest_operator(),
            self.slowest_line(),
            self.islands(),
            self.layout_changes(),
            self.framework(),
            self.delegate_rest(),
            self.undivided(),
            self.outlier(),
        ):
            if found is not None:
                yield found


def _cells(row: Row) -> Mapping[str, Sequence[str]]:
    """The cells of a row in the tables where they differ from its fields."""
    found = row.attribution
    module = found.module
    types = {kind for node in found.located if (kind := module_type(node))}
    return {
        "name": [row.name],
        "op": found.op_types,
        "module": [] if not module else [module],
        "type": list(types) if len(types) == 1 else [],
        "file": [str(line) for line in found.all_lines],
        "id": [str(row.instruction_id)] if row.depth == 0 else [],
    }


def _is_layout(row: Row) -> bool:
    if row.kind == "kernel":
        name = row.name.rpartition("::")[2]
        return name.startswith(_LAYOUT_KERNELS)
    return row.kind == "delegated" and _kind_of(row) in _LAYOUT_DELEGATED


def _kind_of(row: Row) -> str:
    """The name of an operator up to its overload, or to the types that XNNPACK names."""
    if row.kind == "delegated":
        return event_kind(row.name)
    return row.name.partition(".")[0]


def _quoted(name: str) -> str:
    """A name as a pattern that matches nothing else; quotes in it cannot be written."""
    return f'"{name}"' if re.search(r"[\s()]", name) else name
