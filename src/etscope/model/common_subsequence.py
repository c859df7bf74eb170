"""Longest common subsequences: the elements that two versions of a sequence share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

# Most differences: memory grows with the square, and beyond it these are not two versions.
_MOST_EDITS = 1000


def matched(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return a longest common subsequence: pairs (i, j), ascending, with ``before[i] == after[j]``.

    E. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1, 1986. With more
    than a thousand differences, return only the common start and end.
    """
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    most = min(len(before), len(after)) - start
    while end < most and before[-1 - end] == after[-1 - end]:
        end += 1
    middle = _shortest_edit(before[start : len(before) - end], after[start : len(after) - end])
    return [
        *((i, i) for i in range(start)),
        *((i + start, j + start) for i, j in middle),
        *((len(before) - k, len(after) - k) for k in range(end, 0, -1)),
    ]


def _shortest_edit(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the equal elements on a shortest path of edits; none if that is too long."""
    n, m = len(before), len(after)
    if not n or not m:
        return []
    reached = {1: 0}  # diagonal i - j -> its furthest i
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
    """Return the start of the path to a diagonal: one more of `after`, or one more of `before`."""
    down = diagonal == -edits or (
        diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]
    )
    return reached[diagonal + 1] if down else reached[diagonal - 1] + 1


def _back(trail: Sequence[dict[int, int]], n: int, m: int) -> list[tuple[int, int]]:
    """Return the equal elements on the path that ends at (n, m), first to last."""
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


def matched_in_turn(
    before: Sequence[Any], after: Sequence[Any], tokens: Sequence[Callable[[Any], Hashable]]
) -> list[tuple[int, int]]:
    """Return pairs (i, j), ascending, of elements with the same token. The first of `tokens`
    matches like `matched`; each next one matches inside the gaps of the ones before it."""
    if not tokens or not before or not after:
        return []
    first, *others = tokens
    found = matched([first(one) for one in before], [first(one) for one in after])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    for end in (*found, (len(before), len(after))):
        gap = matched_in_turn(before[i : end[0]], after[j : end[1]], others)
        pairs += [(i + one, j + other) for one, other in gap]
        pairs.append(end)
        i, j = end[0] + 1, end[1] + 1
    return pairs[:-1]


def with_gaps(
    pairs: Sequence[tuple[int, int]], before: int, after: int
) -> Iterator[tuple[int | None, int | None]]:
    """Yield ascending pairs, and between them first the removed elements, then the added ones.
    before, after: the number of elements on each side."""
    i = j = 0
    for one, other in (*pairs, (before, after)):
        yield from ((number, None) for number in range(i, one))
        yield from ((None, number) for number in range(j, other))
        if one < before and other < after:
            yield one, other
        i, j = one + 1, other + 1


def matched_anywhere(
    before: Mapping[int, Hashable], after: Mapping[int, Hashable]
) -> list[tuple[int, int]]:
    """Pair elements of the same token wherever they are, the first of each side first; in the order
    of `after`. before, after: tokens by number; the token None has no partner."""
    waiting: dict[Hashable, deque[int]] = {}
    for i, token in before.items():
        waiting.setdefault(token, deque()).append(i)
    return [
        (waiting[token].popleft(), j)
        for j, token in after.items()
        if token is not None and waiting.get(token)
    ]
