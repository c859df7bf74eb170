"""Measure how fast the lab's database answers when it holds many finished jobs.

    python benchmarks/lab_database.py [--jobs 10000] [--url postgresql://…]

Adds, claims, starts and finishes jobs, each with labels, events and files, and times the first of
them; then times what pages and the API ask. SQLite in a folder of the system's temporary files
unless a URL of an empty database is given; with --postgresql, a server of its own. Prints a table
in Markdown: the median and the slowest of the calls, and the median of this process's CPU.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from sqlalchemy.engine import Connection

# Run as a script, Python's path starts at this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages/etscope-lab/tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from etscope_lab.database import Database
from etscope_lab.database import jobs as job_steps
from etscope_lab.database.connection import Connections
from etscope_lab.jobs.records import Artifact, Filter, Outcome, State, statistics_of
from etscope_lab.jobs.spec import FileRef, JobSpec
from lab_support import postgresql

JOBS, ROUNDS = 10_000, 30
TIMED, BATCH = 500, 250
LIMIT_MS = 100.0
SWEEP = "SHA-256 of all files, for a sweep"  # no page waits for that
MODELS, DEVICES, WORKER = 12, 4, "tcp://127.0.0.1:1"
_STATES = (State.DONE,) * 17 + (State.FAILED, State.INVALID, State.TIMEOUT)
_FILES = ("log.txt", "run.etdp", "run.json", "conditions.json")


def spec_of_number(number: int, dice: random.Random) -> JobSpec:
    model = number % MODELS
    return JobSpec(
        model=FileRef(sha256=f"{model:064x}", name=f"model-{model}.pte"),
        labels={"commit": f"{number:07x}", "branch": dice.choice(["main", "fast"])},
        device={"name": f"device-{number % DEVICES}"},
    )


def outcome_of(job_id: str, number: int, dice: random.Random) -> Outcome:
    """As a real one: the statistics of 50 runs, an environment, and files."""
    state = dice.choice(_STATES)
    samples = [round(dice.gauss(2e6, 5e4)) for _ in range(50)]
    summary = {
        "method": "forward",
        "backend": "XnnpackBackend",
        "latency": statistics_of(samples, 9_000_000, 2_500_000),
        "traced_p50_ms": 2.1,
        "memory": {"peak_rss_bytes": 50_000_000},
    }
    environment = {f"fact {n}": f"value {n} of {number % DEVICES}" for n in range(20)}
    files = tuple(Artifact(name, f"{dice.getrandbits(256):064x}", 12_345) for name in _FILES)
    if state is not State.DONE:
        return Outcome(job_id, job_id, state, error="the runtime ended", artifacts=files[:1])
    return Outcome(job_id, job_id, state, summary, environment, (), files)


def fill(database: Database, count: int) -> dict[str, float]:
    """Jobs from submission to end. The first ones one by one: how many a second were added, and
    worked off. The others by the same code, many in one transaction."""
    dice = random.Random(0)
    specs = [spec_of_number(number, dice) for number in range(count)]
    timed = min(TIMED, count)
    start = time.perf_counter()
    ids = [database.add(spec, again=True)[0].id for spec in specs[:timed]]
    added = time.perf_counter()
    for number, job_id in enumerate(ids):
        device = f"device-{number % DEVICES}"
        assert database.claim(
            job_id, device=device, engine="engine", token=job_id, lease_seconds=600
        )
        assert database.started(job_id, job_id, WORKER)
        assert database.finish(outcome_of(job_id, number, dice))
    ended = time.perf_counter()
    connections = Connections(database.url, 15)
    for first in range(timed, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        connections.write(
            lambda connection, _, these=numbers: batch(connection, specs, these, dice)
        )
    connections.close()
    return {"add": timed / (added - start), "claim, start, finish": timed / (ended - added)}


def batch(
    connection: Connection, specs: Sequence[JobSpec], numbers: Sequence[int], dice: random.Random
) -> None:
    for number in numbers:
        job_id, device = job_steps.new_id(), f"device-{number % DEVICES}"
        job_steps.add(connection, job_id, specs[number], "", True, False)
        job_steps.claim(connection, job_id, device, "engine", job_id, 600, False)
        job_steps.start(connection, job_id, job_id, WORKER)
        job_steps.finish(connection, outcome_of(job_id, number, dice), False)


def questions(database: Database) -> dict[str, Callable[[], object]]:
    newest = database.jobs(limit=1).jobs[0]
    total = database.jobs(limit=1).total
    cursor = None
    for _ in range(min(total // 2, 5_000) // 500):  # the middle of the list
        cursor = database.jobs(limit=500, cursor=cursor).next
    ids = itertools.cycle([job.id for job in database.jobs(limit=200, cursor=cursor).jobs])
    commit = f"{total // 2:07x}"
    filters = {
        "of a state": Filter(states=(State.FAILED,)),
        "of a device": Filter(device="device-1"),
        "of a label of one job": Filter(labels={"commit": commit}),
        "of a label of half of the jobs": Filter(labels={"branch": "fast"}),
        "of a model, done, of the last hour": Filter(
            states=(State.DONE,),
            model_sha256=newest.spec.model.sha256,
            since=newest.created_at - timedelta(hours=1),
        ),
        "of a text that half of the jobs have": Filter(text="branch=fast"),
        "of a text that none has": Filter(text="no such text"),
    }
    asked: dict[str, Callable[[], object]] = {
        "50 jobs, the newest": database.jobs,
        "50 jobs in the middle": lambda: database.jobs(cursor=cursor),
    }
    for name, wanted in filters.items():
        asked[f"50 jobs {name}"] = lambda wanted=wanted: database.jobs(wanted)  # type: ignore[misc]
    return asked | {
        "a job": lambda: database.job(next(ids)),
        "a job by the beginning of its id": lambda: database.job(next(ids)[:9]),
        "a job's events": lambda: database.events(next(ids)),
        "history of a model": lambda: database.history("model-1.pte"),
        "history of a device": lambda: database.history(None, "device-1"),
        "history of all, 200 points a series": database.history,
        "history of all, 50 points a series": lambda: database.history(limit=50),
        "the queue, empty": database.queued,
        SWEEP: database.referenced,
    }


def measure(database: Database, rounds: int) -> list[tuple[str, float, float, float]]:
    """For each question: the median and the largest time, and the median of the CPU, in ms."""
    rows = []
    for name, ask in questions(database).items():
        ask()
        times, cpu = [], []
        for _ in range(rounds):
            start, busy = time.perf_counter(), time.process_time()
            ask()
            times.append((time.perf_counter() - start) * 1e3)
            cpu.append((time.process_time() - busy) * 1e3)
        rows.append((name, statistics.median(times), max(times), statistics.median(cpu)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--url", help="of an empty database")
    parser.add_argument("--postgresql", action="store_true", help="a server of its own")
    given = parser.parse_args()
    with ExitStack() as stack:
        if given.postgresql:
            url = stack.enter_context(postgresql.serving()).new()
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url = given.url or f"sqlite:///{folder}/lab.db"
        database = stack.enter_context(Database(url))
        rates = fill(database, given.jobs)
        print(f"{given.jobs:,} jobs; {'; '.join(f'{k}: {v:,.0f} / s' for k, v in rates.items())}")
        rows = measure(database, given.rounds)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| what | median | slowest | CPU of this process |\n|---|---|---|---|")
    for name, median, most, cpu in rows:
        late = " **slow**" if median > LIMIT_MS and name != SWEEP else ""
        print(f"| {name}{late} | {median:.1f} ms | {most:.1f} ms | {cpu:.1f} ms |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
