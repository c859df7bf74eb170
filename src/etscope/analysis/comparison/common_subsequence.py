"""Two sequences side by side: the longest common subsequence, as `diff` has it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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
