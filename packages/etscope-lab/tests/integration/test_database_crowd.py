"""Many processes and threads at the lab's database at once; some are killed, and it restarts."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from etscope.errors import LabError, VersionError
from etscope_lab.database import Database
from etscope_lab.jobs.records import State
from lab_support.jobs import LEASE, measured, spec_of_number
from lab_support.postgresql import PostgreSql
from tests.support.warm import SOURCES

_SECONDS = 300
_JOBS, _PROCESSES = 12, 3

# Processes that add the same jobs, in an order of each's own, and then work on what they can claim
# until nothing is left. Those that may die do so at random between two steps. A line for each job
# that one added or ended; when it dies before that, only the database knows. All come from one
# interpreter: most of the time would go into imports.
_WORKERS = """
import json, os, random, sys
from etscope_lab.database import Database
from lab_support.jobs import measured, spec_of_number

url, jobs, deaths, together, lease = sys.argv[1], *map(int, sys.argv[2:])

def work(name, mortal):
    def survive():
        if mortal and random.random() < 0.1:
            os._exit(9)

    def say(kind, job):
        os.write(1, (json.dumps([kind, job.id]) + chr(10)).encode())

    random.seed(name)
    database = Database(url)
    database.requeue_expired()
    database.renew(name, lease)
    for number in random.sample(range(jobs), jobs):
        job, new = database.add(spec_of_number(number))
        survive()
        if new:
            say("added", job)
    while waiting := database.queued(5):
        job = random.choice(waiting)
        token = f"{name} {os.urandom(8).hex()}"
        survive()
        if not database.claim(job.id, device=name, engine=name, token=token):
            continue
        survive()
        assert database.started(job.id, token, name)
        survive()
        if random.random() < 0.2:
            assert database.release(job.id, token, "once more", counted=False)
            continue
        assert database.finish(measured(token, job.id))
        survive()
        say("done", job)

def begun(name, mortal):
    child = os.fork()
    if child:
        return child
    try:
        work(name, mortal)
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

codes = [ended(begun(f"mortal {n}", True)) for n in range(deaths)]
codes += [ended(child) for child in [begun(f"worker {n}", False) for n in range(together)]]
print(json.dumps(["codes", codes]))
"""


def worked(
    url: str, *, deaths: int = 0, together: int = 1, lease: int = int(LEASE)
) -> tuple[Counter[tuple[str, str]], list[int]]:
    """What the processes said, and how each ended."""
    numbers = [str(number) for number in (_JOBS, deaths, together, lease)]
    done = subprocess.run(
        [sys.executable, "-c", _WORKERS, url, *numbers],
        capture_output=True, text=True, timeout=_SECONDS, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, (_, codes) = map(json.loads, done.stdout.splitlines())
    assert set(codes) <= {0, 9}, done.stderr
    return Counter((kind, job_id) for kind, job_id in lines), codes


def check_all_done_once(database: Database) -> None:
    page = database.jobs(limit=500)
    assert page.total == _JOBS
    assert {job.spec.model.sha256 for job in page.jobs} == {f"{n:064x}" for n in range(_JOBS)}
    for job in page.jobs:
        steps = [event.state for event in database.events(job.id)]
        assert job.state is State.DONE and len(job.artifacts) == 2
        assert steps.count(State.DONE) == 1 and steps[-1] is State.DONE
        assert steps.count(State.CLAIMED) == steps.count(State.QUEUED)  # it was never taken twice
        assert steps[0] is State.QUEUED


def test_processes_that_do_the_same_work(database_url: str) -> None:
    """The tables are made by all of them at once, too."""
    told, codes = worked(database_url, together=_PROCESSES)

    assert codes == [0] * _PROCESSES
    with Database(database_url) as database:
        check_all_done_once(database)
        ids = [job.id for job in database.jobs(limit=500).jobs]
    assert told == Counter([("added", i) for i in ids] + [("done", i) for i in ids])


@pytest.mark.parametrize(
    "database_url",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)],
    indirect=True,
)
def test_processes_that_die_anywhere(database_url: str) -> None:
    """Their leases are over at once: what the dead left, the next one takes up."""
    told, codes = worked(database_url, deaths=12, together=1, lease=-1)

    assert codes.count(9) >= 5 and codes[-1] == 0
    with Database(database_url) as database:
        check_all_done_once(database)
    assert max(told.values()) == 1


def test_threads_of_one_process(database: Database) -> None:
    barrier = threading.Barrier(12)

    def act(number: int) -> tuple[str, bool, bool, bool]:
        barrier.wait(_SECONDS)
        job, new = database.add(spec_of_number(0))
        token = f"thread {number}"
        database.renew(token, LEASE)
        taken = database.claim(job.id, device="d", engine=token, token=token)
        ended = database.finish(measured(token, job.id, float(number)))
        held = bool(database.acquire_devices(["d"], token))
        return job.id, new, taken is not None and ended, held

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(act, range(12)))
    assert len({job_id for job_id, *_ in found}) == 1
    assert [sum(column) for column in list(zip(*found, strict=True))[1:]] == [1, 1, 1]
    winner = next(n for n, (_, _, won, _) in enumerate(found) if won)
    assert database.job(found[0][0]).summary["latency"]["p50_ms"] == winner


def test_limits_of_a_project_hold_in_a_burst(database: Database) -> None:
    """Threads of several engines at the same moment."""
    barrier = threading.Barrier(8)

    def add(number: int) -> str | None:
        barrier.wait(_SECONDS)
        try:
            return database.add(spec_of_number(number), project="p", most=3)[0].id
        except LabError as error:
            assert error.message == "3 jobs of the project p wait, and no more may"
            return None

    def claim(number: int) -> bool:
        job, engine = ids[number % 3], f"engine {number % 2}"
        barrier.wait(_SECONDS)
        claim = database.claim(
            job, device=f"d{number}", engine=engine, token=f"t{number}", limit=("p", 2)
        )
        return claim is not None

    with ThreadPoolExecutor(8) as pool:
        ids = [one for one in pool.map(add, range(8)) if one]
        assert len(ids) == 3
        assert sum(pool.map(claim, range(8))) == 2
    assert database.add(spec_of_number(9), project="q", most=3)[1]


def test_expired_leases_are_taken_back_once(database: Database) -> None:
    ids = {database.add(spec_of_number(n))[0].id for n in range(8)}
    for job_id in ids:
        database.claim(job_id, device="d", engine="e", token=job_id)
    with ThreadPoolExecutor(6) as pool:
        found = [
            i for part in pool.map(lambda _: database.requeue_expired(), range(6)) for i in part
        ]
    assert sorted(found) == sorted(ids)
    assert all(len(database.events(job_id)) == 3 for job_id in ids)


def test_a_restart_of_postgresql_in_mid_work(postgresql_server: PostgreSql) -> None:
    """Crashes of the server while three threads work: they notice nothing but the wait."""
    with Database(postgresql_server.new()) as database:
        for number in range(_JOBS):
            database.add(spec_of_number(number))
        dice, crashed, ended = random.Random(0), threading.Event(), threading.Event()

        def go_on(name: str) -> int:
            done = 0
            while waiting := database.queued(4):
                job, token = dice.choice(waiting), f"{name} {dice.random()}"
                if database.claim(job.id, device=name, engine=name, token=token):
                    assert database.started(job.id, token, name)
                    assert crashed.wait(_SECONDS)  # once at least, however fast the work is
                    time.sleep(0.02)
                    assert database.finish(measured(token, job.id))
                    done += 1
            return done

        def crash() -> int:
            count = 0
            while count < 3 and not ended.wait(0.2):
                postgresql_server.stop()
                crashed.set()
                postgresql_server.start()
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            crashes = pool.submit(crash)
            try:
                work_done = [pool.submit(go_on, f"thread {n}") for n in range(3)]
                assert sum(one.result(_SECONDS) for one in work_done) == _JOBS
            finally:
                ended.set()
                crashed.set()
            assert crashes.result(_SECONDS) >= 1
        check_all_done_once(database)


def test_a_database_that_stays_away(postgresql_server: PostgreSql) -> None:
    url = postgresql_server.new()
    with Database(url, patience_seconds=0.5) as database:
        job, _ = database.add(spec_of_number(1))
        postgresql_server.stop()
        try:
            for act in (database.queued, lambda: database.job(job.id), database.requeue_expired):
                with pytest.raises(LabError) as caught:
                    act()
                assert not isinstance(caught.value, VersionError) and caught.value.hint
            with pytest.raises(LabError):
                Database(url, patience_seconds=0.5)
        finally:
            postgresql_server.start()
        assert database.job(job.id) == job
