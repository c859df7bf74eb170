"""Rules about the slowest parts of a run, and the pace of a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.leaf_times import LeafTimes, quoted
from etscope.analysis.profile.growth import Growth, growth, is_enough
from etscope.analysis.profile.profile import Leaf, Row
from etscope.analysis.profile.rollup import NO_MODULE, ROOT, rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import block_family, module_type, short_lines
from etscope.formats.generation import DECODE, PREFILL
from etscope.model.finding import Finding, Place, Quantity, Severity
from etscope.units import TimeScale, format_float, format_share

if TYPE_CHECKING:
    from etscope.analysis.generation.pace import Pace  # of runs of `etscope generate` only

NAMED_SHARE = 0.02  # of the time: below, no module, operator or line stands out
BESIDE_SHARE = 0.10  # of a token outside of the runtime: choosing it alone costs some %
_LONGEST_CODE = 60  # characters of a line that are shown in a sentence


def slowest_parts(facts: Facts) -> Iterator[Finding]:
    """The layer, the operator and the line of Python that take most of the time."""
    # `generation` reports decode's line, or without lines its operator, and whether it grows.
    is_decode = facts.profile.phase == DECODE
    has_lines = any(leaf.attribution.lines for _, leaf in facts.time.members)
    found = [slowest_module(facts.time)]
    if not is_decode or has_lines:
        found.append(slowest_operator(facts.time))
    if not is_decode:
        found.append(slowest_line(facts.time))
    yield from filter(None, found)


def slowest_module(time: LeafTimes) -> Finding | None:
    """The layer that takes most of the time itself: repeated blocks count as one."""
    modules = rollup(time.profile, "module").groups
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
        families.items(), key=lambda item: time.ticks(m for path in item[1] for m in own[path])
    )
    members = [member for path in paths for member in own[path]]
    ticks = time.ticks(members)
    if time.share(ticks) < NAMED_SHARE:
        return None
    longest = max(paths, key=lambda path: time.ticks(own[path]))
    name = paths[0] if len(paths) == 1 else pattern
    select = time.selector(members, f"module:{name}", f"module:{name} and not module:{name}.*")
    if select is None:  # its leaves belong to other modules too: use the row of the roll-up
        return module_of_roll_up(time, longest, types.get(longest))
    what = ", ".join(filter(None, (f"{len(paths)} modules" * (len(paths) > 1), kind)))
    sentence = f"The layer that takes most time is {name}{f' ({what})' if what else ''}: "
    sentence += time.with_share(ticks)
    if " not " in select:
        sentence += ", without the modules inside it"
    if len(paths) > 1:
        sentence += f"; most of it in {longest}, {time.text(time.ticks(own[longest]))}"
    sentence += time.lines(members)
    return time.finding("slowest-module", Severity.FACT, sentence + ".", members, select)


def module_of_roll_up(time: LeafTimes, path: str, kind: str | None) -> Finding:
    """A module and all modules inside it, with the times of the roll-up by module."""
    tree = rollup(time.profile, "module").tree()
    ticks = next(float(one.ticks.mean()) for one in tree if one.name == path)
    sentence = (
        f"The layer that takes most time is {path}{f' ({kind})' if kind else ''}: "
        f"{time.with_share(ticks)}, with the modules inside it."
    )
    return Finding(
        "slowest-module",
        Severity.FACT,
        sentence,
        time.profile.method,
        time.quantity(ticks),
        Place("modules", by="module", name=path),
        ("inspect", "--by", "module"),
    )


def slowest_operator(time: LeafTimes) -> Finding | None:
    """The operator type that takes most of the time."""
    kinds = ("kernel", "delegated", "other")
    groups = [one for one in rollup(time.profile, "op").groups if one.rows[0].kind in kinds]
    if not groups:
        return None
    longest = max(groups, key=lambda one: float(one.ticks.mean()))
    name, members, ticks = longest.name, longest.members, float(longest.ticks.mean())
    if time.share(ticks) < NAMED_SHARE:
        return None
    places = f" in {len(members):,} places" if len(members) > 1 else ""
    where = " inside delegates" if members[0][1].kind == "delegated" else ""
    sentence = (
        f"The operator that takes most time is {name}{where}: {time.with_share(ticks)}{places}"
        f"{time.lines(members)}."
    )
    exact, numbered = quoted(name), quoted(f"{name} #*")
    return time.finding(
        "slowest-operator",
        Severity.FACT,
        sentence,
        members,
        f"name:{exact}",
        f"name:{numbered}",
        f"name:{exact} or name:{numbered}",
        by=("op", name),
    )


def slowest_line(time: LeafTimes) -> Finding | None:
    """The line of Python behind most of the time."""
    found = [
        one
        for one in rollup(time.profile, "source").groups
        if len(one.rows[0].attribution.lines) == 1
    ]
    if not found:
        return None
    longest = max(found, key=lambda one: float(one.ticks.mean()))
    members, ticks = longest.members, float(longest.ticks.mean())
    (line,) = longest.rows[0].attribution.lines
    if time.share(ticks) < NAMED_SHARE:
        return None
    text = line.text.strip()
    is_whole = 0 < len(text) <= _LONGEST_CODE and text.count("(") == text.count(")")
    code = f" ({text})" if is_whole else ""
    short = short_lines((line,))
    return time.finding(
        "slowest-line",
        Severity.FACT,
        f"The line that takes most time is {short}{code}: {time.with_share(ticks)}.",
        members,
        f"file:{quoted(short)}",
        f"file:{quoted(str(line))}",
        by=("source", str(line)),
    )


_MS = 1e6  # ns


def generation(facts: Facts) -> Iterator[Finding]:
    """A language model's calls: where decode spends its time, what grows with the context, and what
    a token costs outside of the runtime. Other models have none.
    """
    time, phase, saved = facts.time, facts.profile.phase, facts.trace.saved_run
    if phase is None or not time.total:
        return
    if phase == DECODE:
        groups = _Groups.of(time, facts.is_one_of_several)
        yield from groups.longest()
        yield from groups.growing()
    run = None if saved is None or saved.generation is None else saved.generation.untraced
    if run is None:
        return
    from etscope.analysis.generation.pace import Pace

    pace, method = Pace.of(run), facts.profile.method
    calls = pace.calls
    # All calls where the method is not known.
    is_own = np.array([method in (None, name) for name in calls.methods], np.bool_)[calls.method]
    is_own &= calls.in_phase(phase)
    if phase == DECODE:
        yield from _beside_the_runtime(pace, method, is_own)
    runs = np.unique(calls.run)
    spent = float(calls.execute_ns[is_own].sum()) / max(1, len(runs))
    if phase != PREFILL or len(pace.first_token_ns) != len(runs) or not spent:
        return
    whole = float(pace.first_token_ns.mean())
    name = "Prefill" if method is None else f"Prefill of {method}"
    yield Finding(
        "first-token",
        Severity.FACT,
        f"{name} is {format_share(spent / whole)} of the time to the first token, "
        f"{spent / _MS:.3f} of {whole / _MS:.3f} ms without tracing.",
        method,
        Quantity(spent / _MS, "ms", spent / whole),
        Place("generation"),
        ("inspect", "--by", "module"),
    )


def _beside_the_runtime(
    pace: Pace, method: str | None, is_own: np.typing.NDArray[np.bool_]
) -> Iterator[Finding]:
    """The time of a token for its choice and in the host, of the untraced run. is_own: a mask of
    the method's decode calls."""
    calls = pace.calls
    decodes = calls.in_phase(DECODE)
    whole = float(pace.inter_token_ns.sum())
    if not (is_own & (calls.sampling_ns > 0)).any() or not whole:
        return  # reported once, for the decoder, after which tokens are chosen
    sampling = float(calls.sampling_ns[decodes].sum()) / whole
    host = max(1 - sampling - float(calls.execute_ns[decodes].sum()) / whole, 0.0)
    share = sampling + host
    each = share * whole / len(pace.positions) / _MS
    yield Finding(
        "beside-the-runtime",
        Severity.COST if share >= BESIDE_SHARE else Severity.FACT,
        f"Of the time between tokens, {format_share(sampling)} is spent choosing the token "
        f"and {format_share(host)} in the host, {each:.3f} ms a token without tracing.",
        method,
        Quantity(each, "ms", share),
        Place("generation"),
        ("generate", "--save", "ran"),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The leaves of decode calls by line of Python; by operator where no line is known.

    found: growth of the groups in their order, of the whole call, and of `rows`; None where it is
    uncertain. first, last: positions.
    """

    time: LeafTimes
    is_one_of_several: bool
    by: str
    names: Sequence[str]
    members: Sequence[Sequence[Leaf]]
    found: Growth | None
    rows: Sequence[Row] = ()
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, time: LeafTimes, is_one_of_several: bool) -> _Groups:
        has_lines = any(leaf.attribution.lines for _, leaf in time.members)
        by = "source" if has_lines else "op"
        groups = rollup(time.profile, by).largest(lambda one: float(one.ticks.mean()))
        names = [one.name for one in groups]
        members = [one.members for one in groups]
        profile = time.profile
        position = None if profile.calls is None else profile.calls.position
        if position is None or not is_enough(position):
            return cls(time, is_one_of_several, by, names, members, None)
        # With all rows, as the tables have it: what all times have in common is the machine's.
        rows = [row for row in profile.rows if not row.own_clock]
        times = [*(one.ticks for one in groups), profile.total, *(row.ticks for row in rows)]
        found = growth(position, np.stack(times))
        first, last = int(position.min()), int(position.max())
        return cls(time, is_one_of_several, by, names, members, found, rows, first, last)

    def longest(self) -> Iterator[Finding]:
        """The line, or operator, with most of the time of decode."""
        place = next(
            (n for n, of_it in enumerate(self.members) if self._is_line(of_it[0][1])), None
        )
        if place is None:
            return
        members = self.members[place]
        ticks = self.time.ticks(members)
        if self.time.share(ticks) < NAMED_SHARE:
            return
        where = self._where(place)
        method = self.time.profile.method
        of = f" of {method}" if self.is_one_of_several else ""
        sentence = (
            f"Decode{of} spends {format_share(self.time.share(ticks))} in {where}: "
            f"{self.time.text(ticks)} a call"
        )
        if self.found is not None and self.found.grows[place]:
            sentence += f"; it grows with context there, by {self._slope(place, '')}"
        select = self.time.selector(members, f"file:{PurePath(self.names[place]).name}")
        command = ("inspect", "--by", self.by)
        shown = Place("events", by=self.by, name=self.names[place])
        if select is not None and self.by == "source":
            command, shown = ("inspect", "--select", select), Place("events", select=select)
        yield Finding(
            "decode-line" if self.by == "source" else "decode-operator",
            Severity.FACT,
            f"{sentence}.",
            self.time.profile.method,
            self.time.quantity(ticks),
            shown,
            command,
        )

    def growing(self) -> Iterator[Finding]:
        """The growth of a call with the position, and the line, or operator, with most of it."""
        found = self.found
        if found is None or not found.grows.any():
            return
        whole = len(self.members)
        slopes = np.where(found.grows, found.slope, 0.0)
        most = int(slopes[:whole].argmax())
        if found.grows[whole]:
            method = self.time.profile.method
            what = f"A call of {method}" if self.is_one_of_several else "A token"
            at, sentence = whole, f"{what} takes {self._slope(whole)}"
            if found.grows[most]:
                share = min(float(slopes[most] / found.slope[whole]), 1.0)
                sentence += f": {format_share(share)} of that in {self._where(most)}"
        else:  # a line, else a row: sums of many rows are less steady
            at = most if found.grows[most] else int(slopes.argmax())
            sentence = f"{self._where(at)} takes {self._slope(at)}"
        # The part of the mean time that is there for the context beyond the first position.
        middle = float(found.intercept[at] + found.slope[at] * (self.first + self.last) / 2)
        grown = middle - float(found.intercept[at] + found.slope[at] * self.first)
        yield Finding(
            "growth",
            Severity.COST,
            f"{sentence}, from position {self.first:,} to {self.last:,}.",
            self.time.profile.method,
            self.time.quantity(grown),
            Place("generation"),
            ("inspect", "--by", self.by) if at <= whole else ("inspect",),
        )

    def _slope(self, place: int, longer: str = " longer") -> str:
        """The slope of a group in words, with its interval."""
        assert self.found is not None
        is_clock = self.time.scale.source is TimeScale.CYCLES
        unit = "cycles" if is_clock else "ns"
        scale = Scale(self.time.scale.source, TimeScale.CYCLES if is_clock else TimeScale.NS)
        slope, low, high = (
            format_float(float(scale(one[place])))
            for one in (self.found.slope, self.found.low, self.found.high)
        )
        return f"{slope} {unit}{longer} for each token before it ({low} to {high})"

    def _where(self, place: int) -> str:
        """A group as a reader knows it: "attention.py:34 (model.layers.*.self_attn)"."""
        if place > len(self.members):
            row = self.rows[place - len(self.members) - 1]
            module = row.attribution.module
            return f"{row.name} ({module})" if module else row.name
        leaves = [leaf for _, leaf in self.members[place]]
        name = self.names[place]
        if self.by == "source" and self._is_line(leaves[0]):
            (line,) = leaves[0].attribution.lines
            name = f"{PurePath(line.file).name}:{line.line}"
        modules = {block_family(leaf.attribution.module or "") for leaf in leaves}
        module = modules.pop() if len(modules) == 1 else ""
        return f"{name} ({module})" if module else name

    def _is_line(self, leaf: Row) -> bool:
        return self.by == "op" or len(leaf.attribution.lines) == 1
