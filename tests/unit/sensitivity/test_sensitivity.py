"""Numbers of several samples and outputs, the order of the rounds, and the search among sets."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.metrics import find_metric
from etscope.errors import FormatError
from etscope.run.execute import IsolationOptions
from etscope.search.sensitivity import _sensitivity as _measure
from etscope.search.sensitivity._sensitivity import (
    GroupSearch,
    References,
    SensitivityOptions,
    measured,
    open_variants,
    timed,
    variant_key,
)
from etscope.search.sensitivity.results import Key, Variant, gain
from etscope.search.trial import LOWER, RUN, reaches

SQNR, MSE = find_metric("sqnr"), find_metric("mse")


def answering(monkeypatch: pytest.MonkeyPatch, outputs: list[list[Any]]) -> None:
    monkeypatch.setattr(_measure, "run_samples", lambda *_, **__: outputs)


def samples(*expected: list[Any]) -> References:
    return References("forward", [[] for _ in expected], expected)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "model.pte"
    path.write_bytes(bytes(10))
    return path


def measure(program: Path, given: References, metric: Any = SQNR) -> Variant:
    return measured(program, given, metric, IsolationOptions(isolate=False))


def test_samples_are_taken_as_one_and_the_worst_output_counts(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ones = np.ones(4, np.float32)
    answering(monkeypatch, [[ones * 1.1, ones], [ones * 10, ones * 1.01]])
    found = measure(program, samples([ones, ones], [ones * 10, ones]))
    noise = 4 * np.float64(np.float32(1.1) - np.float32(1)) ** 2
    assert found.error == pytest.approx(10 * math.log10((4 + 400) / noise), abs=1e-4)
    assert (found.worst_sample, found.size) == (0, 10)
    assert found.worst == pytest.approx(20.0, abs=1e-3)


def test_nan_is_never_good(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ones = np.ones(4, np.float32)
    answering(monkeypatch, [[ones], [ones * np.nan]])
    found = measure(program, samples([ones], [ones]))
    assert found.error is not None and math.isnan(found.error)
    assert found.worst_sample == 1
    assert not reaches(SQNR, found.error, -1000)
    answering(monkeypatch, [[np.ones(5, np.float32)]])
    assert not reaches(SQNR, measure(program, samples([ones])).error, -1000)


def test_a_run_that_fails_is_an_answer(program: Path) -> None:
    found = measure(program, samples([np.ones(1)]))
    assert found.failure == RUN and found.detail and found.error is None


def test_a_gain_is_for_the_better() -> None:
    assert gain(SQNR, 30.0, 20.0) == 10.0
    assert gain(MSE, 1.0, 3.0) == 2.0
    assert gain(SQNR, math.nan, 20.0) is gain(SQNR, None, 20.0) is None
    assert gain(SQNR, math.inf, math.inf) == 0.0
    assert gain(SQNR, 20.0, -math.inf) == math.inf


def test_rounds_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []

    def median(path: Path, given: References, iterations: int, *_: Any) -> float:
        order.append((path.name, iterations))
        return {"a": 1e6, "b": 1e9}[path.name]

    monkeypatch.setattr(_measure, "_median_ns", median)
    times = timed({"x": Path("a"), "y": Path("b")}, samples([1.0]), 3)
    assert {key: list(one) for key, one in times.items()} == {"x": [1.0] * 3, "y": [1000.0] * 3}
    rounds = order[-6:]  # after the executions that find how many a round has
    assert all({rounds[at][0], rounds[at + 1][0]} == {"a", "b"} for at in range(0, 6, 2))
    assert dict(rounds) == {"a": 50, "b": 3}


def test_a_state_keeps_what_json_cannot(tmp_path: Path) -> None:
    given, options = {"model": "m"}, SensitivityOptions()
    state = open_variants(tmp_path, given, options)
    known = {
        variant_key(["a"]): Variant(math.inf, 10, worst=-math.inf, worst_sample=3),
        variant_key(["b"]): Variant(failure="lower", detail="why"),
    }
    for key, variant in known.items():
        state.trials[key] = variant
    state.save()
    program = tmp_path / "programs" / f"{variant_key(['a'])}.pte"
    program.write_bytes(b"")
    assert open_variants(tmp_path, given, options).trials == known
    program.unlink()
    again = open_variants(tmp_path, given, options)
    assert again.trials == {variant_key(["b"]): known[variant_key(["b"])]}
    (tmp_path / "state.json").write_text('{"version": 1}')
    with pytest.raises(FormatError):
        open_variants(tmp_path, given, options)


# -- the search among sets whose errors are known, against all sets tried


class Model:
    """Noise of each group goes when it is in float; of each pair, when both are. Some sets cannot
    be lowered."""

    def __init__(self, alone: list[float], pairs: dict[tuple[int, int], float]) -> None:
        self.alone, self.pairs = alone, pairs
        self.broken: set[Key] = set()
        self.asked = 0

    def noise(self, key: Key) -> float:
        alone = sum(one for index, one in enumerate(self.alone) if index not in key)
        return 1e-9 + alone + sum(one for pair, one in self.pairs.items() if not key >= set(pair))

    def ask(self, key: Key) -> Variant:
        self.asked += 1
        if key in self.broken:
            return Variant(failure=LOWER)
        return Variant(error=-10 * math.log10(self.noise(key)))

    def search(self, tolerance: float) -> GroupSearch:
        count = len(self.alone)
        keys = [frozenset([index]) for index in range(count)] + [*map(frozenset, self.pairs)]
        base, known = self.ask(frozenset()), {key: self.ask(key) for key in keys}
        return GroupSearch(
            SQNR, tolerance, base, count, known, self.ask, lambda key: float(min(key))
        )

    def smallest(self, tolerance: float) -> int | None:
        for size in range(len(self.alone) + 1):
            for chosen in itertools.combinations(range(len(self.alone)), size):
                answer = self.ask(frozenset(chosen))
                if answer.error is not None and answer.error >= tolerance:
                    return size
        return None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_is_enough_and_small(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(
        [10 ** chance.uniform(-6, -1) for _ in range(8)],
        {(i, i + 1): 10 ** chance.uniform(-6, -1) for i in range(7)},
    )
    for tolerance in (10.0, 20.0, 30.0, 45.0):
        smallest = model.smallest(tolerance)
        found = model.search(tolerance).run()
        assert (found is None) == (smallest is None)
        if found is not None and smallest is not None:
            answer = model.ask(found)
            assert answer.error is not None and answer.error >= tolerance
            assert len(found) <= smallest + 2
            for index in found:  # none of it can be left out
                error = model.ask(found - {index}).error
                assert error is not None and error < tolerance


def test_what_needs_nothing_and_what_cannot_be_reached() -> None:
    assert Model([1e-5, 1e-5], {}).search(20).run() == frozenset()
    model = Model([0.1, 0.1], {(0, 1): 0.1})
    assert model.search(200).run() is None


def test_of_equal_sets_the_cheapest_is_taken() -> None:
    model = Model([1e-9, 1e-9, 1e-9], {(0, 1): 0.0, (1, 2): 0.1})
    assert model.search(40).run() == frozenset({1, 2})


def test_what_works_with_all_only_is_found() -> None:
    """All small sets fail; a large one does not."""
    model = Model([0.1, 0.1, 0.1], {})
    model.broken = {
        frozenset(one) for size in (1, 2) for one in itertools.combinations(range(3), size)
    }
    assert model.search(40).run() == frozenset({0, 1, 2})


def test_no_more_is_tried_than_needed() -> None:
    model = Model([0.5, *[1e-8] * 30], {})
    search = model.search(40)
    asked = model.asked
    assert search.run() == frozenset({0})
    assert model.asked == asked
