"""`etscope matrix`: real programs in a table, and the choice among times that were planted."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope.analysis.statistics.compare_samples import Verdict
from etscope.cli import main
from etscope.errors import MissingDataError, UsageError
from etscope.formats.app_report import read_app_report
from etscope.search.devices import DeviceJob
from etscope.search.matrix import Choice, Matrix, _Part, matrix
from etscope.search.remedies import Laboratory, Setting, Trial
from tests.support.schemas import validate

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(64, 64)

    @staticmethod
    def example_inputs():
        return (torch.randn(8, 64, generator=torch.Generator().manual_seed(1)),)

    def forward(self, x):
        return torch.nn.functional.gelu(self.body(x))
"""


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    return tmp_path


def test_a_real_matrix_goes_on_and_its_rows_can_be_opened(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Interrupted after the first program, it measures the others only."""
    seen: list[str] = []
    options: dict[str, Any] = {"backends": ("xnnpack",), "threads": (1,), "rounds": 8}

    def stop(what: str, trial: Trial) -> None:
        seen.append(what)
        if what == "xnnpack float, 1 thread":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        matrix("net.py:Net", **options, progress=stop)
    found = matrix("net.py:Net", **options, progress=lambda what, _: seen.append(what))
    programs = ["xnnpack float", "xnnpack int8"]
    assert seen[:4] == [text for one in programs for text in (one, f"{one}, 1 thread")]
    assert len(seen) == len(set(seen))
    assert validate(found.to_json()) == "matrix"
    unquantized, int8 = found.cells
    assert int8.sqnr is not None and 10 < int8.sqnr < 60 < (unquantized.sqnr or 0)
    for cell in found.cells:
        assert cell.run is not None and cell.program is not None and cell.memory
        assert cell.low_ns is not None and cell.high_ns is not None
        assert cell.low_ns <= (cell.time_ns or 0) <= cell.high_ns
        assert Path(cell.program).stat().st_size == cell.size
        assert cell.delegated == 1.0
    assert main(["explain", str(int8.run)]) == 0

    # The command goes on, too, and measures the new row only; the page has the rows and runs.
    capfd.readouterr()
    backends = ["--backend", "portable", "--backend", "xnnpack"]
    words = ["matrix", "net.py:Net", *backends, "-q", "int8", "--threads", "1"]
    assert main([*words, "-o", "matrix.html"]) == 0
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("portable int8: the backend 'portable' does not have a quantizer")
    assert told[1:] == ["in common 15 rounds: xnnpack int8, 1 thread: measured"]
    page = Path("matrix.html").read_text(encoding="utf-8")
    assert "xnnpack-int8-1" in page and "does not have a quantizer" in page


# -- the choice, from trials that were planted

FIVE = {"portable float": 8.0, "xnnpack float": 2.0, "xnnpack int8": 1.0}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Returns a function that makes a matrix of times in ms, by backend and scheme; nothing is
    exported or run. noise: the relative deviation of each round."""

    def make(
        times: Mapping[str, float],
        sqnr: Mapping[str, float | None] = {},
        noise: float = 0.005,
        **options: Any,
    ) -> Matrix:
        draw = random.Random(0)

        def name(setting: Setting) -> str:
            return f"{setting.export['backend']} {setting.export['quantize'] or 'float'}"

        def untimed(laboratory: Laboratory, setting: Setting) -> Trial:
            if name(setting) not in times:
                return Trial(failure="lower", detail="no such operator")
            return Trial(sqnr.get(name(setting), 100.0), 1000)

        def ns(setting: Setting) -> float:
            return 1e6 * times[name(setting)] * draw.gauss(1, noise)

        def rounds(_: Laboratory, sides: Sequence[Setting], seed: int, count: int) -> Any:
            return tuple(tuple(ns(side) for side in sides) for _ in range(count))

        def keep(_: Laboratory, setting: Setting, folder: Path, *__: Any, **___: Any) -> Any:
            folder.mkdir(parents=True)
            (folder / "run.json").write_text("{}")
            return type("Latency", (), {"samples_ns": np.full(10, ns(setting))})

        monkeypatch.setattr(Laboratory, "untimed", untimed)
        monkeypatch.setattr(Laboratory, "rounds", rounds)
        monkeypatch.setattr(Laboratory, "keep", keep)
        monkeypatch.setattr(Laboratory, "time", lambda _, setting, count: ns(setting))
        monkeypatch.setattr(_Part, "_of_program", lambda _, cell, __: replace(cell, memory=500))
        names = [one.split() for one in times]
        options.setdefault("backends", tuple(dict.fromkeys(one for one, _ in names)))
        options.setdefault("threads", (1,))
        return matrix((Net(), torch.ones(2)), folder=tmp_path / "kept", **options)

    return make


def choice(found: Matrix) -> Choice:
    (one,) = found.choices
    return one


def test_the_fastest_with_the_numbers_is_chosen(planted: Any) -> None:
    found = planted(FIVE, sqnr={"xnnpack int8": 12.0})
    chosen = choice(found)
    assert chosen.cell is not None and chosen.cell.words == "xnnpack float, 1 thread"
    assert "the fastest of 2 programs" in chosen.reason and chosen.ties == ()
    assert chosen.commands[0] == "etscope export MODEL --backend xnnpack"
    results = {cell.words: cell.result for cell in found.cells}
    assert results["xnnpack int8, 1 thread"] == "other numbers"
    assert results["portable int8"] == "cannot be lowered"
    (shown,) = (row for row in zip(found.table().values["backend"], found.table().values["result"],
                strict=True) if row[1] == "chosen")  # fmt: skip
    assert shown == ("xnnpack", "chosen")
    assert "portable int8: no such operator" in found.table().notes


def test_int8_is_chosen_when_its_numbers_suffice(planted: Any) -> None:
    chosen = choice(planted(FIVE, sqnr={"xnnpack int8": 30.0}))
    assert chosen.cell is not None and chosen.cell.words == "xnnpack int8, 1 thread"


@pytest.mark.parametrize("value", [None, math.nan, 19.9])
def test_unknown_numbers_are_not_chosen(planted: Any, value: float | None) -> None:
    found = planted({"xnnpack int8": 1.0}, sqnr={"xnnpack int8": value}, quantize=("int8",))
    assert choice(found).cell is None and "Nothing is chosen" in choice(found).reason
    assert found.cells[0].result == ("numbers unknown" if value is None else "other numbers")
    assert validate(found.to_json()) == "matrix"


def test_what_does_not_fit_is_not_chosen(planted: Any) -> None:
    found = planted(FIVE, fits=1400)
    assert {cell.result for cell in found.cells if cell.run} == {"too large"}
    assert "within 1.37 KiB" in choice(found).reason


def test_times_that_overlap_are_not_told_apart(planted: Any) -> None:
    """After three times as many rounds, too."""
    found = planted({"xnnpack float": 1.0, "xnnpack int8": 1.02}, noise=0.2)
    chosen = choice(found)
    assert chosen.cell is None and len(chosen.ties) == 2
    assert chosen.reason.startswith("Cannot tell which is fastest: ")
    assert chosen.commands == ()


def test_of_equal_times_the_better_numbers_are_chosen(planted: Any) -> None:
    times = {"xnnpack float": 1.0, "xnnpack int8": 1.0}
    chosen = choice(planted(times, sqnr={"xnnpack int8": 30.0}, noise=0.001))
    assert chosen.cell is not None and chosen.cell.quantize == "float"
    assert [one.quantize for one in chosen.ties] == ["int8"]


def test_programs_that_are_far_slower_keep_the_times_of_their_run(planted: Any) -> None:
    found = planted({"portable float": 50.0, "xnnpack float": 1.0}, noise=0.0, quantize=("float",))
    times = {cell.backend: cell.time_ns for cell in found.cells}
    assert times == {"portable": pytest.approx(5e7), "xnnpack": pytest.approx(1e6)}
    state = json.loads(Path(found.folder, "state.json").read_text())
    (key,) = (key for key in state["trials"] if "rounds:" in key)
    assert key == "in common 15 rounds: xnnpack float, 1 thread"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict.NO_DIFFERENCE, "Device phone. Chosen: xnnpack float"),  # of the better numbers
        (Verdict.REGRESSED, "Device phone. Chosen: xnnpack int8"),
        (Verdict.CANNOT_TELL, "Device phone. Cannot tell"),
    ],
)
def test_on_devices_of_a_lab_near_times_are_compared_by_an_ab_job(
    planted: Any, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, words: str
) -> None:
    times = {"portable float": 8.0, "xnnpack float": 1.02, "xnnpack int8": 1.0}
    begun, compared = [], []

    class Phones:
        def start(self, job: DeviceJob) -> None:
            begun.append(job.name)

        def run(self, job: DeviceJob, folder: Path) -> Sequence[float]:
            folder.mkdir(parents=True)
            (folder / "run.json").write_text("{}")
            return np.full(9, 1e6 * times[job.name.removeprefix("Net-").replace("-", " ")])

        def compare(self, job: DeviceJob, baseline: DeviceJob) -> Verdict:
            compared.append((job.name, baseline.name))
            return verdict

    monkeypatch.setattr("etscope.search.matrix.devices", Phones)
    sqnr = {"xnnpack int8": 30.0}
    found = planted(times, sqnr=sqnr, lab=("phone",), threads=())
    assert len(begun) == 3 and compared == [("Net-xnnpack-float", "Net-xnnpack-int8")]
    assert choice(found).reason.startswith(words)
    assert {cell.device for cell in found.cells if cell.run} == {"phone"}
    assert [cell.threads for cell in found.cells if cell.run] == [1, 1, 1]
    assert validate(found.to_json()) == "matrix"
    planted(times, sqnr=sqnr, lab=("phone",), threads=())
    assert len(begun) == 3 and len(compared) == 1  # it goes on


def test_records_of_the_benchmark_database(planted: Any, tmp_path: Path) -> None:
    found = planted({"xnnpack float": 2.0}, noise=0.0)
    records = [*found.records()]
    failures = [one for one in records if one["metric"]["name"] == "FAILURE_REPORT"]
    assert [one["model"]["backend"] for one in failures] == ["xnnpack_int8"]
    path = tmp_path / "one.json"
    path.write_text(json.dumps([one for one in records if one not in failures]))
    report = read_app_report(path)
    assert report.metrics["inference_latency(ms)"] == pytest.approx(2.0)
    assert (report.model, report.backend) == ("Net", "xnnpack_float")
    path.write_text(json.dumps(failures))
    with pytest.raises(MissingDataError, match="the job failed"):
        read_app_report(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantize": ("int3",)}, "unknown scheme 'int3'"),
        ({"threads": (0,)}, "at least 1"),
        ({"backends": ()}, "needs a backend"),
        ({"tolerance": math.nan}, "not NaN"),
        ({"contexts": (64,)}, "for a language model"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        matrix((Net(), torch.ones(2)), **options)
