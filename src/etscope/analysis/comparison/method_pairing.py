"""Which methods of two dumps are compared, and whether they can be."""

from __future__ import annotations

from collections.abc import Sequence

from etscope.analysis.comparison.align import Alignment, operator_of
from etscope.analysis.profile.profile import MethodProfile
from etscope.errors import MismatchError, MissingDataError

_FORCE = "--force (forced=True) compares them regardless"
# The name of a delegate call of which neither a record nor a program tells the backend.
_UNKNOWN = "DELEGATE_CALL"

_Pairs = list[tuple[MethodProfile, MethodProfile]]


def paired_profiles(
    before: Sequence[MethodProfile],
    after: Sequence[MethodProfile],
    method: str | None,
    forced: bool,
) -> tuple[_Pairs, tuple[str, ...]]:
    """The profiles of each method that both ran, and sentences on what was left out or assumed.

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
                f"no run of a method {method!r} in the {which} dump", hint=_known(profiles)
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
                f"{_told(mine)} in the first dump, {_told(theirs)} in the second",
                hint=_FORCE,
            )
        if all(None in (pair.before, pair.after) for pair in alignment.pairs):
            raise MismatchError(
                "the dumps have no operator in common: they are of different models", hint=_FORCE
            )


def _backends(profile: MethodProfile) -> set[str]:
    return {operator_of(row) for row in profile.rows if row.kind == "delegate" and row.depth == 0}


def _told(backends: set[str]) -> str:
    return ", ".join(sorted(backends - {_UNKNOWN})) or ("a delegate" if backends else "none")


def _names(profiles: Sequence[MethodProfile]) -> list[str]:
    return [profile.method for profile in profiles if profile.method is not None]


def _names_text(profiles: Sequence[MethodProfile]) -> str:
    return ", ".join(_names(profiles)) or "(unknown)"


def _known(profiles: Sequence[MethodProfile]) -> str:
    names = _names(profiles)
    if names:
        return f"methods that ran: {', '.join(names)}"
    return "which method ran is known with --etrecord or --program"
