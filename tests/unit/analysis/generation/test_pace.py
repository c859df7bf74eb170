"""The pace of generations, from calls whose times are known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from etscope.analysis.generation.pace import Pace, growth_in_words, pace_section, phase_table
from etscope.formats.generation import GenerationCalls

MS = 1_000_000
ENCODER, EMBEDDING, DECODER = range(3)
# method, phase, position, tokens, start, execute, sampling (ms): an image of 4 tokens, a text of 2,
# and two decoded tokens, each of which takes two calls.
CALLS = [
    (ENCODER, 0, -1, 0, 0, 3, 0),
    (DECODER, 1, 0, 4, 4, 5, 0),
    (EMBEDDING, 1, 4, 2, 10, 1, 0),
    (DECODER, 1, 4, 2, 12, 6, 1),
    (EMBEDDING, 2, 6, 1, 20, 1, 0),
    (DECODER, 2, 6, 1, 21, 4, 1),
    (EMBEDDING, 2, 7, 1, 27, 1, 0),
    (DECODER, 2, 7, 1, 29, 4, 1),
]
END = 34


def pace(runs: int = 2) -> Pace:
    columns = np.array(CALLS * runs, np.int64).T
    times = {
        name: columns[index] * MS
        for index, name in enumerate(("start_ns", "execute_ns", "sampling_ns"), start=4)
    }
    calls = GenerationCalls(
        methods=("vision_encoder", "token_embedding", "text_decoder"),
        phases=("vision_encoder", "prefill", "decode"),
        run=np.repeat(np.arange(runs), len(CALLS)),
        method=columns[0],
        phase=columns[1],
        position=columns[2],
        tokens=columns[3],
        **times,
    )
    return Pace(calls, load_ns=7 * MS, cold_first_token_ns=30 * MS)


def test_times_sum_to_the_whole_and_each_token_counts_once() -> None:
    found = pace()
    assert (found.first_token_ns / MS).tolist() == [19, 19]
    assert found.positions.tolist() == [6, 7, 6, 7]
    assert (found.inter_token_ns / MS).tolist() == [7, 8, 7, 8]
    assert found.sampling_share == pytest.approx(3 / END)
    assert found.host_share == pytest.approx(1 - (25 + 3) / END)
    encoder, prefill, decode = found.phases
    assert [one.phase for one in found.phases] == ["vision_encoder", "prefill", "decode"]
    walls = [(one.wall_ns / MS).tolist() for one in found.phases]
    assert walls == [[4, 4], [16, 16], [14, 14]]
    assert sum(wall[0] for wall in walls) == END
    assert (encoder.tokens, prefill.tokens, decode.tokens) == (0, 6, 2)
    assert (encoder.calls, prefill.calls, decode.calls) == (1, 3, 4)
    assert encoder.mean_rate is None
    assert prefill.mean_rate == pytest.approx(6 / 0.016)
    assert decode.mean_rate == pytest.approx(2 / 0.014)


def test_tables() -> None:
    table = phase_table(pace())
    assert table.values["tokens"] == [None, 6, 2]
    assert sum(table.values["share"]) == pytest.approx(1)
    facts = pace_section(pace()).table.values
    assert facts["first_token"] == [19]
    assert facts["first_token_with_load"] == [37]
    assert facts["slope"] == [None], "too few tokens"


def test_an_interrupted_generation_has_what_it_has() -> None:
    """Before the first token, and before the first call."""
    whole = pace(1)
    begun = Pace(whole.calls.select(np.arange(len(CALLS)) < 2), 0)
    assert len(begun.first_token_ns) == len(begun.inter_token_ns) == 0
    assert [one.phase for one in begun.phases] == ["vision_encoder", "prefill"]
    empty = Pace(whole.calls.select(np.zeros(len(CALLS), bool)), 0)
    assert empty.phases == ()
    assert empty.growth is None


def test_growth_in_words_is_not_that_of_interrupted_tokens() -> None:
    """100 us at position 16, and 100 ns more for each token; each tenth is interrupted for 5 ms."""
    positions = np.arange(16, 241)
    execute = 100_000 + 100 * (positions - 16)
    execute[::10] += 5 * MS
    calls = GenerationCalls(
        methods=("forward",),
        phases=("prefill", "decode"),
        run=np.zeros(226, np.int64),
        method=np.zeros(226, np.int64),
        phase=np.array([0] + [1] * 225),
        position=np.concatenate(([0], positions)),
        tokens=np.array([16] + [1] * 225),
        start_ns=np.concatenate(([0], MS + np.cumsum(execute) - execute)),
        execute_ns=np.concatenate(([MS], execute)),
        sampling_ns=np.zeros(226, np.int64),
    )
    (words,) = growth_in_words(Pace(calls, load_ns=0))
    # 22.4 us of 100 us; the medians move by a token's time or so.
    assert re.fullmatch(r"A token's time grows by 22\.\d% from position 16 to 240\.", words)
