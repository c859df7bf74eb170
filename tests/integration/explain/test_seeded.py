"""Seeded inefficiencies are found, and models without one are not accused.

These are some of the models of `benchmarks.explain_rules`, which runs all of them with several
seeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.analysis.explain.rules import rules
from tests.support.explain.cases import ALLOWED, ALLOWED_ANYWHERE, CLEAN, KINDS, SEEDED
from tests.support.explain.scoring import (
    FIRST,
    facts_of,
    false_findings,
    findings_of,
    planted_share,
    rank,
    recorded,
)

SOME_SEEDED = (
    "threshold",
    "double precision",
    "bfloat16 step",
    "fused attention",
    "GELU by erf",
    "transposed weight",
    "expanded weight",
    "mask in each call",
    "portable step",
    "cache by condition",
)
SOME_CLEAN = ("MLP", "residual CNN", "mobile CNN", "audio encoder", "transformer with layer norm")


def test_the_cases_are_of_rules_and_models_that_exist() -> None:
    assert len(SEEDED) >= 30
    assert len(CLEAN) >= 15
    assert {case.kind for case in SEEDED.values()} == set(KINDS)
    assert len(KINDS) >= 8
    assert set().union(*KINDS.values()) <= set(rules())
    assert set(ALLOWED) <= set(CLEAN)
    assert set(ALLOWED_ANYWHERE).union(*ALLOWED.values()) <= set(rules())


@pytest.mark.parametrize("name", SOME_SEEDED)
def test_what_is_seeded_is_among_the_first_findings(name: str, tmp_path: Path) -> None:
    made = SEEDED[name].made(f"{name}/1")
    recorded(made, tmp_path)
    if made.places is not None:
        assert planted_share(facts_of(tmp_path), made.places) > 0.05
    found = findings_of(tmp_path)
    place = rank(SEEDED[name], made.places, found)
    assert place is not None and place <= FIRST, [one.sentence for one in found]


@pytest.mark.parametrize("name", SOME_CLEAN)
def test_nothing_large_is_said_of_a_model_without(name: str, tmp_path: Path) -> None:
    recorded(CLEAN[name].made(f"{name}/1"), tmp_path)
    found = false_findings(name, findings_of(tmp_path))
    assert not found, [one.sentence for one in found]
