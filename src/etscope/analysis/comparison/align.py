"""Align the operators of two profiles, also after another export.

One of three methods, the first that the files allow:

- ``"module"``: both sides know the module of their operators (an ETRecord each). Within a module
  the operators are aligned as sequences, so one that was added moves none of the others. An
  operator without a partner is *moved* when the other side has it elsewhere in the module, or in a
  module of the same name elsewhere in the model.
- ``"instruction"``: both ran the same list of instructions, so equal numbers match.
- ``"name"``: the names of the events in run order are aligned as sequences.

Events inside a delegate are aligned below its call: by module and by the kernel's name without its
number, then by module and the operators behind it, since another dtype has kernels of other names
(*changed*). An operator without a partner was *added* or *removed*.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.rollup import operator_of
from etscope.model.common_subsequence import matched

AlignmentMethod = Literal["module", "instruction", "name"]
Status = Literal["same", "changed", "moved", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One operator on both sides, None where it is missing. `inner` are events inside its call."""

    before: Row | None
    after: Row | None
    status: Status
    inner: tuple[Pair, ...] = ()

    @property
    def shown(self) -> Row:
        """The later side, or the earlier one if it was removed."""
        row = self.after or self.before
        if row is None:
            raise ValueError("a pair of nothing")
        return row


@dataclass(frozen=True, slots=True)
class Alignment:
    """All operators of both sides, each once, in run order of the later side; removed ones stay
    where they were."""

    method: AlignmentMethod
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """The row of an instruction, and the rows below it."""

    head: Row
    inner: tuple[Row, ...]


def align(before: MethodProfile, after: MethodProfile) -> Alignment:
    """Align the rows of two profiles."""
    mine, theirs = _groups(before.rows), _groups(after.rows)
    heads = [group.head for group in mine], [group.head for group in theirs]
    method: AlignmentMethod
    if all(any(_module(row) is not None for row in rows) for rows in heads):
        method, found = "module", _by_module(*heads)
    elif list(map(_label, heads[0])) == list(map(_label, heads[1])):
        method, found = "instruction", [(index, index, "same") for index in range(len(mine))]
    else:
        method, found = "name", _sequence(*heads, range(len(mine)), range(len(theirs)), _named)
        found = _with_moved(*heads, found, _named)
    return Alignment(method, tuple(_ordered(mine, theirs, found)))


def _groups(rows: Sequence[Row]) -> list[_Group]:
    groups: list[tuple[Row, list[Row]]] = []
    for row in rows:
        if row.depth == 0:
            groups.append((row, []))
        elif row.is_time:  # bytes and cycles have no duration to compare
            groups[-1][1].append(row)
    return [_Group(head, tuple(inner)) for head, inner in groups]


def _label(row: Row) -> tuple[int | None, str, str]:
    return row.instruction_id, row.kind, row.name


def _module(row: Row) -> str | None:
    return row.attribution.module


_Found = list[tuple[int, int, Status]]  # indices of both sides


def _by_module(before: Sequence[Row], after: Sequence[Row]) -> _Found:
    mine, theirs = _indices(before, _module), _indices(after, _module)
    found: _Found = []
    for module in mine.keys() & theirs.keys():
        found += _sequence(before, after, mine[module], theirs[module], _operator)
    # The nearest first: in the same module, in a module of that name, then anywhere for a delegate.
    for token in (
        lambda row: (_operator(row), _module(row)),
        lambda row: (_operator(row), (_module(row) or "").rpartition(".")[2]),
        lambda row: _operator(row) if row.kind == "delegate" else id(row),
    ):
        found = _with_moved(before, after, found, token)
    return found


def _inside(before: Sequence[Row], after: Sequence[Row]) -> _Found:
    """Align the events of two calls of a delegate."""
    known = all(any(_module(row) is not None for row in rows) for rows in (before, after))

    def module(row: Row) -> str:
        return (_module(row) or "") if known else ""

    mine, theirs = _indices(before, module), _indices(after, module)
    found: _Found = []
    for name in mine.keys() & theirs.keys():
        found += _sequence(before, after, mine[name], theirs[name], _named)
    changed: Status = "changed"
    # Another dtype has kernels of other names, but the same operators.
    found = _with_moved(
        before,
        after,
        found,
        lambda row: (tuple(row.attribution.op_types) or id(row), module(row)),
        changed,
    )
    found = _with_moved(before, after, found, lambda row: (_named(row), module(row)))
    return _with_moved(
        before, after, found, lambda row: (_named(row), module(row).rpartition(".")[2])
    )


def _named(row: Row) -> Hashable:
    return row.kind, row.kernel_name


def _operator(row: Row) -> Hashable:
    return row.kind, operator_of(row)


def _indices(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        found.setdefault(key(row), []).append(index)
    return found


def _sequence(
    before: Sequence[Row],
    after: Sequence[Row],
    mine: Sequence[int],
    theirs: Sequence[int],
    token: Callable[[Row], Hashable],
) -> _Found:
    pairs = matched([token(before[i]) for i in mine], [token(after[j]) for j in theirs])
    return [(mine[i], theirs[j], "same") for i, j in pairs]


def _with_moved(
    before: Sequence[Row],
    after: Sequence[Row],
    found: _Found,
    token: Callable[[Row], Hashable],
    status: Status = "moved",
) -> _Found:
    """Pair the rows that are left on both sides with the same token: they have moved."""
    taken = {i for i, _, _ in found}, {j for _, j, _ in found}
    left = [i for i in range(len(before)) if i not in taken[0]]
    waiting = _indices([before[i] for i in left], token)
    result = list(found)
    for j, row in enumerate(after):
        if j in taken[1]:
            continue
        candidates = waiting.get(token(row))
        if candidates:
            result.append((left[candidates.pop(0)], j, status))
    return result


def _ordered(mine: Sequence[_Group], theirs: Sequence[_Group], found: _Found) -> list[Pair]:
    after_of = {i: (j, status) for i, j, status in found}
    before_of = {j: i for i, j, _ in found}
    removed: dict[int, list[Pair]] = {}
    last = -1  # the partner of the last operator that is still there, -1 before any
    for i, group in enumerate(mine):
        if i not in after_of:
            gone = tuple(Pair(row, None, "removed") for row in group.inner)
            removed.setdefault(last, []).append(Pair(group.head, None, "removed", gone))
        elif after_of[i][1] != "moved":
            last = after_of[i][0]
    pairs = list(removed.get(-1, ()))
    for j, group in enumerate(theirs):
        if j in before_of:
            other = mine[before_of[j]]
            status = after_of[before_of[j]][1]
            sides = other.inner, group.inner
            inner = _inside(*sides)
            old, new = ([_Group(row, ()) for row in rows] for rows in sides)
            pairs.append(Pair(other.head, group.head, status, tuple(_ordered(old, new, inner))))
        else:
            added = tuple(Pair(None, row, "added") for row in group.inner)
            pairs.append(Pair(None, group.head, "added", added))
        pairs += removed.get(j, ())
    return pairs
