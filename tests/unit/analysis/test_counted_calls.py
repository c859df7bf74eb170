"""The calls that numbers of tokens tell: known mixes of prompt and decode are found again."""

from __future__ import annotations

import pytest

from etscope.analysis.generation.counted_calls import counted_calls


def shape(counts: list[tuple[int, int]], runs: int) -> list[tuple[str, int, int, int]]:
    calls = counted_calls(counts, runs)
    return [(call.phase, call.position, call.tokens, call.generation) for call in calls]


@pytest.mark.parametrize(
    ("counts", "runs", "expected"),
    [
        ([(14, 2)], 3, [("prefill", 0, 14, 0), ("decode", 14, 1, 0), ("decode", 15, 1, 0)]),
        (
            [(3, 2)],  # token by token
            5,
            [*(("prefill", n, 1, 0) for n in range(3)), ("decode", 3, 1, 0), ("decode", 4, 1, 0)],
        ),
        (
            [(5, 1), (3, 2)],  # several generations
            5,
            [
                *(("prefill", 0, 5, 0), ("decode", 5, 1, 0)),
                *(("prefill", 0, 3, 1), ("decode", 3, 1, 1), ("decode", 4, 1, 1)),
            ],
        ),
        (
            [(14, 20)],  # a runner that counts the first token
            20,
            [("prefill", 0, 14, 0), *(("decode", 14 + n, 1, 0) for n in range(19))],
        ),
    ],
)
def test_prompts_and_decoded_tokens(
    counts: list[tuple[int, int]], runs: int, expected: list[tuple[str, int, int, int]]
) -> None:
    assert shape(counts, runs) == expected


@pytest.mark.parametrize(
    ("prompt", "calls", "lengths"),
    [
        (300, 3, [128, 128, 44]),  # a power of two, as programs are exported with
        (10, 4, [3, 3, 3, 1]),  # else the shortest that does it
        (4, 2, [2, 2]),
    ],
)
def test_a_prompt_in_chunks(prompt: int, calls: int, lengths: list[int]) -> None:
    found = counted_calls([(prompt, 7)], calls + 7)
    assert [one.tokens for one in found if one.phase == "prefill"] == lengths
    assert sum(one.phase == "decode" for one in found) == 7
    assert [one.position for one in found][-7:] == list(range(prompt, prompt + 7))


@pytest.mark.parametrize(("by_token", "runs"), [(False, 2 * 21), (True, 2 * 34)])
def test_a_warm_up_before(by_token: bool, runs: int) -> None:
    found = counted_calls([(14, 20)], runs)
    assert [one.generation for one in found] == [-1] * (runs // 2) + [0] * (runs // 2)
    prefills = [one for one in found if one.phase == "prefill"]
    assert len(prefills) == (28 if by_token else 2)


@pytest.mark.parametrize("runs", [0, 5, 19, 35, 41, 43, 1000])
def test_numbers_that_cannot_be(runs: int) -> None:
    assert counted_calls([(14, 20)], runs) is None


def test_large_numbers_take_no_time() -> None:
    assert counted_calls([(1 << 39, 1 << 39)], 100) is None
    assert counted_calls([(0, 0)], 0) == ()
