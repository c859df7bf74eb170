"""`etscope calibrate` on the runtime, with a small program: what is measured, and what is told when
something cannot be."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from etscope.analysis.calibration import CHAINS, DELEGATES, KERNELS, PRODUCTS, ROWS, executions_of
from etscope.cli import main
from etscope.errors import (
    EtscopeWarning,
    FormatError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.calibration import find_calibration, read_calibration
from etscope.formats.conditions import Conditions, conditions_here
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_schema import DelegateCall, KernelCall
from etscope.run import Place
from etscope.run._runner_host import HERE
from etscope.run.calibration import (
    CalibrationOptions,
    Machine,
    calibrate,
    find_program,
    this_machine,
)
from etscope.run.job import RESULT, Job
from tests.support.artifacts import artifacts
from tests.support.run.calibration import small_program

pytest.importorskip("executorch")

KIB = 1 << 10
QUICK = CalibrationOptions(runner="native", threads=(1,), rounds=2)


@pytest.fixture(scope="module")
def made() -> Path:
    return small_program()


@dataclass
class Small:
    """This machine with the memory for working sets of 64 KiB, and a place that fails in a group of
    methods, and tells times that no machine has measured: what a busy one measures of a long chain
    may be less than of a short one."""

    load: float = 0.0
    failing: tuple[str, ...] = ()

    def conditions(self) -> Conditions:
        return replace(conditions_here(), memory_available_bytes=256 * KIB, load=self.load)

    def missing(self, runner: str) -> str | None:
        return HERE.missing(runner)

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        if any(call.method.startswith(self.failing) for call in job.calls):
            raise RuntimeFailure("no kernel for it\nand more")
        HERE.execute(job, folder, runner, timeout)
        result = json.loads((folder / RESULT).read_text())
        for asked, call in zip(job.calls, result["calls"], strict=True):
            group, _, count = asked.method.rpartition("_")
            told = 1000 * int(count) if group in CHAINS else 100_000
            call["samples_ns"] = [told for _ in call["samples_ns"]]
        (folder / RESULT).write_text(json.dumps(result))

    def machine(self) -> Machine:
        place: Place = self
        return Machine(place, self.conditions, this_machine().device)


def calls(program: Program, method: str, kind: type) -> int:
    return sum(isinstance(one, kind) for one in program.method(method).instructions)


def test_the_methods_of_the_program(made: Path) -> None:
    program = read_pte(made)
    names = {method.name for method in program.methods}
    chains = {f"{group}_{count}" for group, counts in CHAINS.items() for count in counts}
    assert names == {"gemm_float32_64", *chains}
    assert {one.method for one in executions_of(names)} == names
    assert calls(program, "gemm_float32_64", DelegateCall) == 1
    assert calls(program, "adds_10", DelegateCall) == 1
    for group, kind in ((DELEGATES, DelegateCall), (KERNELS, KernelCall)):
        short, long = CHAINS[group]
        counts = [calls(program, f"{group}_{length}", kind) for length in (short, long)]
        assert counts[1] - counts[0] == long - short
    assert calls(program, f"{KERNELS}_{CHAINS[KERNELS][0]}", DelegateCall) == 0
    assert executions_of(["forward", "gemm_int3_5", "adds_0", "kernels"]) == []


@pytest.mark.parametrize("runner", ["native", "python"])
def test_a_machine_is_measured(made: Path, runner: str) -> None:
    told: list[tuple[int, int]] = []
    found = calibrate(
        made,
        replace(QUICK, runner=runner),
        machine=Small().machine(),
        told=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 2), (2, 2)]
    assert found.runner == runner
    assert found.device.cores and found.before and found.after
    (peaks,) = found.all_peaks
    assert peaks.threads == 1
    assert peaks.dtypes == ("float32",)
    assert peaks.peak_flops("float32") == pytest.approx(2 * ROWS * 64 * 64 * PRODUCTS * 1e4)
    assert [point.working_set_bytes for point in peaks.memory] == [16 * KIB, 64 * KIB]
    assert peaks.dispatch_ns == peaks.delegate_call_ns == pytest.approx(1000)
    assert all(one.rounds == 2 for _, one in peaks.estimates())


def test_what_fails_is_left_out_and_said(made: Path) -> None:
    found = calibrate(made, QUICK, machine=Small(failing=("gemm",)).machine())
    (peaks,) = found.all_peaks
    assert peaks.gemm == ()
    assert peaks.memory and peaks.dispatch
    assert "gemm float32 could not be measured: no kernel for it" in found.marks
    with pytest.raises(RuntimeFailure, match="no kernel"):
        calibrate(made, QUICK, machine=Small(failing=("gemm", *CHAINS)).machine())


def test_other_work_is_said(made: Path) -> None:
    cores = conditions_here().cores or 1
    idle, busy = (
        calibrate(made, replace(QUICK, rounds=1), machine=Small(load=load * cores).machine())
        for load in (0.1, 0.9)
    )
    assert not any("other work" in mark for mark in idle.marks)
    assert any(f"on {cores} cores" in mark for mark in busy.marks)


def test_wrong_programs_and_options(made: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(made.read_bytes()[:500])
    for options, words in (
        (CalibrationOptions(rounds=0), "at least one round"),
        (CalibrationOptions(threads=(0,)), "at least one thread"),
    ):
        with pytest.raises(UsageError, match=words):
            calibrate(made, options)
    with pytest.raises(FormatError):
        calibrate(broken)
    with pytest.raises(MissingDataError, match="no method that measures a peak"):
        calibrate(artifacts("cnn_portable").pte)


def test_a_missing_program_is_made_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = [(made.read_bytes(), {"8da4w": "no kernel"})]
    monkeypatch.setattr("etscope.bridge.calibration.calibration_program", content.pop)
    with pytest.warns(EtscopeWarning, match="no products in 8da4w: no kernel"):
        path = find_program(tmp_path / "board/calibration.pte")
    assert path.read_bytes() == made.read_bytes()
    assert find_program(path) == path


@pytest.mark.filterwarnings("ignore::etscope.errors.EtscopeWarning")  # of a busy machine
def test_the_command(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("etscope.analysis.calibration.WORKING_SETS", (16 * KIB, 64 * KIB))
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setattr("etscope.formats.calibration.calibrations_folder", lambda: folder)
    words = ["calibrate", "--program", str(made), "-X", "runner=native", "-X", "rounds=1"]
    file, out = tmp_path / "mine.json", tmp_path / "out.json"
    given = [*words, "--threads", "1", "--save", str(file), "-f", "json", "-o", str(out)]
    assert main(given) == 0
    assert not folder.exists()
    kept = read_calibration(file)
    assert kept.peaks().threads == 1
    (report,) = json.loads(out.read_text())["reports"]
    assert report["sections"]["products"][0]["dtype"] == "float32"
    peak = report["sections"]["products"][0]["peak_GFLOP_s"]
    assert peak == pytest.approx(kept.peaks().peak_flops("float32") / 1e9)

    capsys.readouterr()
    assert main([*words, "--threads", "1"]) == 0
    shown = capsys.readouterr()
    assert "Matrix products" in shown.out
    assert f"kept in {folder}" in shown.err
    found = find_calibration()
    if conditions_here().cpu:
        assert found is not None and found.path is not None and Path(found.path).parent == folder
