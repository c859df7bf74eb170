"""Verdicts on trials, and changes of settings, without a model."""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import etscope
from etscope.analysis.metrics import find_metric
from etscope.analysis.statistics.compare_samples import Policy, drawn_orders
from etscope.backends.registry.export_options import check_passes
from etscope.errors import UsageError
from etscope.model.finding import (
    Explanation,
    Finding,
    Quantity,
    Remedy,
    Severity,
    Sureness,
)
from etscope.search.remedies._changes import (
    _CHANGES,
    Change,
    Setting,
    changes_of,
    general_changes,
    setting_with,
)
from etscope.search.remedies._remedies import Effort, _Search
from etscope.search.remedies._trials import Laboratory, Runs
from etscope.search.remedies.results import Limits, Numbers, Outcome, _row, in_order, judged
from etscope.search.trial import Trial, timed_rounds

SQNR = find_metric("sqnr")
LIMITS = Limits(SQNR, exact=60, quantized=20, baseline=138)
FLOAT, INT8 = Setting({"backend": "xnnpack"}), Setting({"backend": "xnnpack", "quantize": "int8"})
FUSE = Change("pass", {"name": "fuse_sdpa"})


def trial(factor: float, error: float | None = 138.0, spread: float = 0.01) -> Trial:
    """Fifteen rounds of a baseline of a millisecond."""
    draw = random.Random(0)
    pairs = [(1e6 * draw.gauss(1, spread), 1e6 * factor * draw.gauss(1, spread)) for _ in range(15)]
    return Trial(error, 1000, tuple(pairs))


def outcome(found: Trial, setting: Setting = FLOAT) -> Outcome:
    return judged((FUSE,), found, setting, LIMITS, Policy())


@pytest.mark.parametrize(
    ("found", "setting", "verdict", "words"),
    [
        (trial(0.5), FLOAT, "faster", "faster by 50 % (49 to 51), same numbers to 138 dB"),
        (trial(0.01), FLOAT, "faster", "99.0), 100 times as fast, same numbers to 138 dB"),
        (trial(3.0), FLOAT, "slower", "slower by 199 % (193 to 204)"),
        (trial(0.95), FLOAT, "faster", "faster by 5.5 % (3.7 to 7.2)"),
        (trial(0.5, math.inf), FLOAT, "faster", "(49 to 51), same numbers"),
        (trial(1.0, spread=0.001), FLOAT, "no difference", "no difference beyond 0.2 %"),
        (trial(1.0, spread=0.3), FLOAT, "cannot tell", "cannot tell: -"),
        (trial(0.5, 30.0), FLOAT, "breaks the numbers", "the numbers: 30 dB; faster by 50 %"),
        (trial(0.5, 30.0), INT8, "faster, other numbers", "50 % (49 to 51), other numbers: 30 dB"),
        (trial(3.0, 30.0), INT8, "slower", "(193 to 204), other numbers: 30 dB"),
        (trial(0.5, 61.0), INT8, "faster", "same numbers to 61 dB"),
        (trial(0.5, 10.0), INT8, "breaks the numbers", "breaks the numbers: 10 dB"),
        (trial(0.5, math.nan), INT8, "breaks the numbers", "breaks the numbers: nan dB"),
        (trial(0.5, None), FLOAT, "breaks the numbers", "breaks the numbers: no number"),
        (Trial(failure="lower", detail="why"), FLOAT, "cannot be lowered", "be lowered: why"),
        (Trial(failure="run", detail="why"), FLOAT, "fails to run", "fails to run: why"),
        (Trial(failure="apply", detail="why"), FLOAT, "does not apply", "does not apply: why"),
    ],
)
def test_a_verdict(found: Trial, setting: Setting, verdict: str, words: str) -> None:
    one = outcome(found, setting)
    assert one.verdict == verdict
    assert words in one.sentence(SQNR)
    assert one.is_faster == verdict.startswith("faster")


def test_as_good_as_a_bad_baseline_is_good_enough() -> None:
    """A baseline that is quantized already has bad numbers: those of a remedy may be as bad."""
    limits = Limits(SQNR, exact=60, quantized=20, baseline=12.0)
    assert limits.numbers(11.5, quantizes=False) is Numbers.SAME
    assert limits.numbers(10.5, quantizes=False) is Numbers.BROKEN


# -- the order of remedies

XNNPACK = Change("backend", {"value": "xnnpack"})
INT8_TOO, W4_TOO = (Change("quantize", {"value": value}) for value in ("int8", "8da4w"))
ONE_THREAD, TWO_THREADS = (Change("threads", {"value": value}) for value in ("1", "2"))


def faster(*changes: Change, error: float = 130.0) -> Outcome:
    setting = INT8 if any(one.name == "quantize" for one in changes) else FLOAT
    return judged(changes, trial(0.1, error), setting, LIMITS, Policy())


def test_the_order_is_by_own_times_numbers_and_changes() -> None:
    """Of those alike, the ones with the model's numbers come first, then those of fewer changes."""
    found = {
        faster(ONE_THREAD): 150.0,
        faster(XNNPACK): 100.0,
        faster(XNNPACK, TWO_THREADS): 99.0,
        faster(XNNPACK, INT8_TOO, error=30.0): 98.5,
        faster(XNNPACK, W4_TOO, error=23.0): 50.0,
        faster(TWO_THREADS): 140.0,
    }
    own = {one.key: time for one, time in found.items()}
    xnnpack = "backend xnnpack"
    assert [one.words for one in in_order(found, own, 0.03)] == [
        *(f"{xnnpack} + quantize 8da4w", xnnpack, f"{xnnpack} + threads 2"),
        *(f"{xnnpack} + quantize int8", "threads 2", "threads 1"),
    ]
    assert in_order([], {}, 0.03) == []


class Bench:
    """A laboratory of given times and numbers, in which the baseline gets slower all the time: the
    later a trial, the larger its gain looks."""

    metric, method, source = SQNR, "forward", SimpleNamespace(spec="m.py:make")

    def __init__(
        self, baseline: Setting, times: Mapping[str, float], errors: Mapping[str, float]
    ) -> None:
        self.baseline, self.times, self.errors = baseline, times, errors
        self.state = SimpleNamespace(trials={})
        self.before = 1000.0

    def tried(self, key: str, setting: Setting) -> Trial:
        if key not in self.times:
            return Trial(failure="apply", detail="not on this bench")
        self.before *= 1.2
        return Trial(self.errors.get(key, 130.0), 1000, ((self.before, self.times[key]),) * 15)

    def in_common(self, settings: Mapping[str, Setting]) -> Trial:
        return Trial(rounds=(tuple(self.times[key] for key in settings),) * 15)

    def confirmed(self, key: str, setting: Setting) -> Trial:
        return Trial(self.errors.get(key, 130.0), 1000, ((1000.0, self.times[key]),) * 30)


TIMES = {
    "baseline": 1000.0,
    "pass fuse_sdpa": 44.0,
    "pass fold_constants": 46.0,
    "quantize int8": 40.0,
    "quantize 8da4w": 36.0,
    "pass fuse_sdpa + quantize 8da4w": 30.0,
}
ERRORS = {"quantize int8": 37.0, "quantize 8da4w": 23.2, "pass fuse_sdpa + quantize 8da4w": 23.2}
BOTH = {"pass fuse_sdpa", "quantize 8da4w"}


@pytest.mark.parametrize(
    ("allow", "quantize", "best", "beside"),
    [
        ((), False, {"pass fuse_sdpa"}, BOTH),
        (("quantize",), False, BOTH, None),
        ((), "8da8w", BOTH, None),  # precision was given up before
    ],
)
def test_the_best_keeps_the_numbers_unless_others_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
    allow: tuple[str, ...],
    quantize: str | bool,
    best: set[str],
    beside: set[str] | None,
) -> None:
    names = [("pass", {"name": "fuse_sdpa"}), ("pass", {"name": "fold_constants"})]
    schemes = [("quantize", {"scheme": scheme}) for scheme in ("int8", "8da4w")]
    remedies = tuple(Remedy("Do.", name, given) for name, given in (*names, *schemes))
    explanation = Explanation(Sureness.LIKELY, (), remedies=remedies)
    planted = Finding("slow", Severity.COST, "It is slow.", explanation=explanation)
    monkeypatch.setattr(_Search, "_findings", lambda *_: (planted,))
    bench = Bench(Setting({"backend": "xnnpack", "quantize": quantize}), TIMES, ERRORS)
    effort = Effort(allow=allow)

    found = _Search(bench, effort, (), 0.0).run(keeps=False)  # type: ignore[arg-type]

    assert found.best is not None and found.best is found.outcomes[0]
    assert set(found.best.words.split(" + ")) == best
    assert found.table().values["remedy"][0] == found.best.words
    assert "Why: It is slow." in found.table().notes
    told = [note for note in found.table().notes if note.startswith("Faster with other numbers")]
    if beside is None:
        assert (found.beside, told) == (None, [])
    else:
        assert found.beside is not None and set(found.beside.words.split(" + ")) == beside
        (note,) = told
        assert "23.2 dB" in note and note.endswith("--allow quantize accepts it."), note
        assert found.command == "etscope export m.py:make --backend xnnpack -X passes=fuse_sdpa"
    # By the gain over a baseline that drifts, the last one of the passes would be the better.
    ratios = {one.words: one.relative for one in found.outcomes if one.comparison is not None}
    assert ratios["pass fold_constants"] < ratios["pass fuse_sdpa"]


def test_a_program_of_seconds_runs_once_in_each_of_a_few_rounds() -> None:
    given: dict[str, list[int]] = {"slow": [], "fast": []}

    def side(name: str, ns: float) -> Callable[[int], float]:
        return lambda executions: given[name].append(executions) or ns

    stopped = iter([3e9])  # by other work, in its first execution
    sides = [side("slow", 2e9), lambda count: next(stopped, 0.0) or side("fast", 1e6)(count)]
    found = timed_rounds(sides, 15, seed=0)
    assert found.tolist() == [[2e9, 1e6]] * 10
    assert given["slow"] == [1] * 13  # the first three tell how long it takes
    assert given["fast"] == [1, 3, *[50] * 10]
    verdict = judged((FUSE,), Trial(130.0, 1000, tuple(map(tuple, found))), FLOAT, LIMITS, Policy())
    assert verdict.is_faster


def test_rounds_are_common_to_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine gets slower with each run: programs meet it alike."""
    order: list[str] = []

    def time(_: Laboratory, setting: Setting, iterations: int) -> float:
        order.append(setting.export["quantize"])
        return 1000.0 * (1 + len(order) / 10)

    monkeypatch.setattr(Laboratory, "time", time)
    sides = [Setting({"quantize": scheme}) for scheme in ("int8", "8da4w", "8da8w")]
    state: Any = None
    bench = Laboratory(state, {}, sides[0], Runs(rounds=6), SQNR, state, Path())

    times = np.array(bench.rounds(sides, seed=3))

    assert times.shape == (6, 3)
    rounds = [order[at : at + 3] for at in range(6, len(order), 3)]  # the first choose lengths
    assert all(len(set(names)) == 3 for names in rounds), rounds
    assert [names[0] for names in rounds].count("8da4w") == 2
    assert np.ptp(times, axis=1) == pytest.approx(200)


def test_a_command_has_all_options() -> None:
    base = Setting({"backend": "portable", "passes": (), "quantize": False, "strict": None})
    changes = (
        Change("keep_float", {"select": "module:head"}),
        Change("quantize", {"scheme": "int8"}),
        FUSE,
        Change("backend", {"backend": "xnnpack"}),
        Change("threads", {"threads": 2}),
    )
    setting = setting_with(changes, base)
    assert setting.command("model.py:make", ["-X", "seed=3"]) == (
        "etscope export model.py:make --backend xnnpack --quantize int8 -X passes=fuse_sdpa "
        "-X keep_float=module:head -X seed=3"
    )
    assert setting.threads == 2
    last = setting_with([Change("channels_last", {}), Change("dtype", {"dtype": "float32"})], base)
    assert last.command("model.py:make") == (
        "etscope export model.py:make --backend portable -X passes=to_float32 "
        "-X passes=channels_last"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("memory_planning", {}), "not implemented"),
        (Change("backend", {"backend": "xnnpack"}), "lowered to xnnpack already"),
        (Change("backend", {}), "does not say its backend"),
        (Change("keep_float", {"select": "op:conv*"}), "float throughout"),
        (Change("dtype", {"dtype": "float16"}), "not implemented: a model in float16"),
        (Change("pass", {"name": "keep_linear"}), "partitioner chooses what stays whole"),
    ],
)
def test_a_change_that_does_not_apply(change: Change, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        change.applied(FLOAT)


def test_changes_of_findings_are_each_taken_once() -> None:
    def finding(kind: str, *changes: tuple[str | None, dict[str, Any]]) -> Finding:
        remedies = tuple(Remedy("Do.", name, given) for name, given in changes)
        explanation = Explanation(Sureness.LIKELY, (), remedies=remedies)
        quantity = Quantity(1.0, "ms", 0.5)
        return Finding(kind, Severity.COST, "", quantity=quantity, explanation=explanation)

    fuse, threads = ("pass", {"name": "fuse_sdpa"}), ("threads", {"threads": 1})
    found = changes_of([finding("a", fuse, (None, {})), finding("b", fuse, threads)])
    words = [(one.words, one.finding) for one in found]
    assert words == [("pass fuse_sdpa", "a"), ("threads 1", "b")]


def test_what_rules_offer_can_be_tried() -> None:
    """No rule names a change, or a pass, that nothing carries out."""
    folder = Path(etscope.__file__).parent / "analysis" / "insights"
    sources = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    nodes = [node for source in sources for node in ast.walk(source) if isinstance(node, ast.Call)]
    calls = [one for one in nodes if getattr(one.func, "id", "") == "Remedy" and len(one.args) > 1]
    changes = {name for call in calls for name in _texts(call.args[1])}
    arguments = [_texts(call.args[2]) for call in calls if "pass" in _texts(call.args[1])]
    assert {"backend", "pass", "threads"} <= changes <= set(_CHANGES)
    assert arguments
    check_passes([text for texts in arguments for text in texts if text != "name"])


def _texts(tree: ast.AST) -> list[str]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_general_changes() -> None:
    words = [one.words for one in general_changes(Setting({}), ["quantize"], 2)]
    assert "backend xnnpack" in words and "quantize 8da4w" in words
    assert [one for one in words if one.startswith("threads")] == ["threads 1", "threads 2"]
    assert not [one for one in general_changes(FLOAT, [], 2) if one.name == "quantize"]


def test_each_side_goes_first_equally_often() -> None:
    def firsts(rounds: int, seed: int, sides: int = 2) -> tuple[int, ...]:
        return tuple(first for first, *_ in drawn_orders(rounds, seed, sides))

    orders = {firsts(10, seed) for seed in range(20)}
    assert len(orders) > 10
    assert all(sum(order) == 5 for order in orders)
    assert {sum(firsts(11, seed)) for seed in range(20)} == {5, 6}
    assert sorted(firsts(9, 0, 3)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_no_trial_begins_that_would_end_after_the_budget() -> None:
    now = monotonic()

    def has_time(spent: float, *durations: float) -> bool:
        effort = Effort(budget=1000)
        return _Search(None, effort, (), now - spent, list(durations))._has_time()  # type: ignore[arg-type]

    assert has_time(500, 30, 400) and not has_time(500, 600, 30)
    assert has_time(500) and not has_time(1001)


def test_a_row_names_few_modules_of_a_selector() -> None:
    names = " or ".join(f"module:block.{number}" for number in range(40))
    kept = Change("keep_float", {"select": names})
    row = _row("remedy", Outcome((kept,), None, reason=""), SQNR)
    assert row["remedy"] == "keep_float module:block.0 or 39 others"
