"""Which operator of one profile is which of another, also when the program was exported anew.

Three ways, the first that the files allow:

- ``"module"``: both sides know the module of their operators (an ETRecord each). Within a module
  the operators are aligned as sequences, so one that was added moves none of the others. What is
  left over is *moved* when the other side has it elsewhere: the same operator in another place of
  the module, or in a module of the same name elsewhere in the model.
- ``"instruction"``: both ran the same list of instructions, so each is itself.
- ``"name"``: the names of the events in run order are aligned as sequences.

What a delegate logged is aligned below its call, and what has no partner was *added* or *removed*.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.source_location import common_module

# Two sequences side by side: the longest common subsequence, as `diff` has it.


# Differences after which sequences are no versions of each other: memory grows with the square.
_MOST_EDITS = 1000


def matched(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs (i, j) with ``before[i] == after[j]``, both ascending: a longest common subsequence.

    E. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1, 1986. Of sequences
    with more than a thousand differences the common beginning and end alone.
    """
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    most = min(len(before), len(after)) - start
    while end < most and before[-1 - end] == after[-1 - end]:
        end += 1
    middle = _middle(before[start : len(before) - end], after[start : len(after) - end])
    return [
        *((i, i) for i in range(start)),
        *((i + start, j + start) for i, j in middle),
        *((len(before) - k, len(after) - k) for k in range(end, 0, -1)),
    ]


def _middle(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    n, m = len(before), len(after)
    if not n or not m:
        return []
    reached = {1: 0}  # on each diagonal i - j the furthest i
    trail: list[dict[int, int]] = []
    for edits in range(min(n + m, _MOST_EDITS) + 1):
        trail.append(dict(reached))
        for diagonal in range(-edits, edits + 1, 2):
            i = _start(reached, diagonal, edits)
            while i < n and i - diagonal < m and before[i] == after[i - diagonal]:
                i += 1
            reached[diagonal] = i
            if i >= n and i - diagonal >= m:
                return _back(trail, n, m)
    return []


def _start(reached: dict[int, int], diagonal: int, edits: int) -> int:
    """Where the path to a diagonal begins: one more of `after`, or one more of `before`."""
    down = diagonal == -edits or (
        diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]
    )
    return reached[diagonal + 1] if down else reached[diagonal - 1] + 1


def _back(trail: Sequence[dict[int, int]], n: int, m: int) -> list[tuple[int, int]]:
    """The equal elements on the path that ends at (n, m), first to last."""
    pairs: list[tuple[int, int]] = []
    i, j = n, m
    for edits in range(len(trail) - 1, -1, -1):
        start = _start(trail[edits], i - j, edits)
        while i > start:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        if edits:
            down = start == trail[edits].get(i - j + 1, -1) and (
                i - j == -edits
                or (i - j != edits and trail[edits][i - j - 1] < trail[edits][i - j + 1])
            )
            i, j = (i, j - 1) if down else (i - 1, j)
    return pairs[::-1]


Way = Literal["module", "instruction", "name"]
Status = Literal["same", "moved", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One operator on both sides; None where it is not. `inner` are the events inside its call."""

    before: Row | None
    after: Row | None
    status: Status
    inner: tuple[Pair, ...] = ()

    @property
    def shown(self) -> Row:
        """The side that names it: the later one that there is."""
        row = self.after or self.before
        if row is None:
            raise ValueError("a pair of nothing")
        return row


@dataclass(frozen=True, slots=True)
class Alignment:
    """All operators of both sides, each once, in run order of the later side; those that are gone
    stand where they were."""

    way: Way
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """An instruction's row, and the rows below it."""

    head: Row
    inner: tuple[Row, ...]


def align(before: MethodProfile, after: MethodProfile) -> Alignment:
    """The alignment of the rows of two profiles."""
    mine, theirs = _groups(before.rows), _groups(after.rows)
    heads = [group.head for group in mine], [group.head for group in theirs]
    way = _way(*heads)
    found = {"module": _by_module, "instruction": _by_instruction, "name": _by_name}[way](*heads)
    return Alignment(way, tuple(_ordered(mine, theirs, found)))


def operator_of(row: Row) -> str:
    """What a row does, in words that another export keeps: the operators of its nodes, or the
    backend of a delegate call, or its name."""
    if row.kind == "delegate":
        return row.attribution.backend_id or row.name
    return ", ".join(row.attribution.op_types) or row.name


def _groups(rows: Sequence[Row]) -> list[_Group]:
    groups: list[tuple[Row, list[Row]]] = []
    for row in rows:
        if row.depth == 0:
            groups.append((row, []))
        else:
            groups[-1][1].append(row)
    return [_Group(head, tuple(inner)) for head, inner in groups]


def _way(before: Sequence[Row], after: Sequence[Row]) -> Way:
    if all(any(_module(row) is not None for row in rows) for rows in (before, after)):
        return "module"
    return "instruction" if list(map(_label, before)) == list(map(_label, after)) else "name"


def _label(row: Row) -> tuple[int | None, str, str]:
    return row.instruction_id, row.kind, row.name


def _module(row: Row) -> str | None:
    return common_module(row.attribution.nodes)


_Found = list[tuple[int, int, Status]]  # indices of both sides


def _by_instruction(before: Sequence[Row], after: Sequence[Row]) -> _Found:
    return [(index, index, "same") for index in range(len(before))]


def _by_name(before: Sequence[Row], after: Sequence[Row]) -> _Found:
    mine, theirs = range(len(before)), range(len(after))
    token: Callable[[Row], Hashable] = lambda row: (row.kind, row.name)  # noqa: E731
    return _with_moved(before, after, _sequence(before, after, mine, theirs, token), token)


def _by_module(before: Sequence[Row], after: Sequence[Row]) -> _Found:
    mine, theirs = _indices(before, _module), _indices(after, _module)
    found: _Found = []
    for module in mine.keys() & theirs.keys():
        found += _sequence(before, after, mine[module], theirs[module], _operator)
    # The nearest first: in its own module, in one of that name, then anywhere for a delegate.
    for token in (
        lambda row: (_operator(row), _module(row)),
        lambda row: (_operator(row), (_module(row) or "").rpartition(".")[2]),
        lambda row: _operator(row) if row.kind == "delegate" else id(row),
    ):
        found = _with_moved(before, after, found, token)
    return found


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
    before: Sequence[Row], after: Sequence[Row], found: _Found, token: Callable[[Row], Hashable]
) -> _Found:
    """With those that are left on both sides and have the same token: they stand elsewhere."""
    taken = {i for i, _, _ in found}, {j for _, j, _ in found}
    left = [i for i in range(len(before)) if i not in taken[0]]
    waiting = _indices([before[i] for i in left], token)
    result = list(found)
    for j, row in enumerate(after):
        if j in taken[1]:
            continue
        places = waiting.get(token(row))
        if places:
            result.append((left[places.pop(0)], j, "moved"))
    return result


def _ordered(mine: Sequence[_Group], theirs: Sequence[_Group], found: _Found) -> list[Pair]:
    after_of = {i: (j, status) for i, j, status in found}
    before_of = {j: i for i, j, _ in found}
    removed: dict[int, list[Pair]] = {}
    place = -1  # the partner of the last operator that is still there, -1 before any
    for i, group in enumerate(mine):
        if i not in after_of:
            gone = tuple(Pair(row, None, "removed") for row in group.inner)
            removed.setdefault(place, []).append(Pair(group.head, None, "removed", gone))
        elif after_of[i][1] == "same":
            place = after_of[i][0]
    pairs = list(removed.get(-1, ()))
    for j, group in enumerate(theirs):
        if j in before_of:
            other = mine[before_of[j]]
            status = after_of[before_of[j]][1]
            pairs.append(Pair(other.head, group.head, status, _inner(other.inner, group.inner)))
        else:
            new = tuple(Pair(None, row, "added") for row in group.inner)
            pairs.append(Pair(None, group.head, "added", new))
        pairs += removed.get(j, ())
    return pairs


def _inner(before: Sequence[Row], after: Sequence[Row]) -> tuple[Pair, ...]:
    """The events inside one delegate call: by the delegate's own names, in order."""
    token: Callable[[Row], Hashable] = lambda row: (row.kind, row.name)  # noqa: E731
    found = _sequence(before, after, range(len(before)), range(len(after)), token)
    found = _with_moved(before, after, found, token)
    mine, theirs = ([_Group(row, ()) for row in rows] for rows in (before, after))
    return tuple(_ordered(mine, theirs, found))
