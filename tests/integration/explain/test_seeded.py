"""Seeded inefficiencies are found, and models without one are not accused: by recorded runs, each
night by runs of that night.

These are some of the models of `benchmarks.explain_rules`, which runs all of them with several
seeds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.analysis.insights.insights import rules
from tests.support.artifacts import EXPLAINED, artifacts
from tests.support.explain.cases import CLEAN, SEEDED
from tests.support.explain.recording import recorded
from tests.support.explain.scoring import (
    ALLOWED,
    ALLOWED_ANYWHERE,
    FIRST,
    KINDS,
    facts_of,
    false_findings,
    findings_of,
    planted_share,
    rank,
)


def artifact_of(case: str) -> str:
    return re.sub(r"\W+", "_", case)


SOME_SEEDED = [name for name in SEEDED if artifact_of(name) in EXPLAINED]
SOME_CLEAN = [name for name in CLEAN if artifact_of(name) in EXPLAINED]


def test_the_cases_are_of_rules_and_models_that_exist() -> None:
    assert len(SEEDED) >= 30 and len(CLEAN) >= 15 and len(KINDS) >= 8
    assert {case.kind for case in SEEDED.values()} == set(KINDS)
    assert {SEEDED[name].kind for name in SOME_SEEDED} == set(KINDS)
    assert len(SOME_SEEDED) + len(SOME_CLEAN) == len(EXPLAINED)
    assert set(ALLOWED) <= set(CLEAN)
    known = set(rules())
    assert set().union(ALLOWED_ANYWHERE, *KINDS.values(), *ALLOWED.values()) <= known


@pytest.fixture(params=["recorded", pytest.param("run here", marks=pytest.mark.nightly)])
def folder(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Path:
    """The files of a run of the case `name`."""
    if request.param == "recorded":
        return artifacts(f"explained_{artifact_of(name)}").folder
    recorded((SEEDED.get(name) or CLEAN[name]).made(f"{name}/1"), tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", SOME_SEEDED)
def test_what_is_seeded_is_among_the_first_findings(name: str, folder: Path) -> None:
    places = SEEDED[name].made(f"{name}/1").places
    if places is not None:
        assert planted_share(facts_of(folder), places) > 0.05
    found = findings_of(folder)
    place = rank(SEEDED[name], places, found)
    assert place is not None and place <= FIRST, [one.sentence for one in found]


@pytest.mark.parametrize("name", SOME_CLEAN)
def test_nothing_large_is_said_of_a_model_without(name: str, folder: Path) -> None:
    found = false_findings(name, findings_of(folder))
    assert not found, [one.sentence for one in found]
