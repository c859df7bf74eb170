"""Operators of two exports find each other: by module, by instruction, by name."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from etscope.analysis.comparison.align import align
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.model.common_subsequence import matched
from tests.support.analysis.traces import open_trace


def renumbered(profile: MethodProfile, rows: Sequence[Row]) -> MethodProfile:
    """As another export would have it: instructions count from 100 on."""
    moved = tuple(replace(row, instruction_id=100 + i) for i, row in enumerate(rows))
    return replace(profile, rows=moved)


def test_the_same_instructions_are_themselves() -> None:
    profile = open_trace("cnn_portable", record=False, program=False).profiles()[0]
    found = align(profile, profile)
    assert found.method == "instruction"
    assert {pair.status for pair in found.pairs} == {"same"}
    assert all(pair.before is pair.after for pair in found.pairs)


@pytest.mark.parametrize("record", [True, False])
def test_one_that_is_gone_moves_none_of_the_others(record: bool) -> None:
    before = open_trace("cnn_portable", record=record, program=False).profiles()[0]
    gone = before.rows[3]
    after = renumbered(before, [row for row in before.rows if row is not gone])
    found = align(before, after)
    assert found.method == ("module" if record else "name")
    statuses = [pair.status for pair in found.pairs]
    assert statuses.count("removed") == 1 and set(statuses) == {"same", "removed"}
    assert found.pairs[3].before is gone and found.pairs[3].after is None
    for pair in found.pairs:
        if pair.before is not None and pair.after is not None:
            assert pair.before.ticks is pair.after.ticks  # it is the very same operator
    back = align(after, before)
    assert [pair.status for pair in back.pairs].count("added") == 1
    assert back.pairs[3].after is gone


def test_by_module_position_says_nothing() -> None:
    """Modules in another order: each operator is still found, which names alone cannot do."""
    before = open_trace("cnn_portable", program=False).profiles()[0]
    after = renumbered(before, before.rows[6:] + before.rows[:6])
    found = align(before, after)
    assert {pair.status for pair in found.pairs} == {"same"}
    assert all(pair.before.ticks is pair.after.ticks for pair in found.pairs)  # type: ignore[union-attr]


def test_a_renamed_module_is_moved() -> None:
    before = open_trace("cnn_portable", program=False).profiles()[0]

    def renamed(row: Row) -> Row:
        nodes = tuple(
            replace(
                node,
                modules=tuple(
                    replace(m, path=f"body.{m.path}" if m.path else m.path) for m in node.modules
                ),
            )
            for node in row.attribution.nodes
        )
        return replace(row, attribution=replace(row.attribution, nodes=nodes))

    after = replace(before, rows=tuple(map(renamed, before.rows)))
    found = align(before, after)
    assert {pair.status for pair in found.pairs} <= {"moved", "same"}
    assert [pair.status for pair in found.pairs].count("moved") > 15


def test_a_delegates_events_are_aligned_below_its_call() -> None:
    before = open_trace("cnn_xnnpack", program=False).profiles()[0]
    inner = next(row for row in before.rows if row.depth == 1)
    after = replace(before, rows=tuple(row for row in before.rows if row is not inner))
    found = align(before, after)
    call = next(pair for pair in found.pairs if pair.inner)
    assert call.status == "same"
    assert [pair.status for pair in call.inner].count("removed") == 1
    assert sum(1 + len(pair.inner) for pair in found.pairs) == len(before.rows)


def test_sequences_are_a_longest_common_subsequence() -> None:
    chance = random.Random(1)
    for _ in range(300):
        a, b = ([chance.choice("abc") for _ in range(chance.randrange(12))] for _ in range(2))
        pairs = matched(a, b)
        assert all(a[i] == b[j] for i, j in pairs)
        assert all(x[0] < y[0] and x[1] < y[1] for x, y in itertools.pairwise(pairs))
        assert len(pairs) == _longest(a, b)


def test_long_sequences_take_no_time() -> None:
    same = [i % 7 for i in range(20_000)]
    assert len(matched(same, same[:8_000] + same[8_001:])) == 19_999
    assert matched(list(range(5000)), list(range(5000, 10_000))) == []


def _longest(a: Sequence[str], b: Sequence[str]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else best
    return table[-1][-1]
