"""Compare the times of two dumps, operator by operator, so that the changes add up.

Each operator has a change and a verdict. The *change* is its part in the change of the method: the
difference of its average times over the middle runs of each dump, which are the three fifths whose
totals are not in the shortest or the longest fifth. So the total's time is its trimmed mean, and
the changes of the rows, with `unaccounted`, sum to the total's. The *verdict* comes from its own
samples, see `etscope.analysis.comparison.compare_samples`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from etscope.analysis.comparison.align import Alignment, Pair, align, operator_of
from etscope.analysis.comparison.compare_samples import (
    TRIMMED,
    Comparison,
    Noise,
    Policy,
    Verdict,
    compare_all,
    noise_between,
)
from etscope.analysis.comparison.diff_table import Change, Diff, MethodDiff
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks
from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeWarning, MismatchError, MissingDataError
from etscope.model.event_table import EXECUTE

_FORCE = "--force (forced=True) compares them regardless"
# The name of a delegate call whose backend is known from neither a record nor a program.
_UNKNOWN = "DELEGATE_CALL"

_Pairs = list[tuple[MethodProfile, MethodProfile]]


def paired_profiles(
    before: Sequence[MethodProfile],
    after: Sequence[MethodProfile],
    method: str | None,
    forced: bool,
) -> tuple[_Pairs, tuple[str, ...]]:
    """Pair the profiles of each method that both ran; with sentences on omissions and assumptions.

    Raises `MissingDataError` for a method that did not run, or when nothing did; `MismatchError`
    when they ran no method in common and it is not `forced`.
    """
    for which, profiles in (("first", before), ("second", after)):
        if not profiles:
            raise MissingDataError(
                f"the {which} dump has no times",
                hint="run the method with the event tracer on",
            )
        if method is not None and method not in _names(profiles):
            raise MissingDataError(
                f"no run of a method {method!r} in the {which} dump",
                hint=f"methods that ran: {', '.join(_names(profiles))}"
                if _names(profiles)
                else "which method ran is known with --etrecord or --program",
            )
    mine = {profile.method: profile for profile in before if method in (None, profile.method)}
    theirs = {profile.method: profile for profile in after if method in (None, profile.method)}
    common = [name for name in mine if name in theirs]
    if common:
        alone = [name or "unknown" for name in {**mine, **theirs} if name not in common]
        notes = (f"Not in both dumps, and left out: {', '.join(alone)}.",) if alone else ()
        return [(mine[name], theirs[name]) for name in common], notes
    unknown = None in mine or None in theirs
    if len(mine) == len(theirs) == 1 and (unknown or forced):
        pair = next(iter(mine.values())), next(iter(theirs.values()))
        known = " and ".join(repr(name) for name in (*mine, *theirs) if name is not None)
        return [pair], (f"Taken for runs of one method: {known} and one without a name.",)
    raise MismatchError(
        f"the dumps ran no method in common: {_names_text(before)} and {_names_text(after)}",
        hint=_FORCE if len(mine) == len(theirs) == 1 else "give --etrecord or --program of both",
    )


def check_comparable(before: MethodProfile, after: MethodProfile, alignment: Alignment) -> None:
    """Raise `MismatchError` unless both ran on the same backends, and an operator in common."""
    mine, theirs = _backends(before), _backends(after)
    if before.rows and after.rows:
        if bool(mine) != bool(theirs) or (_UNKNOWN not in mine | theirs and mine != theirs):
            raise MismatchError(
                f"{before.method or 'the method'} ran on different backends: "
                f"{_backends_text(mine)} in the first dump, {_backends_text(theirs)} in the second",
                hint=_FORCE,
            )
        if all(None in (pair.before, pair.after) for pair in alignment.pairs):
            raise MismatchError(
                "the dumps have no operator in common: they are of different models", hint=_FORCE
            )


def _backends(profile: MethodProfile) -> set[str]:
    return {operator_of(row) for row in profile.rows if row.kind == "delegate" and row.depth == 0}


def _backends_text(backends: set[str]) -> str:
    return ", ".join(sorted(backends - {_UNKNOWN})) or ("a delegate" if backends else "none")


def _names(profiles: Sequence[MethodProfile]) -> list[str]:
    return [profile.method for profile in profiles if profile.method is not None]


def _names_text(profiles: Sequence[MethodProfile]) -> str:
    return ", ".join(_names(profiles)) or "(unknown)"


Keep = Callable[[Row], bool]


def diff_traces(
    before: Trace,
    after: Trace,
    policy: Policy | None = None,
    *,
    noise: Sequence[Trace] = (),
    method: str | None = None,
    keep: Keep | None = None,
    warmup: int = 1,
    forced: bool = False,
) -> Diff:
    """Compare two dumps.

    noise: further dumps of the program of `before`, on the same device; differences among these are
    not a change. method: this one only. keep: selects the rows to judge. warmup: number of runs
    left out at the start of each dump. forced: compare dumps that are not comparable.

    Raises `MismatchError` for dumps of different methods or backends, or without an operator in
    common, unless `forced`; `MissingDataError` when a dump has no times, or nothing is kept. Warns
    when intermediate values were logged in one of them only.
    """
    policy = policy or Policy()
    pairs, notes = paired_profiles(before.profiles(), after.profiles(), method, forced)
    repeats = [
        {profile.method: profile for profile in paired_noise(trace, pairs)} for trace in noise
    ]
    sides = [
        _Sides(
            a,
            b,
            [found[a.method] for found in repeats if a.method in found],
            align(a, b),
            warmup,
        )
        for a, b in pairs
    ]
    if not forced:
        for one in sides:
            check_comparable(one.before, one.after, one.alignment)
    totals = _totals(sides, policy)
    methods = [
        _method_diff(one, total, policy, keep) for one, total in zip(sides, totals, strict=True)
    ]
    if keep is not None and not any(row.selected for one in methods for row in one.changes):
        raise MissingDataError("nothing was selected", hint="without --select all is compared")
    for one in sides:
        if one.before.traced != one.after.traced:
            warnings.warn(
                f"intermediate values were logged in the {_logged_in(one)} dump only: "
                "its times hold the cost of that",
                EtscopeWarning,
                stacklevel=2,
            )
    methods[0] = replace(methods[0], notes=(*methods[0].notes, *notes))
    return Diff(tuple(methods))


def diff_profiles(
    before: MethodProfile, after: MethodProfile, policy: Policy | None = None, *, warmup: int = 1
) -> MethodDiff:
    """Compare two profiles that are known to be comparable."""
    policy = policy or Policy()
    sides = _Sides(before, after, (), align(before, after), warmup)
    return _method_diff(sides, _totals([sides], policy)[0], policy, None)


def paired_noise(
    trace: Trace, pairs: Sequence[tuple[MethodProfile, MethodProfile]]
) -> Iterator[MethodProfile]:
    """Yield the profiles of a noise dump whose methods are compared."""
    profiles = {profile.method: profile for profile in trace.profiles()}
    found = [profiles[a.method] for a, _ in pairs if a.method in profiles]
    if not found:
        raise MissingDataError(
            f"{trace.dump.path or 'a dump of noise'} ran none of the methods that are compared",
            hint="--baseline-noise takes further dumps of what the first one ran",
        )
    yield from found


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two profiles, aligned. The first `warmup` runs of each are left out."""

    before: MethodProfile
    after: MethodProfile
    noise: Sequence[MethodProfile]
    alignment: Alignment
    warmup: int

    def step(self, depth: int) -> float:
        """Return the step of the clock in ticks: all times of a depth are multiples of it. XNNPACK
        counts microseconds inside a call that the runtime measures in nanoseconds."""
        rows = [
            row.ticks
            for side in (self.before, self.after)
            for row in side.rows
            if row.depth == depth and row.kind != "unaccounted"
        ]
        return float(np.gcd.reduce([np.gcd.reduce(ticks) for ticks in rows] or [1]))

    def samples(self, ticks: Ticks, ran: npt.NDArray[np.bool_] | None = None) -> Ticks:
        """Return the samples after the warm-up, of the runs in which the operator ran."""
        return ticks[self.warmup :] if ran is None else ticks[self.warmup :][ran[self.warmup :]]


def _totals(sides: Sequence[_Sides], policy: Policy) -> list[Comparison]:
    """Compare the methods' times, corrected for their number."""
    return compare_all(
        [one.samples(one.before.total) for one in sides],
        [one.samples(one.after.total) for one in sides],
        policy,
        noise=[
            _noise(one, one.before.total, [repeat.total for repeat in one.noise]) for one in sides
        ],
    )


def _noise(sides: _Sides, mine: Ticks, repeats: Sequence[Ticks | None]) -> Noise | None:
    """Return the noise of one row between dumps: NaN when a dump does not have it."""
    if not repeats:
        return None
    if any(one is None for one in repeats):
        return Noise(float("nan"), len(repeats) + 1)
    dumps = [mine, *(one for one in repeats if one is not None)]
    return noise_between([[sides.samples(one)] for one in dumps])[0]


def _method_diff(sides: _Sides, total: Comparison, policy: Policy, keep: Keep | None) -> MethodDiff:
    middle = _middle(sides.before, sides.warmup), _middle(sides.after, sides.warmup)
    changes = []
    for pair in sides.alignment.pairs:
        whole = keep is None or _picked(pair, keep)
        changes.append(_change(pair, middle, 0, whole))
        # As in `InstructionRows.kept`: all of a call, if only the call itself is picked.
        picked = [keep is not None and _picked(inner, keep) for inner in pair.inner]
        for inner, is_picked in zip(pair.inner, picked, strict=True):
            changes.append(_change(inner, middle, 1, is_picked or (whole and not any(picked))))
    closing = [
        Change(
            name=name,
            kind=kind,
            status="same",
            before=float(ticks[0][middle[0]].mean()),
            after=float(ticks[1][middle[1]].mean()),
            firsts=(float(ticks[0][0]), float(ticks[1][0])),
        )
        for name, kind, ticks in (
            ("unaccounted", "unaccounted", (sides.before.unaccounted, sides.after.unaccounted)),
            (EXECUTE, "total", (sides.before.total, sides.after.total)),
        )
    ]
    judged = _judged(sides, changes, policy)
    return MethodDiff(
        method=sides.before.method or sides.after.method,
        changes=tuple(judged),
        unaccounted=closing[0],
        total=replace(closing[1], comparison=total),
        alignment=sides.alignment,
        policy=policy,
        runs=(
            len(sides.samples(sides.before.total)),
            len(sides.samples(sides.after.total)),
        ),
        notes=tuple(_notes(sides)),
    )


def _picked(pair: Pair, keep: Keep) -> bool:
    return any(row is not None and keep(row) for row in (pair.after, pair.before))


def _change(pair: Pair, middle: tuple[Ticks, Ticks], depth: int, selected: bool) -> Change:
    rows = pair.before, pair.after
    averages = [
        None if row is None else float(row.ticks[runs].mean())
        for row, runs in zip(rows, middle, strict=True)
    ]
    firsts = [None if row is None else float(row.ticks[0]) for row in rows]
    shown = pair.shown
    return Change(
        name=shown.name,
        kind=shown.kind,
        status=pair.status,
        before=averages[0],
        after=averages[1],
        firsts=(firsts[0], firsts[1]),
        pair=pair,
        depth=depth,
        adds=depth == 0 and not any(row is not None and row.own_clock for row in rows),
        selected=selected,
    )


def _middle(profile: MethodProfile, warmup: int) -> Ticks:
    """Return the runs whose totals are left after trimming; all runs if none is left."""
    runs = np.arange(len(profile.total))[warmup:]
    if not len(runs):
        return np.arange(len(profile.total))
    ordered = runs[np.argsort(profile.total[runs], kind="stable")]
    cut = int(TRIMMED * len(runs))
    return ordered[cut : len(runs) - cut]


def _judged(sides: _Sides, changes: Sequence[Change], policy: Policy) -> list[Change]:
    """Return the changes with verdicts on those that are selected and on both sides."""
    both = [
        (index, change.pair.before, change.pair.after)
        for index, change in enumerate(changes)
        if change.selected
        and change.pair is not None
        and change.pair.before is not None
        and change.pair.after is not None
    ]
    steps = sides.step(0), sides.step(1)
    partners: list[dict[int, Ticks]] = []  # in each dump of noise, by `id` of the row of `before`
    for repeat in sides.noise:
        pairs = align(sides.before, repeat).pairs
        partners.append(
            {
                id(pair.before): pair.after.ticks
                for outer in pairs
                for pair in (outer, *outer.inner)
                if pair.before is not None and pair.after is not None
            }
        )
    noise = [
        _noise(sides, row.ticks, [found.get(id(row)) for found in partners]) for _, row, _ in both
    ]
    comparisons = compare_all(
        [sides.samples(before.ticks, before.ran) for _, before, _ in both],
        [sides.samples(after.ticks, after.ran) for _, _, after in both],
        policy,
        noise=noise,
        steps=[steps[before.depth] for _, before, _ in both],
    )
    judged = list(changes)
    for (index, before, after), comparison in zip(both, comparisons, strict=True):
        often = [float(sides.samples(row.calls).mean() or 0) for row in (before, after)]
        if not (before.ran.all() and after.ran.all()) and often[0] != often[1]:
            comparison = replace(
                comparison,
                verdict=Verdict.CANNOT_TELL,
                reason=f"it ran {often[0]:.2f} times a run before, {often[1]:.2f} times after",
            )
        judged[index] = replace(changes[index], comparison=comparison)
    return judged


def _notes(sides: _Sides) -> Iterator[str]:
    if sides.alignment.method == "name":
        yield (
            "The dumps ran different instructions: operators are aligned by name and order. "
            "With an ETRecord of each they are aligned by module."
        )
    elif sides.alignment.method == "instruction":
        yield "Both dumps ran the same list of instructions: each is compared with itself."
    else:
        yield "Operators are aligned by module path and operator."
    if sides.before.traced != sides.after.traced:
        yield (
            f"Intermediate values were logged in the {_logged_in(sides)} dump only: its times hold "
            "the cost of that, and the difference does too."
        )
    elif sides.before.traced:
        yield "Intermediate values were logged in both dumps: their times hold the cost of that."
    if bool(sides.before.rows) != bool(sides.after.rows):
        yield "One of the dumps has no times of operators: only the totals are compared."
    if any(row.own_clock for side in (sides.before, sides.after) for row in side.rows):
        yield "Events of delegates on a clock of their own are compared, but not added up."
    if sides.noise:
        yield (f"How much {len(sides.noise) + 1} dumps of one program differ is taken for noise.")
    else:
        yield (
            "One dump a side: what differs from process to process cannot be seen in it. Further "
            "dumps of the same program (--baseline-noise) tell how much that is."
        )


def _logged_in(sides: _Sides) -> str:
    return "first" if sides.before.traced else "second"
