"""The lab's queue under load and faults, with simulated devices; prints figures for the docs.

    python benchmarks/lab_queue.py idle --jobs 1000 --devices 4 --seconds 2
    python benchmarks/lab_queue.py crowd --jobs 1000000 --devices 1000 --seconds 60 --postgresql
    python benchmarks/lab_queue.py rest --seconds 60
    python benchmarks/lab_queue.py faults --jobs 100

`idle`: jobs are queued first, then an engine works on them. A device is idle from the end of a job
to the beginning of the next; a job ends when the engine hears of it, and begins the time before
that its worker needed. The share is of the time from its first job to its last. What a
job needs beside the device's own work (its process, its files) is given apart: "device at work" is
what the simulated device slept.

`crowd`: an engine and its watch, in a process of their own, with many devices and a database with
many finished jobs. Scheduler and workers are real ones; a worker sleeps instead of measuring. Jobs
for groups of devices are submitted by this process at random times, so that four fifths of the
devices' time is used. Printed are the engine's processor time, and the time from submission to
claim, of the second half of six times `--seconds`.

`rest`: processor time of `etscope lab serve` with two devices and nothing to do.

`faults`: while jobs are worked on by an engine in a process of its own, workers are killed, devices
are unplugged and plugged in again, runtimes abort, and the engine's process is killed, at random;
then every job must have ended as it should, once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Worker, get_worker

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "packages/etscope-lab/tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])

from benchmarks import lab_pages  # noqa: E402
from etscope_lab.cluster import resources_of  # noqa: E402
from etscope_lab.engine import Engine  # noqa: E402
from etscope_lab.jobs.records import Outcome, State  # noqa: E402
from etscope_lab.jobs.spec import spec_of  # noqa: E402
from etscope_lab.lab import Lab  # noqa: E402
from etscope_lab.worker import worker  # noqa: E402
from lab_support import postgresql  # noqa: E402
from lab_support.checks import check_no_leftovers, submit  # noqa: E402
from lab_support.simulated_device import fault, said, write_lab  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.ports import free_port  # noqa: E402
from tests.support.waiting import until  # noqa: E402

_HERE = [sys.executable, __file__]
_A_WORKER = 250  # devices of a worker
_BUSY = 0.8  # of the devices' time


class Watched(Engine):
    """An engine that remembers when each attempt began and ended on its device."""

    def watch(self) -> None:
        self.spans: dict[str, list[tuple[float, float]]] = {}

    def ended(self, token: str, outcome: Outcome) -> None:
        if token in self._attempts:
            device, end = self._attempts[token].device, time.monotonic()
            self.spans.setdefault(device, []).append((end - outcome.busy_seconds, end))
        super().ended(token, outcome)


def idle(home: Path, jobs: int, devices: int, seconds: float) -> None:
    write_lab(home, artifacts("cnn_xnnpack").folder, devices, seconds)
    with Lab.open(home) as lab:
        begun = time.perf_counter()
        queued = submit(lab, jobs)
        print(f"queued {jobs} jobs in {time.perf_counter() - begun:.1f} s")
        engine = Watched(lab.home, lab.database, changed=lab._notify)
        engine.watch()
        lab.engine = engine
        begun = time.perf_counter()
        engine.start()
        states = Counter(lab.wait(job.id).state.value for job in queued)
        print(f"{dict(states)} in {time.perf_counter() - begun:.1f} s")
        for device, spans in sorted(engine.spans.items()):
            spans.sort()
            whole = spans[-1][1] - spans[0][0]
            gaps = sorted(after[0] - before[1] for before, after in itertools.pairwise(spans))
            print(
                f"{device}: {len(spans)} jobs, idle {sum(gaps) / whole:.3%} of {whole:.1f} s "
                f"(median gap {gaps[len(gaps) // 2] * 1000:.1f} ms, longest {gaps[-1] * 1000:.1f} "
                f"ms); device at work {len(spans) * seconds / whole:.1%}"
            )


def faults(home: Path, jobs: int, devices: int, seconds: float, seed: int) -> None:
    controls = write_lab(home, artifacts("cnn_xnnpack").folder, devices, seconds)
    choose = random.Random(seed)
    done: Counter[str] = Counter()
    with Lab.open(home) as lab:
        queued = submit(lab, jobs, attempts=100)
        command = [
            sys.executable,
            str(ROOT / "packages/etscope-lab/tests/lab_support/engine.py"),
            str(home),
        ]
        engine = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        begun = time.perf_counter()
        try:
            while any(not lab.job(job.id).state.is_final for job in queued):
                time.sleep(choose.uniform(0.5, 3.0))
                what = choose.choice(["kill-worker", "lost", "abort", "engine", "replug"])
                control = choose.choice(controls)
                done[what] += 1
                if what == "engine":
                    engine.kill()
                    engine.wait()
                    engine = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                    time.sleep(4)
                elif what == "lost":
                    fault(control, f"lost-at-{choose.randint(2, 9)}")
                elif what != "replug":
                    fault(control, f"once-{what}")
                for other in controls:
                    (other / "unplugged").unlink(missing_ok=True)
        finally:
            engine.terminate()
            engine.wait()
        states = Counter(lab.job(job.id).state.value for job in queued)
        attempts = sum(lab.job(job.id).attempt for job in queued)
        finals = [sum(e.state.is_final for e in lab.events(job.id)) for job in queued]
        overlaps = sum(len(said(control, "overlap")) for control in controls)
        print(f"{dict(done)} in {time.perf_counter() - begun:.0f} s")
        print(f"{jobs} jobs: {dict(states)}, {attempts} attempts")
        print(f"jobs that ended once: {finals.count(1)}; two at once on a device: {overlaps}")
        check_no_leftovers(lab)
        print("every object of the store has the content that its name says")
        assert set(finals) == {1}
        assert set(states) <= {State.DONE.value, State.FAILED.value}


def crowd(home: Path, jobs: int, devices: int, seconds: float, url: str | None) -> None:
    if not home.exists():
        lab_pages.prepare(home, jobs, url, devices=devices)
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address]
    scheduler += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    commands = [scheduler]
    for first in range(0, devices, _A_WORKER):
        numbers = (first, min(first + _A_WORKER, devices))
        commands.append([*_HERE, "workers", address, *map(str, numbers), str(seconds)])
    with contextlib.ExitStack() as stack, Lab.open(home) as lab:
        for command in commands:
            stack.enter_context(_running(command, 0 if command is scheduler else 10))
        engine = stack.enter_context(_running([*_HERE, "engine", str(home), address], 30))
        until(lambda: sum(one.state == "available" for one in lab.devices()) >= devices)
        last = _Load(lab, devices, seconds)
        last.submit_for(3 * seconds)
        begun, used = time.time(), _cpu(engine)
        last.submit_for(3 * seconds)
        share = (_cpu(engine) - used) / (time.time() - begun)
        last.print(begun, share)


class _Load:
    """Jobs for groups of devices, submitted at random times."""

    def __init__(self, lab: Lab, devices: int, seconds: float) -> None:
        self._lab, self._devices = lab, devices
        self._rate = _BUSY * devices / seconds
        self._dice = random.Random(0)
        self._model = lab.store.put_stream([b"a model"], "net.pte")
        self._ids: list[str] = []

    def submit_for(self, seconds: float) -> None:
        end = next_one = time.monotonic()
        end += seconds
        while next_one < end:
            time.sleep(max(0.0, next_one - time.monotonic()))
            group = self._dice.randrange(max(1, self._devices // lab_pages.GROUP))
            spec = {
                "model": {"sha256": self._model.sha256, "name": f"net-{group}.pte"},
                "labels": {"commit": f"{len(self._ids):07x}"},
                "device": {"attributes": {"group": str(group)}},
            }
            self._ids.append(self._lab.submit(spec_of(spec), again=True).id)
            next_one += self._dice.expovariate(self._rate)

    def print(self, begun: float, share: float) -> None:
        mine = [self._lab.wait(one) for one in self._ids]
        late = [job for job in mine if job.created_at.timestamp() >= begun and job.claimed_at]
        waits = [(job.claimed_at - job.created_at).total_seconds() for job in late]  # type: ignore[operator]
        ended = sum(bool(job.finished_at and job.finished_at.timestamp() >= begun) for job in mine)
        states = Counter(job.state.value for job in mine)
        print(f"{dict(states)}; {self._rate:.1f} jobs a second, {ended} ended while measured")
        print(f"engine: {share:.1%} of a core; load average {os.getloadavg()[0]:.1f}")
        median, p99 = np.percentile(waits, (50, 99))
        print(f"dispatch: median {median:.3f} s, p99 {p99:.3f} s, longest {max(waits):.3f} s")


def simulate_workers(address: str, first: str, end: str, seconds: str) -> None:
    """Be the worker of some devices, on which each job takes about so long."""
    dice = random.Random(first)

    def work(order: Any, topic: str) -> Outcome:
        get_worker().log_event(topic, {"kind": "started", "token": order.token, "by": "simulated"})
        begun = time.monotonic()
        time.sleep(dice.uniform(0.5, 1.5) * float(seconds))
        result = lab_pages.outcome(order.job_id, order.token, State.DONE, int(first), ())
        return replace(result, busy_seconds=time.monotonic() - begun)

    worker.work = work
    worker.check = lambda config, timeout=60.0: worker.DeviceCheck(config.attributes)  # type: ignore[assignment]
    names = [f"device-{number}" for number in range(int(first), int(end))]

    async def offer() -> None:
        options = {"nthreads": len(names), "memory_limit": 0, "dashboard": False}
        async with Worker(address, resources=resources_of(names), **options) as offering:
            print("offered", flush=True)
            await offering.finished()

    asyncio.run(offer())


def run_engine(home: str, address: str) -> None:
    with Lab.open(home) as lab:
        lab.start_engine(scheduler=address)
        print("started", flush=True)
        threading.Event().wait()


def rest(home: Path, seconds: float) -> None:
    write_lab(home, artifacts("cnn_xnnpack").folder, 2)
    command = [sys.executable, "-m", "etscope", "lab", "--home", str(home), "serve", "--port", "0"]
    with _running(command, 30) as server:
        time.sleep(15)  # the first checks of devices
        processes = [server, *server.children(recursive=True)]
        before = [*map(_cpu, processes)]
        time.sleep(seconds)
        used = [_cpu(one) - was for one, was in zip(processes, before, strict=True)]
    each = ", ".join(f"{one / seconds:.2%}" for one in used)
    print(f"at rest: {sum(used) / seconds:.2%} of a core; server and workers: {each}")


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


@contextlib.contextmanager
def _running(command: list[str], patience: float) -> Iterator[psutil.Process]:
    """A process, which has said something if it is to be waited for."""
    out = subprocess.PIPE if patience else None
    with subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process:
        try:
            if process.stdout is not None:
                process.stdout.readline()
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("idle", "crowd", "rest", "faults", *_INNER))
    parser.add_argument("inner", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="that a device is at work")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgresql", action="store_true", help="crowd: in a server of its own")
    parser.add_argument("--home", type=Path, help="crowd: a lab that `lab_pages --home` filled")
    given = parser.parse_args()
    if given.what in _INNER:
        _INNER[given.what](*given.inner)
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if given.what == "idle":
            idle(folder, given.jobs, given.devices, given.seconds)
        elif given.what == "crowd":
            url = stack.enter_context(postgresql.serving()).new() if given.postgresql else None
            home = given.home or folder / "lab"
            crowd(home, given.jobs, given.devices, given.seconds, url)
        elif given.what == "rest":
            rest(folder, given.seconds)
        else:
            faults(folder, given.jobs, given.devices, given.seconds, given.seed)


# What `crowd` starts in processes of their own.
_INNER: dict[str, Callable[..., None]] = {"workers": simulate_workers, "engine": run_engine}

if __name__ == "__main__":
    main()
