"""The lab's queue under load and faults, with simulated devices; prints figures for the docs.

    python benchmarks/lab_queue.py idle --jobs 1000 --devices 4 --seconds 2
    python benchmarks/lab_queue.py faults --jobs 100

`idle`: jobs are queued first, then an engine works on them. A device is idle from the end of a job
to the beginning of the next; a job ends when the engine hears of it, and begins the time before
that its worker needed. The share is of the time from its first job to its last. What a
job needs beside the device's own work (its process, its files) is given apart: "device at work" is
what the simulated device slept.

`faults`: while jobs are worked on by an engine in a process of its own, workers are killed, devices
are unplugged and plugged in again, runtimes abort, and the engine's process is killed, at random;
then every job must have ended as it should, once.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "packages/etscope-lab/tests")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from etscope_lab.cluster import AttemptEnded, Message  # noqa: E402
from etscope_lab.engine import Engine  # noqa: E402
from etscope_lab.jobs.records import State  # noqa: E402
from etscope_lab.lab import Lab  # noqa: E402
from lab_support.checks import check_no_leftovers, submit  # noqa: E402
from lab_support.simulated_device import fault, said, write_lab  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402


class Watched(Engine):
    """An engine that remembers when each attempt began and ended on its device."""

    def watch(self) -> None:
        self.spans: dict[str, list[tuple[float, float]]] = {}

    def _hear(self, message: Message | None) -> None:
        if isinstance(message, AttemptEnded) and message.token in self._attempts:
            device, end = self._attempts[message.token].device, time.monotonic()
            begin = end - message.outcome.busy_seconds
            self.spans.setdefault(device, []).append((begin, end))
        super()._hear(message)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("idle", "faults"))
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="that a device is at work")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "idle":
            idle(Path(folder), given.jobs, given.devices, given.seconds)
        else:
            faults(Path(folder), given.jobs, given.devices, given.seconds, given.seed)


if __name__ == "__main__":
    main()
