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
from etscope.model.common_subsequence import matched, matched_anywhere

AlignmentMethod = Literal["module", "instruction", "name"]
Status = Literal["same", "changed", "moved", "added", "removed"]
Token = Callable[[Row], Hashable]
_Group = tuple[Row, list[Row]]  # the row of an instruction, and the rows below it


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
    """All operators, each once, in run order of the later side; removed ones keep their place."""

    method: AlignmentMethod
    pairs: tuple[Pair, ...]


class _Pairs:
    """The pairs of rows of two sides that are found so far, by their numbers on each side."""

    def __init__(self, before: Sequence[Row], after: Sequence[Row]) -> None:
        self._before, self._after = before, after
        self.after_of: dict[int, tuple[int, Status]] = {}
        self.before_of: dict[int, int] = {}

    def _add(self, i: int, j: int, status: Status) -> None:
        self.after_of[i], self.before_of[j] = (j, status), i

    def in_sequence(self, place: Token, token: Token) -> None:
        """Align the rows of each place in order: rows with equal tokens are pairs."""
        mine, theirs = _indices(self._before, place), _indices(self._after, place)
        for where in mine.keys() & theirs.keys():
            one, other = mine[where], theirs[where]
            tokens = [token(self._before[i]) for i in one], [token(self._after[j]) for j in other]
            for i, j in matched(*tokens):
                self._add(one[i], other[j], "same")

    def anywhere(self, token: Token, status: Status = "moved") -> None:
        """Pair the remaining rows of both sides that have the same token."""
        left = (
            {i: token(row) for i, row in enumerate(rows) if i not in taken}
            for rows, taken in ((self._before, self.after_of), (self._after, self.before_of))
        )
        for i, j in matched_anywhere(*left):
            self._add(i, j, status)


def align(before: MethodProfile, after: MethodProfile) -> Alignment:
    mine, theirs = _groups(before.rows), _groups(after.rows)
    heads = [[head for head, _ in side] for side in (mine, theirs)]
    found = _Pairs(heads[0], heads[1])
    method: AlignmentMethod
    if all(any(_module(row) is not None for row in rows) for rows in heads):
        method = "module"
        found.in_sequence(_module, _operator)
        # The nearest first: in the same module, in a module of that name, then anywhere for a
        # delegate.
        found.anywhere(lambda row: (_operator(row), _module(row)))
        found.anywhere(lambda row: (_operator(row), (_module(row) or "").rpartition(".")[2]))
        found.anywhere(lambda row: _operator(row) if row.kind == "delegate" else id(row))
    elif list(map(_label, heads[0])) == list(map(_label, heads[1])):
        method = "instruction"
        found.in_sequence(lambda _: None, _label)
    else:
        method = "name"
        found.in_sequence(lambda _: None, _named)
        found.anywhere(_named)
    return Alignment(method, tuple(_ordered(mine, theirs, found)))


def _groups(rows: Sequence[Row]) -> list[_Group]:
    groups: list[_Group] = []
    for row in rows:
        if row.depth == 0:
            groups.append((row, []))
        elif row.is_time:  # bytes and cycles have no duration to compare
            groups[-1][1].append(row)
    return groups


def _label(row: Row) -> Hashable:
    return row.instruction_id, row.kind, row.name


def _module(row: Row) -> str | None:
    return row.attribution.module


def _named(row: Row) -> Hashable:
    return row.kind, row.kernel_name


def _operator(row: Row) -> Hashable:
    return row.kind, operator_of(row)


def _indices(rows: Sequence[Row], key: Token) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        found.setdefault(key(row), []).append(index)
    return found


def _inside(before: Sequence[Row], after: Sequence[Row]) -> _Pairs:
    known = all(any(_module(row) is not None for row in rows) for rows in (before, after))

    def module(row: Row) -> str:
        return (_module(row) or "") if known else ""

    found = _Pairs(before, after)
    found.in_sequence(module, _named)
    # Another dtype has kernels of other names, but the same operators.
    found.anywhere(lambda row: (tuple(row.attribution.op_types) or id(row), module(row)), "changed")
    found.anywhere(lambda row: (_named(row), module(row)))
    found.anywhere(lambda row: (_named(row), module(row).rpartition(".")[2]))
    return found


def _ordered(mine: Sequence[_Group], theirs: Sequence[_Group], found: _Pairs) -> list[Pair]:
    removed: dict[int, list[Pair]] = {}
    last = -1  # the partner of the last operator that is still there, -1 before any
    for i, (head, inner) in enumerate(mine):
        if i not in found.after_of:
            gone = tuple(Pair(row, None, "removed") for row in inner)
            removed.setdefault(last, []).append(Pair(head, None, "removed", gone))
        elif found.after_of[i][1] != "moved":
            last = found.after_of[i][0]
    pairs = list(removed.get(-1, ()))
    for j, (head, inner) in enumerate(theirs):
        if j in found.before_of:
            i = found.before_of[j]
            old, rows = mine[i]
            sides: list[list[_Group]] = [[(row, []) for row in side] for side in (rows, inner)]
            parts = _ordered(sides[0], sides[1], _inside(rows, inner))
            pairs.append(Pair(old, head, found.after_of[i][1], tuple(parts)))
        else:
            added = tuple(Pair(None, row, "added") for row in inner)
            pairs.append(Pair(None, head, "added", added))
        pairs += removed.get(j, ())
    return pairs
