"""Measure how fast the lab's pages and API answer with many jobs: `python benchmarks/lab_pages.py`.

    python benchmarks/lab_pages.py [--jobs 10000] [--postgresql | --url postgresql+psycopg://…]

Fills a database with finished jobs of a few models on many devices (a thousand through the lab,
the others are copies of them), asks a real server process for each page over HTTP, and prints the
median of each, the 95th percentile and the slowest, that of the whole answer as a client on this
machine sees it; and the time of a processor that the server took for it, which does not depend on
what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import sqlalchemy

# Run as a script, Python's path starts at this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages/etscope-lab/tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from etscope_lab.config import Home
from etscope_lab.database import schema
from etscope_lab.jobs.records import Filter, Outcome, State, statistics_of
from etscope_lab.jobs.spec import spec_of
from etscope_lab.lab import Lab
from lab_support import postgresql

LIMIT_MS = 100.0
ROUNDS = 40
MODELS, DEVICES = 12, 1000
GROUP = 50  # devices of a group
_THROUGH_THE_LAB = 1000
_GO_ON = "select setval(pg_get_serial_sequence('{0}', 'seq'), (select max(seq) from {0}))"
_STATES = (State.DONE,) * 17 + (State.FAILED, State.INVALID, State.TIMEOUT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--url", help="Of the database; default: SQLite.")
    parser.add_argument("--postgresql", action="store_true", help="A server of its own.")
    parser.add_argument("--home", type=Path, help="Fill this folder, or take it as it is.")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = given.home or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lab"
        if not home.exists():
            url = given.url
            if given.postgresql:
                url = stack.enter_context(postgresql.serving()).new()
            prepare(home, given.jobs, url)
        with Lab.open(Home.open(home)) as lab:
            ids = [job.id for job in lab.jobs(Filter(states=(State.DONE,)), limit=2).jobs]
        with served(home) as (address, server):
            return measure(address, server, ids)


def prepare(home: Path, jobs: int, url: str | None, devices: int = DEVICES) -> None:
    """Describe a lab with many devices, and fill its database."""
    home.mkdir(parents=True)
    entries = [
        {"name": f"device-{n}", "driver": "host", "attributes": {"group": str(n // GROUP)}}
        for n in range(devices)
    ]
    config = {"devices": entries, **({} if url is None else {"database": url})}
    (home / "lab.yaml").write_text(json.dumps(config))  # JSON is YAML, too
    start = time.perf_counter()
    fill(home, min(jobs, _THROUGH_THE_LAB))
    multiply(home, jobs, devices)
    print(f"{jobs:,} jobs in {time.perf_counter() - start:.0f} s", file=sys.stderr)


def fill(folder: Path, count: int) -> None:
    """Finished jobs, spread over models and devices."""
    random.seed(0)
    lab = Lab.open(Home.open(folder))
    files = [lab.store.put_stream([f"model {n}".encode()], f"model-{n}.pte") for n in range(MODELS)]
    run = lab.store.put_stream([run_json()], "run.json")
    log = lab.store.put_stream([b"run: 50 executions\n" * 40], "log.txt")
    for number in range(count):
        model = files[number % MODELS]
        spec = spec_of(
            {
                "model": {"sha256": model.sha256, "name": model.name},
                "labels": {"commit": f"{number:07x}", "branch": random.choice(["main", "fast"])},
                "device": f"device-{number % DEVICES}",
            }
        )
        job, _ = lab.database.add(spec)
        device, token = f"device-{number % DEVICES}", f"token-{number}"
        lab.database.claim(job.id, device=device, engine="e", token=token)
        lab.database.started(job.id, token, "worker")
        state = random.choice(_STATES)
        lab.database.finish(outcome(job.id, token, state, number, [run, log]))
    lab.close()


def multiply(folder: Path, count: int, devices: int) -> None:
    """Copy the jobs, with all that belongs to them, until there are so many."""
    url = Home.open(folder).database_url.replace("postgresql:", "postgresql+psycopg:")
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        while (known := _number_of_jobs(connection)) < count:
            copied = min(known, count - known)
            for table in (schema.jobs, schema.labels, schema.inputs, schema.artifacts,
                          schema.events, schema.results):  # fmt: skip
                _copy(connection, table, known, copied, devices)
        if connection.dialect.name == "postgresql":  # new jobs go on from there
            connection.execute(sqlalchemy.text(_GO_ON.format("lab_jobs")))
            connection.execute(sqlalchemy.text(_GO_ON.format("lab_events")))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text("vacuum analyze" if "postgres" in url else "analyze"))


def _number_of_jobs(connection: sqlalchemy.Connection) -> int:
    return connection.execute(
        sqlalchemy.select(sqlalchemy.func.max(schema.jobs.c.seq))
    ).scalar_one()


def _copy(
    connection: sqlalchemy.Connection, table: sqlalchemy.Table, by: int, count: int, devices: int
) -> None:
    """Copy the rows of the first `count` jobs to jobs with numbers that are larger by `by`."""
    job = table.c.seq if table is schema.jobs else table.c.job
    new_id = sqlalchemy.func.substr(
        sqlalchemy.cast(10**15 + job + by, sqlalchemy.String) + "0" * 16, 1, 32
    )
    changed = {
        job.name: job + by,
        "id": new_id,
        "job_id": new_id,
        "sole": sqlalchemy.null(),
        "device": sqlalchemy.literal("device-").concat(
            sqlalchemy.cast((job + by) % devices, sqlalchemy.String)
        ),
    }
    if table is schema.results:  # older, as of a lab that has been there for long
        changed["at_us"] = table.c.at_us - by * 1_000_000
    if table is schema.events:
        most = connection.execute(sqlalchemy.select(sqlalchemy.func.max(table.c.seq))).scalar_one()
        changed["seq"] = table.c.seq + most
    columns = [changed.get(column.name, column) for column in table.c]
    rows = sqlalchemy.select(*columns).where(job <= count)
    connection.execute(table.insert().from_select([column.name for column in table.c], rows))


def outcome(job_id: str, token: str, state: State, number: int, files: list[Any]) -> Outcome:
    samples = np.random.default_rng(number).normal(4e6 + number * 10, 2e5, 50).astype(int)
    measured = state in (State.DONE, State.INVALID)
    return Outcome(
        job_id,
        token,
        state,
        summary={
            "method": "forward",
            "backend": "XnnpackBackend",
            "latency": statistics_of(samples.tolist(), 3_000_000, 9_000_000),
        }
        if measured
        else {},
        environment={"device": {"arch": "x86_64", "cores": "8"}, "executorch": "1.5.1"},
        marks=("the governor cannot be read",) if number % 3 == 0 else (),
        artifacts=tuple(files) if measured else (files[1],),
        error="" if state is State.DONE else "as it goes",
    )


def run_json() -> bytes:
    samples = [4_000_000 + 1000 * n for n in range(50)]
    entry = {"traced": None, "method": "forward", "samples_ns": samples}
    return str({"latencies": [entry]}).replace("'", '"').replace("None", "null").encode()


@contextlib.contextmanager
def served(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a server without an engine, and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        "import sys, uvicorn; from etscope_lab.lab import Lab\n"
        "from etscope_lab.server.app import create_app\n"
        "uvicorn.run(create_app(Lab.open(sys.argv[1])), port=int(sys.argv[2]), "
        "log_level='warning')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(home), str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{address}/assets/lab.css")
                break
            time.sleep(0.1)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A page and what it is asked with."""

    name: str
    path: str


def paths(ids: list[str]) -> list[Asked]:
    since = (datetime.now(timezone.utc) - timedelta(days=1)).isoformat()
    return [
        Asked("jobs", "/"),
        Asked("jobs, by state", "/?state=failed&state=timeout"),
        Asked("jobs, by text", "/?text=model-3"),
        Asked("jobs, by text that is nowhere", "/?text=nowhere"),
        Asked("jobs, by label", "/?label=branch%3Dfast"),
        Asked("jobs, by device", "/?device=device-2"),
        Asked("a job", f"/jobs/{ids[0]}"),
        Asked("history", "/history"),
        Asked("history of a model", "/history?model=model-3.pte"),
        Asked("compare", f"/compare?first={ids[0]}&second={ids[1]}"),
        Asked("devices", "/devices"),
        Asked("API: jobs", "/api/v1/jobs"),
        Asked("API: jobs since", f"/api/v1/jobs?since={since.replace('+', '%2B')}"),
        Asked("API: a job", f"/api/v1/jobs/{ids[0]}"),
        Asked("API: history", "/api/v1/history?model=model-3.pte"),
        Asked("API: devices", "/api/v1/devices"),
    ]


def measure(address: str, server: psutil.Process, ids: list[str]) -> int:
    slow = 0
    print(f"load before: {psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()}", file=sys.stderr)
    print("| page | median | p95 | slowest | processor | size |\n|---|---:|---:|---:|---:|---:|")
    with httpx.Client(base_url=address, timeout=60) as client:
        for asked in paths(ids):
            times = []
            client.get(asked.path)  # the first one also reads templates
            before = sum(server.cpu_times()[:2])
            for _ in range(ROUNDS):
                start = time.perf_counter()
                answer = client.get(asked.path)
                times.append((time.perf_counter() - start) * 1e3)
                if not answer.is_success:
                    raise SystemExit(f"{asked.path}: {answer.status_code}: {answer.text}")
            size = len(answer.content) / 1024
            median, p95 = np.percentile(times, (50, 95))
            spent = (sum(server.cpu_times()[:2]) - before) / ROUNDS * 1e3
            slow += p95 > LIMIT_MS
            times_text = f"{median:.0f} ms | {p95:.0f} ms | {max(times):.0f} ms | {spent:.0f} ms"
            print(f"| {asked.name} | {times_text} | {size:.0f} KiB |")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
