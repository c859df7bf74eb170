"""`try_remedies`: what is confirmed, what is not, and what survives an interruption."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope.analysis.profile.trace import Trace
from etscope.backends.registry import export_options
from etscope.bridge.lowering import passes
from etscope.cli import main
from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.run import run
from etscope.run.native import native_missing
from etscope.search.remedies import Effort, Remedies, Runs, Trial, _remedies, try_remedies
from etscope.search.remedies._changes import Setting
from etscope.search.remedies._trials import BASELINE, Laboratory
from tests.support.artifacts import artifacts

# A process of its own for each run, which starts sooner than one of Python.
RUNNER = "native" if native_missing() is None else "auto"
PASS_FUSE = ("pass", {"name": "fuse_sdpa"})
XNNPACK = ("backend", {"backend": "xnnpack"})


class Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(32, 96)

    def forward(self, x: Any) -> Any:
        query, key, value = self.project(x).view(1, 128, 3, 2, 16).permute(2, 0, 3, 1, 4)
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return found.transpose(1, 2).reshape(1, 128, 32)


def transformer() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Transformer(), torch.randn(1, 128, 32)


def linear() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()), torch.randn(64, 256)


Plant = Callable[..., None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Let the rules find something that has these changes as remedies, in any run."""

    def planted(*changes: tuple[str, Mapping[str, Any]]) -> None:
        remedies = tuple(Remedy(f"Do {name}.", name, given) for name, given in changes)
        explanation = Explanation(Sureness.LIKELY, (), remedies=remedies)
        found = Finding("planted", Severity.COST, "It is slow.", explanation=explanation)
        monkeypatch.setattr(_remedies, "insights", lambda *_, **__: (found,))

    return planted


@pytest.fixture
def tried(tmp_path: Path) -> Iterator[Callable[..., Remedies]]:
    def call(make: Callable[[], tuple[Any, Any]], **options: Any) -> Remedies:
        runs, effort = Runs(rounds=8, runner=RUNNER), options.pop("effort", Effort())
        return try_remedies(*make(), runs=runs, effort=effort, folder=tmp_path / "kept", **options)

    yield call


def rounds(factor: float) -> tuple[tuple[float, float], ...]:
    """Rounds of a baseline of a millisecond and of a program that takes `factor` of it."""
    draw = random.Random(0)
    return tuple((1e6 * draw.gauss(1, 0.01), 1e6 * factor * draw.gauss(1, 0.01)) for _ in range(8))


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials as they may have been measured, by their keys: nothing is exported or run."""
    faster, alike = Trial(138.0, 1000, rounds(0.2)), Trial(138.0, 1000, rounds(1.0))
    trials = {
        BASELINE: Trial(138.0, 1000),
        "backend xnnpack": faster,
        "threads 1": alike,
        "backend xnnpack + threads 1": faster,
    }

    def attempt(laboratory: Laboratory, key: str, setting: Setting) -> Trial:
        for path in (program := laboratory.path(setting), program.with_suffix(".etrecord")):
            path.touch()
        return trials[key]

    def again(laboratory: Laboratory, settings: Sequence[Setting], *_: Any) -> Any:
        """Of the baseline and the best; or of those that are the best, which are alike."""
        return rounds(0.2 if settings[0] == laboratory.baseline else 1.0)

    trace = Trace(dump=read_etdump(artifacts("cnn_portable").etdump_timing))
    monkeypatch.setattr(Laboratory, "_attempt", attempt)
    monkeypatch.setattr(Laboratory, "rounds", again)
    monkeypatch.setattr(Laboratory, "recorded", lambda *_: trace)


def verdicts(found: Remedies) -> dict[str, str]:
    return {one.words: one.verdict for one in found.outcomes}


def _drops_attention(program: Any) -> int:
    """A pass that is fast, and wrong."""
    attention = torch.ops.aten.scaled_dot_product_attention.default
    found = program.graph.find_nodes(op="call_function", target=attention)
    for node in found:
        node.replace_all_uses_with(node.args[0])
        program.graph.erase_node(node)
    return len(found)


def _fails(program: Any) -> int:
    raise ValueError("no such thing")


def test_attention_gets_faster(
    plant: Plant, tried: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the one remedy that works: what breaks the numbers or fails is never recommended."""
    planted = {**passes.PASSES, "drop_attention": _drops_attention, "fail": _fails}
    monkeypatch.setattr(passes, "PASSES", planted)
    monkeypatch.setattr(export_options, "PASSES", (*export_options.PASSES, *planted))
    others = [("pass", {"name": name}) for name in ("drop_attention", "fail")]
    plant(PASS_FUSE, ("memory_planning", {}), *others)
    found = tried(transformer, backend="xnnpack")
    assert verdicts(found) == {
        "pass fuse_sdpa": "faster",
        "memory_planning": "does not apply",
        "pass drop_attention": "breaks the numbers",
        "pass fail": "cannot be lowered",
    }
    assert found.best is not None and found.confirmation is not None
    again = found.confirmation.comparison
    assert again is not None and again.samples == (16, 16)
    assert found.confirmation.trial.error > 60
    assert found.confirmation.trial.rounds[:8] != found.best.trial.rounds
    assert found.command == "etscope export MODEL --backend xnnpack -X passes=fuse_sdpa"
    dropped = next(one for one in found.outcomes if one.words == "pass drop_attention")
    assert dropped.relative < 0  # it is faster
    told = {one.words: one.sentence(found.limits.metric) for one in found.outcomes}
    assert told["pass drop_attention"].startswith("breaks the numbers: ")
    assert "faster by" in told["pass drop_attention"]
    assert "not implemented" in told["memory_planning"]
    assert "no such thing" in told["pass fail"]

    # The folder has what was found, and its numbers are those of the model.
    kept = tmp_path / "kept"
    assert (kept / "command.txt").read_text() == f"{found.command}\n"
    content = json.loads((kept / "remedies.json").read_text())
    assert (content["best"], content["command"]) == ("pass fuse_sdpa", found.command)
    assert [row["role"] for row in content["remedies"]] == [*["remedy"] * 4, "confirmed"]
    model, x = transformer()
    with run(kept / "program.pte", x, iterations=1, trace=False, runner=RUNNER) as done:
        np.testing.assert_allclose(done.arrays[0][0], model(x).detach(), atol=1e-5)
        assert done.opened.program.methods[0].delegates


@pytest.mark.usefixtures("replayed")
def test_an_interrupted_search_goes_on(
    plant: Plant, tried: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(XNNPACK, ("threads", {"threads": 1}))
    seen: list[str] = []

    def interrupt(words: str, _: Any) -> None:
        seen.append(words)
        if words == "backend xnnpack":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tried(linear, progress=interrupt)
    found = tried(linear, progress=lambda words, _: seen.append(words))
    assert found.best is not None and found.best.words == "backend xnnpack"
    assert seen[:3] == ["baseline", "backend xnnpack", "threads 1"]
    assert seen[-1].startswith("again: ")
    assert len(seen) == len(set(seen))

    def measures(*_: Any, **__: Any) -> None:
        raise AssertionError("measured twice")

    for name in ("rounds", "_attempt"):
        monkeypatch.setattr(Laboratory, name, measures)
    again = tried(linear, progress=measures)
    assert again.table().values == found.table().values
    with pytest.raises(MismatchError, match="another options"):
        tried(linear, backend="xnnpack")
    with pytest.raises(UsageError, match="from an earlier search"):
        tried(linear, resume=False)


@pytest.mark.usefixtures("replayed")
def test_a_budget_ends_the_trials(plant: Plant, tried: Any) -> None:
    plant(XNNPACK, ("threads", {"threads": 1}))
    found = tried(linear, effort=Effort(budget=1e-6))
    assert set(verdicts(found).values()) == {"not tried"}
    assert found.best is found.confirmation is None
    assert found.command == "etscope export MODEL --backend portable"
    assert any(note.startswith("2 not tried: the budget") for note in found.table().notes)
    assert any("No change that was tried" in note for note in found.table().notes)
    with pytest.raises(UsageError, match="more than 0 seconds"):
        tried(linear, effort=Effort(budget=0))


def test_a_baseline_that_fails(tried: Any) -> None:
    with pytest.raises(MissingDataError, match="the unchanged model cannot be exported"):
        tried(linear, passes=["fuse_sdpa"])


MODEL = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()), torch.randn(64, 256)
"""


def test_the_command(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    """By the rules as they are: nothing is planted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    Path("slow_linear.py").write_text(MODEL)
    options = ["-X", "rounds=8", "-X", f"runner={RUNNER}", "--keep", "kept", "--budget", "5m"]
    code = main(["explain", "slow_linear.py:make", "--try", *options])
    out, err = capfd.readouterr()
    assert code == 0, err
    assert err.index("exporting and running it without") < err.index("backend xnnpack: measured")
    tried = json.loads(Path("kept/remedies.json").read_text())["remedies"]
    assert "not-delegated" in {row["finding"] for row in tried}
    last = out.strip().splitlines()[-1]
    assert last.startswith("etscope export slow_linear.py:make --backend xnnpack")
    assert main([*last.split()[1:], "--output", "best"]) == 0
    assert Path("best/model.pte").read_bytes() == Path("kept/program.pte").read_bytes()
    capfd.readouterr()
    assert main(["explain", "slow_linear.py:make", "--try", "--budget", "soon"]) == 2
    assert "not a length of time" in capfd.readouterr().err
    assert main(["explain", "nothing.etdp", "-X", "everything=true"]) == 2
    assert "-X everything is for --try" in capfd.readouterr().err
    assert main(["explain", "slow_linear.py:make"]) == 2
    assert "is a MODEL, not a run" in capfd.readouterr().err
