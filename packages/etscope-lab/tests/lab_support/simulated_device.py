"""A device of the lab that is no device: as fast as it is told, and as faulty.

Its driver is named "lab_support.simulated_device:Simulated". It answers a job of the Python
runner with real files: the ETDump and the outputs that an artefact of `tests.support.artifacts`
holds. Faults are files in a folder, its option `control`, that a test puts there (`fault`) while
jobs run:

    unplugged       every call raises `DeviceLost`, until the file is gone
    lost-at-K       the K-th call of a driver unplugs it
    hang            executing never ends
    wait            executing does not end before the file is gone
    abort           the runner dies of SIGABRT
    kill-runner     the runner dies of SIGKILL
    kill-measuring  the process that measures is killed, as the runner begins
    kill-worker     the worker's process is killed, as the runner begins
    once-…          the same, and the file is gone when it has happened

The folder's `log` says when executions began and ended, and `overlap` when there were two at once.

Options: control; artifact, the folder of an artefact; seconds, of an execution of a runner.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etscope.errors import DeviceLost
from etscope_lab.devices.driver import Completed

DRIVER = "lab_support.simulated_device:Simulated"


class Simulated:
    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name = name
        self._control = Path(options["control"])
        self._artifact = Path(options["artifact"])
        self._seconds = float(options.get("seconds", 0.0))
        self._calls = 0
        self._worker = os.getppid()
        self._control.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="simulated-"))

    def attributes(self) -> dict[str, str]:
        self._may_be_lost()
        return {"arch": "simulated", "cores": "1", "runners": "python", "driver": "simulated"}

    def runner(self, kind: str) -> Sequence[str]:
        self._may_be_lost()
        return [kind]

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        self._may_be_lost()
        return {"/proc/loadavg": "0.10 0.10 0.10 1/100 1000\n"}

    def push(self, files: Mapping[Path, str]) -> None:
        self._may_be_lost()
        for source, name in files.items():
            shutil.copyfile(source, self._folder / name)

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        self._may_be_lost()
        job = json.loads((self._folder / "job.json").read_text())
        with self._alone():
            if self._fault("kill-worker"):
                if os.getppid() == self._worker:  # else it is gone, and that is somebody else
                    os.kill(self._worker, signal.SIGKILL)
                time.sleep(3600)  # this process is ended, as its worker is gone
            if self._fault("hang"):
                time.sleep(3600)
            if self._fault("abort"):
                return Completed(-signal.SIGABRT, "Check failed: simulated\n")
            if self._fault("kill-runner"):
                return Completed(-signal.SIGKILL, "")
            if self._fault("kill-measuring"):
                os.kill(os.getpid(), signal.SIGKILL)
            while self._fault("wait"):
                time.sleep(0.01)
            time.sleep(self._seconds)
            self._answer(job)
        return Completed(0, f"{self._name} ran\n")

    def pull(self, names: Sequence[str], folder: Path) -> None:
        self._may_be_lost()
        for name in names:
            if (self._folder / name).is_file():
                shutil.copyfile(self._folder / name, folder / name)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    # What a runner leaves behind.

    def _answer(self, job: Mapping[str, Any]) -> None:
        calls = [
            {
                "load_ns": 1000,
                "warmup_ns": [2_000_000] * call["warmup"],
                "samples_ns": [1_000_000 + 100 * n for n in range(call["iterations"])],
                "outputs": [self._output(number)],
            }
            for number, call in enumerate(job["calls"])
        ]
        result = {"runner": "python", "executorch": "1.5.1", "threads": 1, "load_ns": 5000}
        (self._folder / "result.json").write_text(json.dumps({**result, "calls": calls}))
        if job["trace"]:
            executions = sum(call["warmup"] + call["iterations"] for call in job["calls"])
            self._write_dump(executions)

    def _output(self, number: int) -> Any:
        import numpy as np

        from etscope.run.job import describe_value

        with np.load(self._artifact / "outputs.npz") as outputs:
            value = outputs[outputs.files[0]]
        return describe_value(value, self._folder / f"output-{number}-0.raw")

    def _write_dump(self, executions: int) -> None:
        import numpy as np

        from etscope.formats.etdump.reader import read_etdump
        from etscope.formats.etdump.writer import write_etdump
        from etscope.run.execute import select_runs

        dump = read_etdump(next(self._artifact.glob("*.etdp")))
        names = [dump.run_name_of(run) for run in range(dump.num_runs)]
        executed = np.array([name == "Execute" for name in names])
        content = write_etdump(select_runs(dump, ~executed | (executed.cumsum() <= executions)))
        (self._folder / "run.etdp").write_bytes(content)

    # Faults.

    def _may_be_lost(self) -> None:
        self._calls += 1
        for file in (f"lost-at-{self._calls}", f"once-lost-at-{self._calls}"):
            with contextlib.suppress(FileNotFoundError):
                (self._control / file).rename(self._control / "unplugged")
        if (self._control / "unplugged").exists():
            raise DeviceLost(f"{self._name} is unplugged")

    def _fault(self, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            (self._control / f"once-{name}").unlink()
            return True
        return (self._control / name).exists()

    @contextlib.contextmanager
    def _alone(self) -> Any:
        with (self._control / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("overlap")
            self._say("begin")
            yield
            self._say("end")

    def _say(self, what: str) -> None:
        with (self._control / "log").open("a") as log:
            log.write(f"{what} {time.time():.6f} {os.getpid()}\n")


def fault(control: Path, name: str) -> Path:
    """Put a fault into a device's folder."""
    control.mkdir(parents=True, exist_ok=True)
    path = control / name
    path.touch()
    return path


def said(control: Path, what: str) -> list[float]:
    """The times at which a device's log says something."""
    path = control / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [float(line.split()[1]) for line in lines if line.split()[0] == what]


def write_lab(folder: Path, artifact: Path, devices: int = 2, seconds: float = 0.0) -> list[Path]:
    """Describe a lab with simulated devices, sim-0 and so on, in `folder`; their control folders.

    What starts workers needs `tests.support.warm.SOURCES` in $PYTHONPATH.
    """
    controls = [folder / f"sim-{number}" for number in range(devices)]
    entries = [
        {
            "name": control.name,
            "driver": DRIVER,
            "options": {"control": str(control), "artifact": str(artifact), "seconds": seconds},
        }
        for control in controls
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yaml").write_text(json.dumps({"devices": entries}))  # JSON is YAML, too
    return controls
