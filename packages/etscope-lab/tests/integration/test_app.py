"""Jobs of devices with an app: a command on this machine, a board that prints its dump, and an
Android app behind the real adb client. The apps are scripts around the real runtime."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.run.app import App
from etscope.run.native import find_runner
from etscope_lab.worker.measure import answer_to
from lab_support import adb_device
from lab_support.orders import HOST, ordered
from tests.support.artifacts import artifacts

NET = artifacts("cnn_portable")
RUNNER = shlex.quote(str(find_runner()))
# As ExecuTorch's executor_runner is called; the shape of the input is the program's.
START = (
    f"{RUNNER} --program {{program}} --etdump-out {{dump}} --threads 2 --method {{method}} "
    "--iterations {iterations} --warmup {warmup} --input float32:1,3,16,16:{inputs}"
)


def answer(
    folder: Path, app: dict[str, Any], device: dict[str, Any] | None = None, **spec: Any
) -> Any:
    found = {"name": "phone", "driver": "host", "options": {}, "attributes": {}, **(device or {})}
    found["options"] = {**found["options"], "app": app}
    spec = {"iterations": 4, "warmup": 1, "traced_iterations": 2, "runner": "auto", **spec}
    return answer_to(ordered(folder, {"model": NET.pte}, device=found, **spec))


def test_a_command_of_this_machine(tmp_path: Path) -> None:
    found = answer(tmp_path / "job", {"start": START})
    assert found["state"] == "done", found["error"]
    latency = found["summary"]["latency"]
    assert 0 < latency["min_ms"] <= latency["p50_ms"]
    assert latency["load_ms"] > 0
    assert found["environment"]["runner"] == "app"
    assert "the app recorded a trace while it was timed" in found["marks"]
    assert read_etdump(tmp_path / "job/out/run.etdp").num_runs >= 2
    facts = json.loads((tmp_path / "job/out/run.json").read_text())
    assert [len(one["samples_ns"]) for one in facts["latencies"]] == [4, 2]


def test_values_that_an_app_logs(tmp_path: Path) -> None:
    start = f"{START.replace('--threads', '--debug-buffer-out {debug_buffer} --threads')}"
    start = start.replace("--threads", "--debug-level intermediate_outputs --threads")
    folder = ordered(
        tmp_path / "job",
        {"model": NET.pte, "etrecord": NET.etrecord},
        device={**HOST, "options": {"app": {"start": start}}},
        kind="accuracy", runner="app", iterations=2, warmup=1,
    )  # fmt: skip
    found = answer_to(folder)
    assert found["state"] == "done", found["error"]
    assert found["summary"]["numerics"]["fine"]  # so the app had the inputs of the job
    assert found["summary"]["numerics"]["compared"] > 3


BOARD = """
{runner}
echo "I [executorch:arm_executor_runner.cpp:484] method_allocator_used: 5120 / 65536"
echo "I [executorch:arm_perf_monitor.cpp:180] ethosu_pmu_cycle_cntr : 4096 (512.00 per inference)"
echo "#[RUN THIS]"
echo "echo \\"$(base64 -w0 {dump})\\" | base64 -d >etdump.bin"
echo "#[END]"
"""


def test_a_board_that_prints_its_dump(tmp_path: Path) -> None:
    """In place of FVP or a serial port: what they print."""
    start = BOARD.replace("{runner}", START)
    found = answer(tmp_path / "job", {"start": start, "dump": "-", "tick_ns": 40})
    assert found["state"] == "done", found["error"]
    dump = read_etdump(tmp_path / "job/out/run.etdp")
    assert dump.num_runs >= 2
    log = (tmp_path / "job/out/device.log").read_text()
    assert "method_allocator_used" in log
    facts = json.loads((tmp_path / "job/out/run.json").read_text())
    traced = facts["latencies"][1]["samples_ns"]
    names = [index for index, text in enumerate(dump.strings) if text == "Method::execute"]
    ticks = (dump.end - dump.start)[np.isin(dump.name, names)]
    assert traced == (40 * ticks).tolist()


@pytest.mark.parametrize(
    ("app", "state", "slug", "said"),
    [
        ({"start": "etscope-no-such-app --etdump {dump}"}, "failed", "lab", "cannot be started"),
        ({"start": "exit 9 # {dump}"}, "failed", "runtime-failure", "ended with exit code 9"),
        ({"start": "kill -SEGV $$ # {dump}"}, "failed", "runtime-failure", "SIGSEGV"),
        ({"start": "true # {dump}"}, "failed", "runtime-failure", "left no time of an execution"),
        ({"start": "echo no >{dump}"}, "failed", "runtime-failure", "file of the app is damaged"),
        ({"start": START.replace("{iterations}", "1")}, "failed", "runtime-failure", "not 5"),
        ({"start": "true {results}"}, "failed", "runtime-failure", "left no results"),
        ({"start": "sleep 1000 # {dump}"}, "timeout", "runtime-failure", "did not end"),
    ],
)
def test_whose_fault_it_is(
    tmp_path: Path, app: dict[str, Any], state: str, slug: str, said: str
) -> None:
    limit = 2 if state == "timeout" else 300
    found = answer(tmp_path / "job", app, timeout_seconds=limit)
    assert (found["state"], found["error_slug"]) == (state, slug), found["error"]
    assert said in found["error"]


def test_a_job_that_no_app_can_do(tmp_path: Path) -> None:
    for number, spec in enumerate(({"kind": "accuracy"}, {"kind": "generate"})):
        found = answer(tmp_path / f"job-{number}", {"start": START}, **spec)
        assert found["state"] == "user_error", found["error"]
    found = answer_to(ordered(tmp_path / "none", {"model": NET.pte}, runner="app"))
    assert found["error"] == "the device host has no app"


# -- an Android app, as ExecuTorch's minibench: started by `am`, results and dump by `run-as`

PACKAGE = "org.pytorch.minibench"
RESULTS = [
    {
        "benchmarkModel": {"name": "cnn", "backend": "portable", "quantization": "fp32"},
        "metric": metric,
        "actualValue": value,
        "targetValue": 0,
        "deviceInfo": {"device": "google", "arch": "Pixel 8", "os": "Android 14"},
    }
    for metric, value in (("avg_inference_latency(ms)", 2.5), ("model_load_time(ms)", 7.25))
]
ACTIVITY = f"am start -W -S -n {PACKAGE}/.BenchmarkActivity --es model_dir {{folder}}"
AM = """
home={home}; app=$home/{package}
case $1 in
force-stop)
  kill -9 -$(cat $home/pid) 2>/dev/null; rm -f $home/pid; echo stopped >>$home/log; exit 0 ;;
esac
if [ ! -d $app/files ]; then echo "Error type 3"; echo "Error: Activity does not exist."; exit; fi
dir=; iterations=3; warmup=1
while [ $# -gt 0 ]; do
  case $2 in model_dir) dir=$3 ;; num_iter) iterations=$3 ;; num_warm_up_iter) warmup=$3 ;; esac
  shift
done
case $(stat -c %a $dir) in *5) ;; *) echo "the app may not read $dir"; exit 0 ;; esac
setsid sh -c 'echo $$ >'$home/pid'; {work}; rm '$home/pid </dev/null >/dev/null 2>&1 &
while [ ! -e $home/pid ]; do sleep 0.01; done
echo "Status: ok"
"""
WORK = (
    "{runner} --program '$dir'/*.pte --etdump-out {home}/dump --method forward "
    "--iterations '$iterations' --warmup '$warmup' && cat {home}/dump >{home}/tmp/result.etdump "
    "&& printf %s {results} >'$app'/files/part && mv '$app'/files/part '$app'/files/results.json"
)


PM = """
case $1 in
path) [ -e {home}/base.apk ] && echo package:{home}/base.apk ;;
install)
  shift $(($# - 1)); echo installed >>{home}/installed
  if grep -q broken "$1"; then echo "Failure [INSTALL_PARSE_FAILED_NOT_APK]"; exit 1; fi
  cp "$1" {home}/base.apk ;;
esac
"""


@dataclass
class Phone:
    home: Path
    config: dict[str, Any]
    app: dict[str, Any]

    @property
    def left(self) -> list[str]:
        """What is left on the phone of a job."""
        places = (self.home / PACKAGE / "files", self.home / "tmp", self.home / "device" / "data")
        return [str(path) for place in places if place.exists() for path in place.iterdir()]


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[Phone]:
    yield from phone_with(tmp_path, WORK)


def phone_with(tmp_path: Path, work: str) -> Iterator[Phone]:
    if why := adb_device.missing():
        pytest.skip(why)
    home = tmp_path / "phone"
    (home / PACKAGE / "files").mkdir(parents=True)
    (home / "tmp").mkdir()
    (home / "device").mkdir()
    results = shlex.quote(json.dumps(RESULTS)).replace("'", "'\\''")
    work = work.format(runner=RUNNER, home=home, results=results) if "{" in work else work
    programs = {
        "am": AM.format(home=home, package=PACKAGE, work=work),
        "run-as": f'cd {home}/$1 && shift && exec "$@"',
        "pidof": f"cat {home}/pid",
        "pm": PM.format(home=home),
        "logcat": "echo 'F libc: Fatal signal 6 (SIGABRT) in tid 42'",
    }
    with adb_device.plugged_in(home / "device", **programs) as (_, options):
        app = {
            "package": PACKAGE,
            "start": f"{ACTIVITY} --ei num_iter {{iterations}} --ei num_warm_up_iter {{warmup}}",
            "results": "files/results.json",
            "dump": str(home / "tmp" / "result.etdump"),
        }
        yield Phone(home, {"driver": "adb", "options": options}, app)


def test_an_android_app(phone: Phone, tmp_path: Path) -> None:
    found = answer(tmp_path / "job", phone.app, phone.config)
    assert found["state"] == "done", found["error"]
    latency = found["summary"]["latency"]
    assert latency["load_ms"] == 7.25  # the app's own
    facts = json.loads((tmp_path / "job/out/run.json").read_text())
    assert [len(one["samples_ns"]) for one in facts["latencies"]] == [4, 2]
    assert read_etdump(tmp_path / "job/out/run.etdp").num_runs >= 2
    assert (phone.home / "log").read_text().split() == ["stopped", "stopped"]
    assert phone.left == []


def test_an_app_is_installed_once_and_again_after_a_change(phone: Phone, tmp_path: Path) -> None:
    package = tmp_path / "app.apk"
    app = {**phone.app, "install": str(package)}
    package.write_bytes(b"first")
    for number in range(2):
        found = answer(tmp_path / f"job-{number}", app, phone.config, traced_iterations=0)
        assert found["state"] == "done", found["error"]
    assert (phone.home / "base.apk").read_bytes() == b"first"
    assert (phone.home / "installed").read_text() == "installed\n"
    package.write_bytes(b"broken")
    found = answer(tmp_path / "broken", app, phone.config)
    assert (found["state"], found["error_slug"]) == ("failed", "lab")
    assert "app.apk cannot be installed: Failure [INSTALL_PARSE" in found["error"]


def test_an_app_without_a_tracer(phone: Phone, tmp_path: Path) -> None:
    app = {name: value for name, value in phone.app.items() if name != "dump"}
    found = answer(tmp_path / "job", app, phone.config)
    assert found["state"] == "done", found["error"]
    assert found["summary"]["latency"]["p50_ms"] == 2.5
    assert "traced_p50_ms" not in found["summary"]
    assert "the app gives only the mean of its executions" in found["marks"]


def test_an_app_that_crashes(tmp_path: Path) -> None:
    for phone in phone_with(tmp_path, "sleep 0.1"):
        found = answer(tmp_path / "job", phone.app, phone.config)
        assert (found["state"], found["error_slug"]) == ("failed", "runtime-failure")
        assert "ended before its results were complete: F libc: Fatal signal 6" in found["error"]
        assert phone.left == []


def test_an_app_that_is_not_installed_or_hangs(tmp_path: Path) -> None:
    for phone in phone_with(tmp_path, "sleep 1000"):
        found = answer(tmp_path / "job", phone.app, phone.config, timeout_seconds=4)
        assert found["state"] == "timeout"
        assert (phone.home / "log").read_text() == "stopped\n"
        (phone.home / PACKAGE / "files").rmdir()
        found = answer(tmp_path / "again", phone.app, phone.config)
        assert (found["state"], found["error_slug"]) == ("failed", "lab")
        assert "cannot be started: Error: Activity does not exist." in found["error"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("am start", "a mapping of options with `start`"),
        ({"start": "run"}, "leaves nothing"),
        ({"start": "run {dump}", "dmp": "x"}, "no option dmp"),
        ({"start": ["run", 1], "dump": "x"}, "are texts"),
        ({"start": "run {dump}", "tick_ns": 0}, "tick_ns is a number above 0"),
        ({"start": "run {dump}", "package": "a; rm -rf /"}, "not the name of an Android package"),
        ({"start": "run {dump}", "package": "org.app"}, "needs `results` or `dump`"),
        ({"start": "run {dump}", "install": "/no/such.apk"}, "goes with package"),
        (
            {"start": "x", "dump": "d", "package": "org.app", "install": "/no/such.apk"},
            "is not there",
        ),
    ],
)
def test_options_that_make_no_sense(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        App.of(given)
