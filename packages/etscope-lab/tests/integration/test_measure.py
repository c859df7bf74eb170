"""The process that measures: real programs on this machine, and every way that a job can end."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.statistics.compare_samples import Policy
from etscope.bundled_program import bundle_cases
from etscope.errors import RuntimeFailure, UsageError
from etscope.formats.calibration import (
    CalibratedDevice,
    Calibration,
    Estimate,
    Peaks,
    find_calibration,
    write_calibration,
)
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program.pte import program_fingerprint
from etscope.formats.run_json import read_run_json
from etscope.run import run
from etscope_lab.comparison.ab import SIDES, Round, judge
from etscope_lab.jobs.records import statistics_of
from etscope_lab.worker import measure
from etscope_lab.worker.measure import answer_to, disk_is_full, main
from lab_support import orders
from lab_support.devices import ended
from lab_support.orders import HOST
from lab_support.simulated_device import DRIVER
from tests.support.artifacts import artifacts
from tests.support.rogue_programs import aborting, endless
from tests.support.waiting import PATIENCE, until

ordered = partial(orders.ordered, iterations=3, warmup=1, traced_iterations=2)


def written(folder: Path, name: str) -> Any:
    return json.loads((folder / "out" / name).read_text())


# -- what is measured


def test_a_benchmark(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    files = {"model": made.pte, "etrecord": made.etrecord, "inputs": made.inputs_pt}
    attributes = {"room": "4.12"}
    ordered(tmp_path, files, device={**HOST, "attributes": attributes}, iterations=20)
    line = [sys.executable, "-m", "etscope_lab.worker.measure", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["state"], answer["error"], answer["error_slug"]) == ("done", "", "")
    assert "21 executions on the native runner, recording nothing" in done.stderr
    assert done.stdout == ""

    facts = written(tmp_path, "run.json")
    assert facts["program"] == made.pte.name
    assert facts["inputs"] == "inputs.npz"
    assert facts["conditions"]["cores"] and facts["conditions"]["cpus"]
    assert facts["memory"]["runner"] == "native"
    untraced, traced = facts["latencies"]
    assert (untraced["traced"], len(untraced["samples_ns"])) == (None, 20)
    assert (traced["traced"], len(traced["samples_ns"])) == ("times", 2)
    summary = answer["summary"]
    times = (untraced["samples_ns"], untraced["load_ns"], untraced["first_ns"])
    assert summary["latency"] == pytest.approx(statistics_of(*times))
    assert summary["traced_p50_ms"] == pytest.approx(np.median(traced["samples_ns"]) / 1e6)
    assert (summary["method"], summary["backend"]) == ("forward", "portable")
    memory = summary["memory"]
    assert memory["peak_rss_bytes"] > memory["rss_before_bytes"] > 1 << 20

    assert read_etdump(tmp_path / "out" / "run.etdp").num_runs == 2 + 1  # and that of loading
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "conditions.json",
        "inputs.npz",
        "outputs.npz",
        "run.etdp",
        "run.json",
    ]
    readings = written(tmp_path, "conditions.json")
    # Before, after each of the two runs, and at the end; more of a run that takes a second.
    assert len(readings) >= 4
    assert all(one["load"] is not None and one["memory_bytes"] for one in readings)
    environment = answer["environment"]
    assert environment["device"]["room"] == "4.12"
    assert environment["device"]["cores"]
    assert environment["runner"] == "native"
    assert environment["program_sha256"] == program_fingerprint(made.pte.read_bytes())


def test_a_sustained_load_is_watched(tmp_path: Path) -> None:
    files = {"model": artifacts("cnn_xnnpack").pte}
    answer = answer_to(ordered(tmp_path, files, threads=1, duration_seconds=2.5))
    assert answer["state"] == "done"
    found = answer["summary"]["sustained"]
    times = written(tmp_path, "run.json")["latencies"][0]["samples_ns"]
    assert found["executions"] == answer["summary"]["latency"]["iterations"] == len(times) > 100
    assert found["seconds"] == pytest.approx(sum(times) / 1e9)
    # Whatever else the machine does: executions are as many as fill the time at its best.
    assert found["seconds"] > 1.5
    assert found["verdict"] in ("steady", "slower", "faster", "cannot tell")
    during = [one for one in written(tmp_path, "conditions.json") if "execution" in one]
    placed = [one["execution"] for one in during]
    assert placed == sorted(set(placed)) and 1 <= placed[0] <= placed[-1] <= len(times)
    assert all(one["busy_s"] > 0 for one in during)


def test_values_are_recorded_in_a_run_of_their_own(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    answer = answer_to(
        ordered(tmp_path, {"model": made.pte}, debug_level="intermediate_outputs", metrics=[])
    )
    assert answer["state"] == "done"
    assert answer["summary"].keys() == {"method", "backend", "traced_p50_ms"}
    assert answer["summary"]["backend"] == "XnnpackBackend"
    assert {"run.etdp", "values.etdp", "debug.bin"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_the_calibration_of_the_device_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = artifacts("cnn_xnnpack")
    file = tmp_path / "mine.json"
    peaks = (Peaks(1, dispatch=Estimate(70.0, 69.0, 71.0, 9)),)
    at = datetime(2026, 5, 1, tzinfo=timezone.utc)
    device = CalibratedDevice(name="host")
    kept = Calibration(device, "native", "1.4.0", "1.5.1", at, peaks)
    write_calibration(kept, file)
    monkeypatch.setenv("ETSCOPE_CALIBRATION", str(file))
    job = ordered(tmp_path, {"model": made.pte}, traced_iterations=0)
    answer = answer_to(job)
    assert answer["state"] == "done" and "traced_p50_ms" not in answer["summary"]
    assert not (tmp_path / "out" / "run.etdp").exists()
    monkeypatch.delenv("ETSCOPE_CALIBRATION")
    found = find_calibration(read_run_json(tmp_path / "out" / "run.json"))
    assert found is not None and found.all_peaks == peaks

    file.write_text("{}")
    monkeypatch.setenv("ETSCOPE_CALIBRATION", str(file))
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "files")
    answer = answer_to(ordered(tmp_path, {"model": made.pte}, traced_iterations=0))
    assert answer["state"] == "done"
    assert any(mark.startswith("no calibration: 'schema' is missing") for mark in answer["marks"])


# -- accuracy


def test_numerics_against_the_record(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    files = {"model": made.pte, "etrecord": made.etrecord}
    answer = answer_to(ordered(tmp_path, files, kind="accuracy", traced_iterations=0))
    assert answer["state"] == "done", answer["error"]
    found = answer["summary"]["numerics"]
    assert found["fine"]
    assert found["compared"] > 3
    assert found["worst"] > 60  # dB
    assert found["worst_op"].startswith("aten.")
    assert (tmp_path / "out" / "run.etdp").exists()


def test_expected_outputs_of_a_bundle(tmp_path: Path) -> None:
    program = artifacts("cnn_portable").pte
    with run(program, runner="native", trace=False, seed=3) as done:
        inputs, outputs = done.calls[0].inputs, done.arrays[0]
    wrong = tuple(one + 1 for one in outputs)
    bundle = tmp_path / "cases.bpte"
    cases = {"forward": [(inputs, outputs), (inputs, wrong)]}
    bundle.write_bytes(bundle_cases(program.read_bytes(), cases))
    folder = tmp_path / "job"
    folder.mkdir()
    answer = answer_to(ordered(folder, {"model": bundle}, kind="accuracy"))
    assert answer["state"] == "done", answer["error"]
    assert answer["summary"]["verification"] == {"passed": 1, "failed": 1}
    assert answer["summary"]["latency"]["iterations"] == 2 * 3  # of both cases
    assert any(mark.startswith("no numerics: the job has no ETRecord") for mark in answer["marks"])


# -- A/B


def test_an_ab_job(tmp_path: Path) -> None:
    model, baseline = artifacts("cnn_xnnpack").pte, artifacts("cnn_portable").pte
    files = {"model": model, "baseline": baseline}
    answer = answer_to(ordered(tmp_path, files, kind="ab", rounds=4, iterations=5, threads=1))
    assert answer["state"] == "done", answer["error"]
    summary = answer["summary"]
    assert summary["latency"]["iterations"] == 4 * 5
    runs = written(tmp_path, "ab.json")["runs"]
    rounds = [
        Round(one["round"], one["first"], {side: tuple(one[f"{side}_ns"]) for side in SIDES})
        for one in runs
    ]
    policy = Policy(summary["ab"]["min_effect"], summary["ab"]["confidence"])
    assert summary["ab"]["relative"] == pytest.approx(judge(rounds, policy).relative)
    for side in SIDES:
        assert [len(one[f"{side}_ns"]) for one in runs] == [5] * 4
    programs = {written(tmp_path, f"{of}run.json")["program_sha256"] for of in ("", "baseline.")}
    assert len(programs) == 2
    for name in ("run.etdp", "baseline.run.etdp"):
        assert read_etdump(tmp_path / "out" / name).num_runs == 2 + 1


# -- limits


def test_a_number_over_its_limit_is_no_result(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    answer = answer_to(ordered(tmp_path, {"model": made.pte}, limits={"max_cv": 1e-9}))
    assert answer["state"] == "invalid"
    assert answer["error"].startswith("the steady runs vary by ")
    assert answer["summary"]["latency"]["p50_ms"] > 0  # to look at
    assert (tmp_path / "out" / "run.etdp").exists()


def simulated(folder: Path, *faults: str) -> dict[str, Any]:
    control = folder / "control"
    control.mkdir()
    for fault in faults:
        (control / fault).touch()
    options = {"control": str(control), "artifact": str(artifacts("cnn_portable").folder)}
    return {"name": "simulated", "driver": DRIVER, "options": options, "attributes": {}}


@pytest.mark.parametrize("strict", [True, False])
def test_what_the_device_does_not_show(tmp_path: Path, strict: bool) -> None:
    limits = {"max_temperature_c": 50, "strict": strict}
    device = simulated(tmp_path)
    made = artifacts("cnn_portable")
    ordered(tmp_path, {"model": made.pte}, device=device, limits=limits, runner="python")
    answer = answer_to(tmp_path)
    said = "the temperature cannot be read, so its limit could not be checked"
    ran = (tmp_path / "control" / "log").exists()
    if strict:  # known before anything ran
        assert (answer["state"], answer["error"], ran) == ("invalid", said, False)
    else:
        assert ran
        assert said in answer["marks"]


# -- how a job ends


def test_a_model_that_aborts_the_runtime(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer = answer_to(ordered(tmp_path, {"model": aborting(tmp_path)}))
    assert (answer["state"], answer["error_slug"]) == ("failed", "runtime-failure")
    assert "the runtime gave up while executing method 'forward'" in answer["error"]
    assert "EValue is not a Tensor" in capfd.readouterr().err


def test_a_model_that_hangs_the_runtime(tmp_path: Path) -> None:
    answer = answer_to(ordered(tmp_path, {"model": endless(tmp_path)}, timeout_seconds=3))
    assert (answer["state"], answer["error"]) == ("timeout", "the job did not end within 3 s")


def test_the_time_of_a_job_is_that_of_all_its_runs(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    limits = {"timeout_seconds": 1, "cool_down_seconds": 2}
    assert answer_to(ordered(tmp_path, {"model": made.pte}, **limits))["state"] == "timeout"


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_execute(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    stolen = tmp_path / "stolen"
    evil = tmp_path / "evil.pt"
    evil.write_bytes(pickle.dumps(Evil(stolen)))
    answer = answer_to(ordered(tmp_path, {"model": made.pte, "inputs": evil}))
    assert answer["state"] == "user_error"
    assert not stolen.exists()


def _cut(path: Path, folder: Path) -> Path:
    damaged = folder / f"damaged{path.suffix}"
    damaged.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return damaged


@pytest.mark.parametrize(
    ("files", "spec", "slug", "said"),
    [
        ("damaged program", {}, "bad-file", "damaged.pte: "),
        ("damaged record", {}, "bad-file", "damaged.bin: "),
        ("foreign record", {}, "mismatch", "do not belong together"),
        ("wrong inputs", {}, "mismatch", "inputs do not fit the method 'forward'"),
        ("fine", {"method": "backward"}, "missing-data", "method 'backward'"),
        ("fine", {"kind": "accuracy"}, "missing-data", "nothing to compare"),
        ("dump", {}, "bad-file", "this is an ETDump"),
    ],
)
def test_what_the_submitter_has_to_mend(
    tmp_path: Path, files: str, spec: dict[str, Any], slug: str, said: str
) -> None:
    made, other = artifacts("cnn_portable"), artifacts("cnn_xnnpack")
    np.savez(tmp_path / "wrong.npz", x=np.zeros((1, 2), np.float32))
    given = {
        "damaged program": {"model": _cut(made.pte, tmp_path)},
        "damaged record": {"model": made.pte, "etrecord": _cut(made.etrecord, tmp_path)},
        "foreign record": {
            "model": other.pte,
            "etrecord": artifacts("transformer_portable").etrecord,
        },
        "wrong inputs": {"model": made.pte, "inputs": tmp_path / "wrong.npz"},
        "fine": {"model": made.pte},
        "dump": {"model": made.etdump},
    }[files]
    answer = answer_to(ordered(tmp_path, given, **spec))
    assert (answer["state"], answer["error_slug"]) == ("user_error", slug)
    assert said in answer["error"]
    assert str(tmp_path) not in answer["error"]


def test_a_backend_that_the_device_does_not_have(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.pte"
    data = artifacts("cnn_xnnpack").pte.read_bytes()
    foreign.write_bytes(data.replace(b"XnnpackBackend", b"StrangeBackend"))
    answer = answer_to(ordered(tmp_path, {"model": foreign}))
    assert answer["state"] == "failed"
    assert "needs the backend StrangeBackend" in answer["error"]


def test_a_device_that_is_lost(tmp_path: Path) -> None:
    device = simulated(tmp_path, "unplugged")
    made = artifacts("cnn_portable")
    answer = answer_to(ordered(tmp_path, {"model": made.pte}, device=device, runner="python"))
    assert (answer["state"], answer["error_slug"]) == ("device_lost", "device-lost")


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ({**HOST, "driver": "ssh"}, "the device host is not set up: the driver ssh needs"),
        ({**HOST, "driver": "pigeon"}, "unknown driver 'pigeon'"),
    ],
)
def test_a_device_that_is_not_set_up_is_not_the_submitters_fault(
    tmp_path: Path, device: dict[str, Any], said: str
) -> None:
    answer = answer_to(ordered(tmp_path, {"model": artifacts("cnn_portable").pte}, device=device))
    assert (answer["state"], answer["error_slug"]) == ("failed", "lab")
    assert said in answer["error"]


def test_an_order_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text("{}")
    assert main(str(tmp_path)) == 0
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["state"] == "failed"


def test_a_job_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    ordered(tmp_path, {"model": endless(tmp_path)})
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    guarded = "import sys; from etscope_lab.worker.subprocesses import main; main(sys.argv[1:])"
    measuring = subprocess.Popen(
        [sys.executable, "-c", guarded, "0", "etscope_lab.worker.measure", str(tmp_path)],
        stdin=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        found: list[Any] = []

        def runs() -> bool:
            for child in psutil.Process(measuring.pid).children():
                with suppress(psutil.NoSuchProcess):  # it has just ended
                    found.extend([child] if "etscope-runner" in child.name() else [])
            return bool(found)

        until(runs)
        measuring.send_signal(signal.SIGTERM)
        assert measuring.wait(PATIENCE) == 128 + signal.SIGTERM
    finally:
        measuring.kill()
        measuring.wait()
    assert ended(found[0].pid)
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "answer.json").exists()


def test_a_runner_on_a_full_disk_cannot_say_so(
    tmp_path: Path, small_disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is on the same disk, and empty."""
    small, said = small_disk("2m"), measure.say

    def fill(text: str) -> None:
        said(text)
        if text.startswith("run: ") and not (small / "filler").exists():
            with suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))

    monkeypatch.setattr(tempfile, "tempdir", str(small))
    monkeypatch.setattr(measure, "say", fill)
    answer = answer_to(ordered(tmp_path, {"model": artifacts("cnn_portable").pte}))
    assert (answer["state"], answer["interruption"]) == ("failed", "lab")
    assert "a disk is full" in answer["error"]


def test_a_full_disk_is_found_behind_other_errors() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    wrapped = UsageError("out.npz cannot be written")
    wrapped.__cause__ = full
    for error in (full, wrapped, RuntimeFailure("exit code 1", log=f"out: {full.strerror}")):
        assert disk_is_full(error)
    assert not disk_is_full(OSError(errno.EACCES, "denied"))
