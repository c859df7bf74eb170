"""Compare the times of two dumps, operator by operator, so that the changes add up.

Each operator has a change and a verdict. The *change* is its part of the method's change: the
difference of its average times over the counted runs of each dump
(`etscope.analysis.profile.counted`). The changes of the rows, with `unaccounted`, sum to the
total's. The *verdict* comes from the trimmed means of the same runs, see
`etscope.analysis.statistics.compare_samples`. The median of each dump decides which of its runs are
excluded, so two dumps of one program lose runs alike. A change in slow runs alone is not reported:
the fastest fifth must have changed, too.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from etscope.analysis.comparison.align import Alignment, Pair, align
from etscope.analysis.comparison.changes import (
    Change,
    Diff,
    MethodDiff,
    Sides,
    clock_steps,
    total_changes,
    totals_of,
)
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import module_path
from etscope.analysis.statistics.compare_samples import Comparison, Policy, Verdict, compare_all
from etscope.errors import EtscopeWarning, MismatchError, MissingDataError
from etscope.model.event_table import EXECUTE
from etscope.support.options import takes_fields

__all__ = ["diff_traces"]

_FORCE = "compare them anyway with --force (forced=True)"

Keep = Callable[[Row], bool]
_Pairs = list[tuple[MethodProfile, MethodProfile]]


def paired_profiles(
    before: Sequence[MethodProfile],
    after: Sequence[MethodProfile],
    method: str | None,
    forced: bool,
) -> tuple[_Pairs, tuple[str, ...]]:
    """Pair the profiles of each method that both ran; with sentences on omissions and assumptions.

    Raises `MissingDataError` for a method that did not run, or if nothing ran; `MismatchError` if
    they ran different methods and it is not `forced`.
    """
    for which, profiles in (("first", before), ("second", after)):
        if not profiles:
            raise MissingDataError(
                f"the {which} dump has no times", hint="run the method with the event tracer on"
            )
        names = [profile.method for profile in profiles if profile.method is not None]
        if method is not None and method not in names:
            raise MissingDataError(
                f"the {which} dump has no run of method {method!r}",
                hint=f"methods that ran: {', '.join(names)}"
                if names
                else "add --etrecord or --program to name the methods",
            )
    mine = {_kind(profile): profile for profile in before if method in (None, profile.method)}
    theirs = {_kind(profile): profile for profile in after if method in (None, profile.method)}
    common = [name for name in mine if name in theirs]
    if common:
        alone = [name or "unknown" for name in {**mine, **theirs} if name not in common]
        notes = (f"Excluded, as only one dump has them: {', '.join(alone)}.",) if alone else ()
        return [(mine[name], theirs[name]) for name in common], notes
    unknown = None in mine or None in theirs
    if len(mine) == len(theirs) == 1 and (unknown or forced):
        pair = next(iter(mine.values())), next(iter(theirs.values()))
        known = " and ".join(repr(name) for name in (*mine, *theirs) if name is not None)
        return [pair], (f"Compared as one method: {known}, and runs of an unknown method.",)
    titles = [
        ", ".join(one.title() for one in profiles if one.method is not None) or "(unknown)"
        for profiles in (before, after)
    ]
    raise MismatchError(
        f"the dumps ran different methods: {' and '.join(titles)}",
        hint=_FORCE if len(mine) == len(theirs) == 1 else "add --etrecord or --program for both",
    )


def check_comparable(before: MethodProfile, after: MethodProfile, alignment: Alignment) -> None:
    """Raise `MismatchError` for profiles of different models.

    Another backend or dtype is the same model: with a record of each, modules or most operators
    agree. Without records, a delegate hides its operators, and the check passes.
    """
    if not (before.rows and after.rows):
        return
    sides = [
        [node for row in one.rows for node in row.attribution.nodes] for one in (before, after)
    ]
    modules = [{path for node in nodes if (path := module_path(node))} for nodes in sides]
    is_hidden = any(row.kind == "delegate" for side in (before, after) for row in side.rows)
    has_pairs = any(None not in (pair.before, pair.after) for pair in alignment.pairs)
    if not all(modules) and (is_hidden or has_pairs):
        return
    difference = other_model(modules, [{node.op for node in nodes} for nodes in sides])
    if difference is not None:
        raise MismatchError(f"the dumps are from different models: {difference}", hint=_FORCE)


def other_model(modules: Sequence[set[str]], operators: Sequence[set[str]]) -> str | None:
    """Return why two sides are not of one model, by their modules and operators; None if they may
    be. Without modules of both, the operators decide."""
    if 2 * len(operators[0] & operators[1]) > min(map(len, operators)) or modules[0] & modules[1]:
        return None
    if not all(modules):
        return "few operators agree"
    return (
        f"none of the modules {_some(modules[0])} is among {_some(modules[1])}, and few operators "
        "agree"
    )


def _some(modules: set[str]) -> str:
    names = sorted(modules)
    return ", ".join(names[:3]) + (f" … ({len(names)} in all)" if len(names) > 3 else "")


def _kind(profile: MethodProfile) -> str | None:
    """Return the key that compared profiles of two dumps share."""
    return None if profile.method is None else profile.title()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """Options of `diff_traces`.

    noise: further dumps of the program of `before`, on the same device; differences among them are
    noise. method: compare only this one. keep: selects the rows to judge. forced: compare dumps
    that are not comparable.
    """

    noise: Sequence[Trace] = ()
    method: str | None = None
    keep: Keep | None = None
    forced: bool = False


@takes_fields(DiffOptions)
def diff_traces(
    before: Trace,
    after: Trace,
    policy: Policy | None = None,
    *,
    options: DiffOptions = DiffOptions(),
    **changes: Any,
) -> Diff:
    """Compare two dumps.

    options, changes: fields of `DiffOptions`; changes go before `options`.

    Raises `MismatchError` for dumps of different methods or models, unless `forced`;
    `MissingDataError` if a dump has no times, or nothing is kept. Warns if only one dump logged
    intermediate values.
    """
    options = replace(options, **changes)
    forced, keep = options.forced, options.keep
    policy = policy or Policy()
    pairs, notes = paired_profiles(before.profiles(), after.profiles(), options.method, forced)
    repeats = [
        {_kind(profile): profile for profile in paired_noise(trace, pairs)}
        for trace in options.noise
    ]
    sides = [
        Sides(a, b, [found[_kind(a)] for found in repeats if _kind(a) in found], align(a, b))
        for a, b in pairs
    ]
    if not forced:
        for one in sides:
            check_comparable(one.before, one.after, one.alignment)
    methods = _method_diffs(sides, policy, keep)
    was, now = (totals_of(one.export, saved=one.saved_run) for one in (before, after))
    methods = [replace(one, beside=tuple(total_changes(was, now, one.method))) for one in methods]
    if keep is not None and not any(row.selected for one in methods for row in one.changes):
        raise MissingDataError("nothing was selected", hint="leave out --select to compare all")
    for one in sides:
        if one.before.traced != one.after.traced:
            warnings.warn(
                f"only the {_logged_in(one)} dump logged intermediate values: its times "
                "include that cost",
                EtscopeWarning,
                stacklevel=2,
            )
    methods[0] = replace(methods[0], notes=(*methods[0].notes, *notes))
    return Diff(tuple(methods))


def diff_profiles(
    before: MethodProfile, after: MethodProfile, policy: Policy | None = None
) -> MethodDiff:
    sides = Sides(before, after, (), align(before, after))
    return _method_diffs([sides], policy or Policy(), None)[0]


def paired_noise(
    trace: Trace, pairs: Sequence[tuple[MethodProfile, MethodProfile]]
) -> Iterator[MethodProfile]:
    """Yield the profiles of a noise dump for the compared methods."""
    profiles = {_kind(profile): profile for profile in trace.profiles()}
    found = [profiles[_kind(a)] for a, _ in pairs if _kind(a) in profiles]
    if not found:
        raise MissingDataError(
            f"{trace.dump.path or 'a noise dump'} ran none of the compared methods",
            hint="pass --baseline-noise further dumps of the first dump's program",
        )
    yield from found


def _method_diffs(sides: Sequence[Sides], policy: Policy, keep: Keep | None) -> list[MethodDiff]:
    """Compare the methods. The verdicts on their times are corrected for the number of methods."""
    totals = compare_all(
        [one.before.total for one in sides],
        [one.after.total for one in sides],
        policy,
        noise=[
            one.noise_of(one.before.total, [repeat.total for repeat in one.noise]) for one in sides
        ],
    )
    return [
        MethodDiff(
            method=one.before.method or one.after.method,
            changes=tuple(_judged(one, _changes(one.alignment, keep), policy)),
            unaccounted=_closing("unaccounted", "unaccounted", *(x.unaccounted for x in both)),
            total=replace(
                _closing(EXECUTE, "total", *(x.total for x in both)),
                comparison=_of_one_dump(total, _is_one_dump(one)),
            ),
            sides=one,
            policy=policy,
            notes=tuple(_notes(one)),
        )
        for one, total in zip(sides, totals, strict=True)
        for both in [(one.before, one.after)]
    ]


def _closing(name: str, kind: str, before: Ticks, after: Ticks) -> Change:
    return Change(name, kind, "same", float(before.mean()), float(after.mean()))


def _changes(alignment: Alignment, keep: Keep | None) -> list[Change]:
    changes = []
    for pair in alignment.pairs:
        whole = keep is None or _picked(pair, keep)
        changes.append(_change(pair, 0, whole))
        # As in `InstructionRows.kept`: the whole call, if only the call is selected.
        picked = [keep is not None and _picked(inner, keep) for inner in pair.inner]
        for inner, is_picked in zip(pair.inner, picked, strict=True):
            changes.append(_change(inner, 1, is_picked or (whole and not any(picked))))
    return changes


def _picked(pair: Pair, keep: Keep) -> bool:
    return any(row is not None and keep(row) for row in (pair.after, pair.before))


def _change(pair: Pair, depth: int, selected: bool) -> Change:
    rows = pair.before, pair.after
    averages = [None if row is None else float(row.ticks.mean()) for row in rows]
    shown = pair.shown
    return Change(
        name=shown.name,
        kind=shown.kind,
        status=pair.status,
        before=averages[0],
        after=averages[1],
        pair=pair,
        depth=depth,
        adds=depth == 0 and not any(row is not None and row.own_clock for row in rows),
        selected=selected,
    )


def _judged(sides: Sides, changes: Sequence[Change], policy: Policy) -> list[Change]:
    """Return the changes, with verdicts on the selected rows of both sides."""
    both = [
        (index, change.pair.before, change.pair.after)
        for index, change in enumerate(changes)
        if change.selected
        and change.pair is not None
        and change.pair.before is not None
        and change.pair.after is not None
    ]
    steps = clock_steps(sides.before) | clock_steps(sides.after)
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
        sides.noise_of(row.ticks, [found.get(id(row)) for found in partners]) for _, row, _ in both
    ]
    comparisons = compare_all(
        [before.ticks[before.ran] for _, before, _ in both],
        [after.ticks[after.ran] for _, _, after in both],
        policy,
        noise=noise,
        steps=[(steps[id(before)], steps[id(after)]) for _, before, after in both],
    )
    is_one, judged = _is_one_dump(sides), list(changes)
    for (index, before, after), comparison in zip(both, comparisons, strict=True):
        often = [float(row.calls.mean()) for row in (before, after)]
        if not (before.ran.all() and after.ran.all()) and often[0] != often[1]:
            comparison = replace(
                comparison,
                verdict=Verdict.CANNOT_TELL,
                reason=f"it ran {often[0]:.2f} times per run before, {often[1]:.2f} times after",
            )
        judged[index] = replace(changes[index], comparison=_of_one_dump(comparison, is_one))
    return judged


def _is_one_dump(sides: Sides) -> bool:
    """Return whether both sides have the same times, run by run."""
    both = sides.before, sides.after
    times = [[side.total, *(row.ticks for row in side.rows)] for side in both]
    return len(times[0]) == len(times[1]) and all(map(np.array_equal, *times))


def _of_one_dump(found: Comparison, is_one: bool) -> Comparison:
    """Return a comparison without its interval where it cannot tell a dump from itself."""
    if not is_one or found.verdict is not Verdict.CANNOT_TELL:
        return found
    reason = "both sides are the same dump"
    return replace(found, relative=None, low=None, high=None, fastest=None, reason=reason)


def _notes(sides: Sides) -> Iterator[str]:
    if _is_one_dump(sides):
        yield "Both sides are the same dump: it shows nothing about a change."
    if sides.alignment.method == "name":
        yield (
            "The dumps ran different instructions: operators are aligned by name and order. "
            "Add an ETRecord of each to align by module."
        )
    elif sides.alignment.method == "instruction":
        inner = Counter(one.status for pair in sides.alignment.pairs for one in pair.inner)
        changed = [f"{inner[how]} {how}" for how in ("added", "removed") if inner[how]]
        yield (
            "Both dumps ran the same list of instructions: each instruction is compared with "
            f"itself{'; inside delegates: ' + ', '.join(changed) if changed else ''}."
        )
    else:
        yield "Operators are aligned by module path and operator."
    if sides.before.traced != sides.after.traced:
        yield (
            f"Only the {_logged_in(sides)} dump logged intermediate values: its times and the "
            "difference include that cost."
        )
    elif sides.before.traced:
        yield "Both dumps logged intermediate values: their times include that cost."
    if bool(sides.before.rows) != bool(sides.after.rows):
        yield "Only the totals are compared: one dump has no times of operators."
    rows = [row for side in (sides.before, sides.after) for row in side.rows]
    if any(row.own_clock and row.is_time for row in rows):
        yield "Events on a delegate's clock are compared, but not added up."
    if not all(row.is_time for row in rows):
        yield "Delegates' bytes and cycles are excluded: they are not times."
    if sides.noise:
        yield f"Differences between {len(sides.noise) + 1} dumps of one program count as noise."
    else:
        yield (
            "One dump a side cannot show how much processes differ. Add further dumps of the "
            "same program with --baseline-noise."
        )


def _logged_in(sides: Sides) -> str:
    return "first" if sides.before.traced else "second"
