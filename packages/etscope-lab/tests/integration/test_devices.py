"""What every driver does, on devices of each: this machine, a real OpenSSH server, and the real adb
client with a scripted device behind it."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import MissingDependencyError, RuntimeFailure, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.run import run
from etscope_lab.devices.driver import Driver, driver_class, open_driver, runner_host
from etscope_lab.jobs.records import DeviceConfig
from etscope_lab.worker.conditions import read_conditions
from lab_support.devices import KINDS, device_of, ended, written
from tests.support.artifacts import artifacts
from tests.support.warm import warm_python

_TOO_SMALL = 70_000  # bytes, of one execution of cnn_portable
ODD = ["a b", "$(touch stolen)", "`id`", "; touch stolen", "it's", 'say "x"', "*", "\\n", "", "é"]


@pytest.fixture(scope="module", params=KINDS)
def config(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeviceConfig]:
    with device_of(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def device(config: DeviceConfig) -> Iterator[Driver]:
    with closing(open_driver(config)) as found:
        yield found


def test_attributes(device: Driver, config: DeviceConfig) -> None:
    found = device.attributes()
    assert found["arch"] == platform.machine()
    assert found["driver"] == config.driver
    assert int(found["cores"]) >= 1
    assert int(found["memory_bytes"]) > 1 << 20
    assert found["kernel"] == f"{platform.system()} {platform.release()}"
    assert "native" in found["runners"].split(",")
    assert found["os"] == ("android" if config.driver == "adb" else "linux")


def test_what_a_command_says_and_how_it_ends(device: Driver) -> None:
    for code in (0, 7, 128, 255):
        done = device.call(["sh", "-c", f"echo said; echo too >&2; exit {code}"], 60)
        assert (done.code, done.log.split()) == (code, ["said", "too"])
    assert device.call(["sh", "-c", "kill -SEGV $$"], 60).code == -signal.SIGSEGV
    assert device.call(["sh", "-c", 'exec "$@"', "sh", "no-such-program"], 60).code == 127
    # Words get there as they are.
    done = device.call(["printf", "<%s>", *ODD], 60)
    assert done.log == "".join(f"<{word}>" for word in ODD)
    assert device.call(["ls"], 60).log.count("stolen") == 0


def test_the_time_is_up_for_all_children(device: Driver, tmp_path: Path) -> None:
    script = 'sleep 1000 & echo $! $$ >"$1"; echo begun; wait'
    said = ""
    for seconds in (1, 4, 16, 64, 256):  # a busy machine does not get there in a second
        pids = tmp_path / f"pids-{seconds}"
        with pytest.raises(TimeoutError) as caught:
            device.call(["sh", "-c", script, "sh", str(pids)], seconds)
        said = str(caught.value)
        if "begun" in said:
            break
    assert "begun" in said, said
    for pid in written(pids).split():
        assert ended(int(pid))


_ASKS = """
import json, sys
from etscope_lab.devices.driver import open_driver
from etscope_lab.jobs.records import DeviceConfig
device = open_driver(DeviceConfig(**json.loads(sys.argv[1])))
device.call(["sh", "-c", 'echo $$ >"$1"; exec sleep 1000', "sh", sys.argv[2]], None)
"""


def test_a_command_ends_with_who_asked_for_it(config: DeviceConfig, tmp_path: Path) -> None:
    line = [warm_python(), "-c", _ASKS, json.dumps(asdict(config)), str(tmp_path / "pid")]
    asking = subprocess.Popen(line)
    try:
        pid = int(written(tmp_path / "pid"))
    finally:
        asking.kill()
        asking.wait()
    assert ended(pid)


def test_files_there_and_back(device: Driver, tmp_path: Path) -> None:
    contents = {
        "all.bin": bytes(range(256)) * 5000,
        "lines.txt": b"a\r\nb\n\n",
        "empty": b"",
        "sub/in it's own.txt": b"deep",
    }
    files = {}
    for number, (name, data) in enumerate(contents.items()):
        path = tmp_path / f"local {number}"
        path.write_bytes(data)
        files[path] = name
    device.push(files)
    back = tmp_path / "back"
    back.mkdir()
    device.pull([*contents, "not there", "sub/neither"], back)
    found = {path.name: path.read_bytes() for path in back.iterdir()}
    assert found == {Path(name).name: data for name, data in contents.items()}


def test_reading(device: Driver, tmp_path: Path) -> None:
    found = device.read(["/proc/loadavg", "/proc/sys/kernel/os*", "/proc/no/such", "/proc"])
    assert sorted(found) == [
        "/proc/loadavg",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/ostype",
    ]
    assert found["/proc/sys/kernel/osrelease"].strip() == platform.release()
    assert read_conditions(device).memory_bytes


def test_the_folder_goes_at_the_end(config: DeviceConfig, tmp_path: Path) -> None:
    device = open_driver(config)
    try:
        (tmp_path / "file").write_bytes(b"x")
        device.push({tmp_path / "file": "file"})
        folder = Path(device.call(["pwd"], 60).log.strip())
        assert (folder / "file").is_file()
    finally:
        device.close()
    assert not folder.exists()
    device.close()  # twice is as good as once


# -- a job's runs, which are the same everywhere


def _place(device: Driver) -> Any:
    return runner_host(device, device.attributes())


def test_a_run_with_values(device: Driver) -> None:
    made = artifacts("cnn_portable")
    options: dict[str, Any] = {
        "runner": "native",
        "iterations": 3,
        "warmup": 1,
        "profiled_iterations": 2,
        "debug_level": "intermediate_outputs",
    }
    with (
        run(made.pte, made.inputs_pt, place=_place(device), **options) as there,
        run(made.pte, made.inputs_pt, **options) as here,
    ):
        np.testing.assert_array_equal(there.arrays[0][0], here.arrays[0][0])
        assert len(there.latency.samples_ns) == 3
        assert read_etdump(there.profile_path).num_runs == read_etdump(here.profile_path).num_runs
        assert there.debug_buffer_path is not None
        assert here.debug_buffer_path is not None
        assert there.debug_buffer_path.stat().st_size == here.debug_buffer_path.stat().st_size


def test_a_run_of_the_python_runner(config: DeviceConfig) -> None:
    if config.driver == "adb":
        pytest.skip("phones have no Python; the way is the same as over ssh")
    python = warm_python() if config.driver == "host" else sys.executable
    options = {**config.options, "python": python}
    made = artifacts("cnn_portable")
    size = _TOO_SMALL if config.driver == "host" else None  # run again there, with a larger one
    with (
        closing(open_driver(DeviceConfig("one", config.driver, options))) as device,
        run(
            made.pte,
            made.inputs_pt,
            place=_place(device),
            runner="python",
            iterations=1,
            warmup=0,
            separate=False,
            debug_level="intermediate_outputs",
            debug_buffer_size=size,
        ) as done,
    ):
        assert done.debug_buffer_path is not None
        assert _TOO_SMALL < done.debug_buffer_path.stat().st_size < 2 * _TOO_SMALL
        expected = np.load(made.outputs)
        np.testing.assert_array_equal(done.arrays[0][0], expected[expected.files[0]])
        result = done.passes["values"].result
        assert result.runner == "python"
        assert (result.peak_rss_bytes or 0) >= (result.rss_before_bytes or 0) > 0


def test_errors_of_the_runner_come_back(device: Driver, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pte"
    data = artifacts("cnn_portable").pte.read_bytes()
    damaged.write_bytes(data.replace(b"aten::convolution", b"aten::convolutiom"))
    with pytest.raises(RuntimeFailure, match="no kernel for aten::convolutiom"):
        run(damaged, place=_place(device), runner="native", trace=False)


def test_a_run_that_takes_too_long(device: Driver) -> None:
    program, endless = artifacts("cnn_portable").pte, {"iterations": 1_000_000, "trace": False}
    with pytest.raises(RuntimeFailure, match=r"did not end within 1 s and was stopped"):
        run(program, place=_place(device), runner="native", timeout=1, **endless)


def test_a_runner_that_is_not_there(tmp_path: Path) -> None:
    with device_of("ssh", tmp_path) as config:
        options = {**config.options, "push_runner": None, "python": "/no/python"}
        with closing(open_driver(DeviceConfig("bare", "ssh", options))) as device:
            assert device.attributes()["runners"] == ""
            with pytest.raises(MissingDependencyError, match="the device has no python runner"):
                run(artifacts("cnn_portable").pte, place=_place(device), trace=False)
            with pytest.raises(MissingDependencyError, match="bare has no native runner"):
                device.runner("native")


def test_a_pushed_runner_stays_and_that_of_another_user_is_not_run(tmp_path: Path) -> None:
    def runner(config: DeviceConfig) -> Path:
        with closing(open_driver(config)) as device:
            [word] = device.runner("native")
        return Path(word)

    with device_of("ssh", tmp_path) as config:
        program = runner(config)
        assert runner(config) == program
        assert os.access(program, os.X_OK)
        folder = program.parents[1]
        assert [path.name for path in (tmp_path / "device").iterdir()] == [folder.name]
        if os.getuid() != 0:
            pytest.skip("only root can give files away")
        for path in (folder, program):
            os.chown(path, 12345, 12345)
            with pytest.raises(RuntimeFailure, match="belongs to another user there"):
                runner(config)
            os.chown(path, 0, 0)


# -- which driver


def test_drivers_of_ones_own_and_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver_class("lab_support.simulated_device:Simulated").__name__ == "Simulated"
    installed = tmp_path / "etscope_pigeon-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: etscope-pigeon\nVersion: 1.0\n"
    )
    (installed / "entry_points.txt").write_text(
        "[etscope.drivers]\npigeon = etscope_pigeon.driver:Pigeon\n"
    )
    (tmp_path / "etscope_pigeon").mkdir()
    (tmp_path / "etscope_pigeon" / "driver.py").write_text("class Pigeon: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert driver_class("pigeon").__module__ == "etscope_pigeon.driver"
    with pytest.raises(UsageError, match="hawk") as caught:
        driver_class("hawk")
    assert "adb, devicectl, host, pigeon, ssh" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("telepathy", UsageError, "unknown driver 'telepathy'"),
        ("no.such.package:Driver", MissingDependencyError, "No module named 'no'"),
        ("etscope_lab.devices.host:Guest", MissingDependencyError, "no attribute 'Guest'"),
    ],
)
def test_a_driver_that_is_not_there(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        driver_class(name)


@pytest.mark.parametrize(
    ("driver", "options", "said"),
    [
        ("host", {"prot": 1}, "has no option prot"),
        ("host", {"runner": "/no/such"}, "not a program of this machine"),
        ("ssh", {}, "needs the option host"),
        ("ssh", {"host": "-oProxyCommand=touch stolen"}, "cannot be"),
        ("ssh", {"host": "a b"}, "not a host"),
        ("ssh", {"host": "board", "user": "x;y"}, "not a user"),
        ("ssh", {"host": "board", "port": "22"}, "is int, not '22'"),
        ("ssh", {"host": "board", "port": True}, "is int, not True"),
        ("ssh", {"host": "board", "identity": "/no/key"}, "identity of the driver ssh not found"),
        ("ssh", {"host": "board", "push_runner": "/no/runner"}, "no etscope-runner"),
        (
            "ssh",
            {"host": "b", "runner": "/x", "push_runner": "/y"},
            "exclude each other",
        ),
        ("adb", {"serial": "a b"}, "not a serial number"),
        ("adb", {"folder": "/x\n/y"}, "cannot be"),
    ],
)
def test_options_that_make_no_sense(driver: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_driver(DeviceConfig("one", driver, options))
