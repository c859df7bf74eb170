"""Jobs of an iPhone by `xcrun devicectl`: a program in its place answers with recorded results, and
the app's part is done by the real runtime. No phone was here."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import DeviceLost, EtscopeError, LabError, RuntimeFailure
from etscope.formats.etdump.reader import read_etdump
from etscope.run.devicectl import Devicectl
from etscope.run.native import find_runner
from etscope_lab.worker.measure import answer_to
from lab_support.devices import ended
from lab_support.orders import ordered
from tests.support.artifacts import artifacts

NET = artifacts("cnn_portable")
BUNDLE = "org.pytorch.executorch.Bench"
# The forms of devicectl 397 and 518 (Xcode 16 and 26): a list of devices, and failures. What they
# name is made up.
DEVICE = {
    "capabilities": [],
    "connectionProperties": {
        "authenticationType": "manualPairing",
        "pairingState": "paired",
        "transportType": "wired",
        "tunnelState": "connected",
    },
    "deviceProperties": {
        "name": "Bench phone",
        "osVersionNumber": "17.3",
        "osBuildUpdate": "21D50",
    },
    "hardwareProperties": {
        "cpuType": {"name": "arm64e", "subType": 2, "type": 16777228},
        "marketingName": "iPhone 15 Pro",
        "platform": "iOS",
        "productType": "iPhone16,1",
        "udid": "00008130-0000000000000000",
    },
    "identifier": "00000000-1111-2222-3333-444444444444",
    "visibilityClass": "default",
}


def failed(domain: str, code: int, text: str, cause: Any = None, outcome: str = "failed") -> Any:
    about: dict[str, Any] = {"NSLocalizedDescription": {"string": text}}
    if cause is not None:
        about["NSUnderlyingError"] = {"error": cause["error"]}
    error = {"code": code, "domain": domain, "userInfo": about}
    return {"error": error, "info": {"jsonVersion": 2, "outcome": outcome, "version": "397.28"}}


CORE = "com.apple.dt.CoreDeviceError"
CHANNEL = "com.apple.CoreDevice.ControlChannelConnectionError"
GONE = failed(CHANNEL, 1, "Internal logic error: Connection was invalidated",
              failed("Network.NWError", 60, "Operation timed out"))  # fmt: skip
LOCKED = failed(CORE, 10002, "The application failed to launch.",
                failed("FBSOpenApplicationServiceErrorDomain", 1, "The request was denied.",
                       failed("FBSOpenApplicationErrorDomain", 7, "Locked")))  # fmt: skip
SECURITY = failed(CORE, 10002, "The application failed to launch.",
                  failed("FBSOpenApplicationErrorDomain", 3, "Security"))  # fmt: skip
NO_BUNDLE = failed(CORE, 3002, "Failed to install the app on the device.",
                   failed(CORE, 3000, "The item at Bench.app is not a valid bundle."))  # fmt: skip
TIMEOUT = failed(CORE, 1, "Exceeded command timeout", outcome="timeout")
REFUSED = failed(CORE, 7000, "The destination cannot be written")

XCRUN = r"""#!{python}
import json, os, re, shutil, signal, subprocess, sys, pathlib
home = pathlib.Path(r"{home}")
words = sys.argv[2:]
(home / "log").open("a").write(json.dumps(words) + "\n")
of_app = words[words.index("--") + 1:] if "--" in words else []
words = words[:words.index("--")] if "--" in words else words
value = lambda flag: words[words.index(flag) + 1]
verb = ".".join(word for word in words[: 2 if words[0] == "list" else 3])
def end(answer, code=0):
    pathlib.Path(value("--json-output")).write_text(json.dumps(answer))
    sys.exit(code)
fault = home / verb
if fault.exists():
    end(json.loads(fault.read_text()), 1)
done = lambda result: {{
    "info": {{"commandType": "devicectl." + verb, "jsonVersion": 2, "outcome": "success"}},
    "result": result}}
container = home / "container"
if verb == "list.devices":
    end(done({{"devices": json.loads((home / "devices").read_text())}}))
if verb == "device.copy.to":
    target = container / value("--destination")
    if "--remove-existing-content" in words:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(value("--source"), target)
    else:
        shutil.copyfile(value("--source"), target)
    end(done({{"source": value("--source")}}))
if verb == "device.copy.from":
    source = container / value("--source")
    if not source.exists():
        text = "Failed to retrieve the file node for " + value("--source")
        end({{"error": {{"code": 7000, "domain": "com.apple.dt.CoreDeviceError",
             "userInfo": {{"NSLocalizedDescription": {{"string": text}}}}}},
             "info": {{"outcome": "failed"}}}}, 1)
    shutil.copyfile(source, value("--destination"))
    end(done({{}}))
if verb == "device.process.launch":
    print("Launched application with {bundle} bundle identifier.", flush=True)
    print("Waiting for the application to terminate...", flush=True)
    code = subprocess.run([r"{runner}", *of_app], cwd=container / "Documents/etscope").returncode
    if code < 0:
        print("App terminated due to signal %d." % -code)
        sys.exit(1)
    end(done({{"process": {{"processIdentifier": 1802}}}}), code)
end(done({{}}))
"""
# The words that the app gets. Its runner here has the flags of etscope-runner.
START = [
    *("--program", "{program}", "--etdump-out", "{dump}", "--method", "{method}"),
    *("--iterations", "{iterations}", "--warmup", "{warmup}"),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the phone: its answers to commands, its container and the log."""
    return phone(tmp_path, str(find_runner()))


def phone(tmp_path: Path, runner: str) -> Path:
    found = tmp_path / "phone"
    (found / "container/Documents").mkdir(parents=True)
    (found / "devices").write_text(json.dumps([DEVICE]))
    xcrun = found / "xcrun"
    xcrun.write_text(XCRUN.format(python=sys.executable, home=found, bundle=BUNDLE, runner=runner))
    xcrun.chmod(0o755)
    return found


def options(home: Path, **more: str) -> dict[str, Any]:
    return {"device": "Bench phone", "bundle": BUNDLE, "xcrun": str(home / "xcrun"), **more}


def answer(folder: Path, home: Path, start: Any = START, **spec: Any) -> Any:
    app = {"start": start}
    device = {
        "name": "iphone",
        "driver": "devicectl",
        "options": {**options(home, install="Bench.app"), "app": app},
        "attributes": {},
    }
    spec = {"iterations": 3, "warmup": 1, "traced_iterations": 2, "runner": "auto", **spec}
    return answer_to(ordered(folder, {"model": NET.pte}, device=device, **spec))


def test_a_job_of_an_iphone(home: Path, tmp_path: Path) -> None:
    found = answer(tmp_path / "job", home)
    assert found["state"] == "done", found["error"]
    assert found["summary"]["latency"]["p50_ms"] > 0
    assert found["environment"]["device"]["model"] == "iPhone 15 Pro"
    assert read_etdump(tmp_path / "job/out/run.etdp").num_runs >= 2
    asked = [json.loads(line) for line in (home / "log").read_text().splitlines()]
    assert [one[:3] for one in asked[:2]] == [
        ["list", "devices", "--json-output"],
        ["device", "install", "app"],
    ]
    launch = next(one for one in asked if "launch" in one)
    assert launch[launch.index("--terminate-existing") + 1 :][:2] == [BUNDLE, "--"]
    assert list((home / "container/Documents/etscope").iterdir()) == []  # nothing is left


@pytest.mark.parametrize(
    ("verb", "said", "error"),
    [
        ("device.copy.to", GONE, DeviceLost),
        ("device.copy.to", REFUSED, RuntimeFailure),
        ("device.process.launch", LOCKED, DeviceLost),
        ("device.process.launch", SECURITY, LabError),
        ("device.process.launch", TIMEOUT, DeviceLost),
        ("device.install.app", NO_BUNDLE, LabError),
        ("list.devices", failed(CORE, 3, "Developer Mode is turned off."), DeviceLost),
    ],
)
def test_whose_fault_it_is(
    home: Path, tmp_path: Path, verb: str, said: Any, error: type[EtscopeError]
) -> None:
    (home / verb).write_text(json.dumps(said))
    found = answer(tmp_path / "job", home)
    assert found["error_slug"] == error.slug, found["error"]
    assert found["state"] == ("device_lost" if error is DeviceLost else "failed")
    deepest = said["error"]
    while "NSUnderlyingError" in deepest["userInfo"]:
        deepest = deepest["userInfo"]["NSUnderlyingError"]["error"]
    assert deepest["userInfo"]["NSLocalizedDescription"]["string"] in found["error"]


def test_an_app_that_dies_or_never_ends(tmp_path: Path) -> None:
    home = phone(tmp_path / "one", "/bin/sh")
    found = answer(tmp_path / "job", home, ["-c", "kill -9 $$", "{dump}"])
    assert (found["state"], found["interruption"]) == ("failed", "killed"), found["error"]
    pid = tmp_path / "pid"
    start = ["-c", f"echo $$ >{shlex.quote(str(pid))}; exec sleep 1000", "{dump}"]
    found = answer(tmp_path / "again", home, start, timeout_seconds=5)
    assert found["state"] == "timeout", found["error"]
    assert ended(int(pid.read_text()))


def test_a_phone_that_is_not_there(home: Path) -> None:
    with pytest.raises(DeviceLost, match="does not list another"):
        Devicectl("iphone", options(home, device="another"))
    away = {**DEVICE, "connectionProperties": {"tunnelState": "unavailable"}}
    (home / "devices").write_text(json.dumps([away]))
    with pytest.raises(DeviceLost, match="unavailable"):
        Devicectl("iphone", options(home))
    (home / "xcrun").write_text(
        "#!/bin/sh\necho 'xcrun: error: unable to find devicectl' >&2; exit 72"
    )
    with pytest.raises(LabError, match="unable to find devicectl"):
        Devicectl("iphone", options(home))
