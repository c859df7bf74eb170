"""What is found in the lab's database: pages, filters, histories, devices, tokens."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import MissingDataError, UsageError
from etscope.formats.conditions import conditions_of
from etscope_lab.comparison.changes import judged as judged_series
from etscope_lab.database import Database
from etscope_lab.jobs.records import Device, DeviceConfig, Filter, State
from etscope_lab.jobs.spec import Limits
from etscope_lab.worker.conditions import judged
from lab_support.jobs import LEASE, claimed, run_through, spec_of_number


def found(database: Database, **wanted: Any) -> set[int]:
    """Numbers of the jobs that a filter takes."""
    page = database.jobs(Filter(**wanted), limit=500)
    assert page.total == len(page.jobs) and page.next is None
    assert len({job.id for job in page.jobs}) == len(page.jobs)
    return {int(job.spec.model.sha256 or "", 16) for job in page.jobs}


def test_filters(database: Database) -> None:
    odd = ["100%", "a_b", "it's", 'say "x"', "back\\slash", "Größe", "x%y"]
    for number, name in enumerate(odd):
        database.add(spec_of_number(number, name=name, labels={"key%": name, "branch": "main"}))
    later = run_through(database, spec_of_number(7, labels={"branch": "fast"}), device="b")
    database.add(spec_of_number(8, kind="accuracy", model_name="NET.pte"))
    waiting = database.add(spec_of_number(9))[0]
    claimed(database, waiting, device="it's")

    assert found(database) == set(range(10))
    for number, name in enumerate(odd):
        assert found(database, labels={"key%": name}) == {number}
        assert found(database, text=name) == {number}
        assert found(database, text=name.upper()) == {number}
    assert found(database, labels={"key_": "100%"}) == set()
    assert found(database, text="%") == {0, 6} | set(range(7))  # "key%=" is of all seven
    assert found(database, text="_") == {1}
    assert found(database, text="branch=FAST") == {7}
    assert found(database, text="net.pte") == {8}
    assert found(database, text="") == set(range(10))
    assert found(database, states=(State.DONE, State.CLAIMED)) == {7, 9}
    assert found(database, states=(State.DONE, State.CLAIMED, State.DONE)) == {7, 9}
    assert found(database, device="b") == {7} and found(database, device="it's") == {9}
    assert found(database, kind="accuracy") == {8}
    assert found(database, model_sha256=f"{3:064x}") == {3}
    assert found(database, since=later.created_at) == {7, 8, 9}
    assert found(database, since=datetime.now(timezone.utc) + timedelta(hours=1)) == set()
    both = {"branch": "main", "key%": "x%y"}
    assert found(database, labels=both, states=(State.QUEUED,), text="x%") == {6}
    assert found(database, labels={**both, "branch": "fast"}) == set()
    for text in ("' OR 1=1 --", "x'; DROP TABLE lab_jobs; --", "\x00", "\ud800", "ﬃ" * 1_000):
        for wanted in ("text", "device", "kind", "model_sha256"):
            assert found(database, **{wanted: text}) == set()
        assert found(database, labels={text: text}) == set()
    assert found(database) == set(range(10))
    with pytest.raises(UsageError, match="time zone"):
        database.jobs(Filter(since=datetime(2026, 1, 1)))
    with pytest.raises((UsageError, ValueError)):
        database.jobs(Filter(states=("no state",)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="1,000"):
        database.jobs(Filter(text="w " * 501))
    assert found(database, device="w" * 70_000) == set()
    assert found(database, labels={f"key {n}": "x" for n in range(50)}) == set()


def test_pages_while_jobs_arrive(database: Database) -> None:
    old = [database.add(spec_of_number(n))[0].id for n in range(7)]
    seen, cursor, number = [], None, 100
    while True:
        page = database.jobs(limit=2, cursor=cursor)
        assert page.total == len(old) + number - 100
        seen += [job.id for job in page.jobs]
        if page.next is None:
            break
        cursor, number = page.next, number + 1
        database.add(spec_of_number(number))
    assert seen == old[::-1]
    assert database.jobs(limit=7 + number - 100).next is None
    for limit in (0, -1):
        with pytest.raises(UsageError):
            database.jobs(limit=limit)
    for cursor in ("", "x", "-1", "1e3", old[0][:3] + "z", "9" * 30, "\uff11"):
        with pytest.raises(UsageError):
            database.jobs(cursor=cursor)


def test_a_job_by_the_beginning_of_its_id(database: Database) -> None:
    ids = [database.add(spec_of_number(n))[0].id for n in range(20)]
    for job_id in ids[:5]:
        assert database.job(job_id).id == job_id
        assert database.job(job_id[:12]).id == job_id
    shared = next(i[0] for i in ids if sum(other[0] == i[0] for other in ids) > 1)
    with pytest.raises(UsageError, match="begin"):
        database.job(shared)
    for text in ("", ids[0] + "0", "%", "_" * 16, ids[0][:-1] + "%", "g", ids[0] + "\n"):
        with pytest.raises((MissingDataError, UsageError)):
            database.job(text)
    with pytest.raises(MissingDataError, match="no job 'zzz'"):
        database.job("zzz")


def test_history_by_hand(database: Database) -> None:
    def run(number: int, p50: float, **more: Any) -> str:
        name = more.pop("model_name", "a.pte")
        spec = spec_of_number(
            number, model_name=name, labels={"n": str(number)}, kind=more.pop("kind", "benchmark")
        )
        return run_through(database, spec, p50, **more).id

    first = run(1, 1.5)
    second = run(2, 2.5, marks=("hot", "the temperature cannot be read"))
    third = run(3, 3.5, marks=("the temperature cannot be read",))
    other = run(4, 9.0, device="b")
    run(5, 8.0, backend="XnnpackBackend")
    run(6, 7.0, method="decode")
    run(7, 6.0, model_name="b'%.pte")
    run(8, 1.0, state=State.FAILED)
    run(9, 1.0, state=State.INVALID)
    run(10, 1.0, summary={"method": "forward", "backend": "portable"})  # without times
    run(11, float("nan"))
    database.add(spec_of_number(12, model_name="a.pte"))

    assert [one.model for one in database.history(most=2)] == ["b'%.pte", "a.pte"]  # the newest
    assert len(database.series()) == 5 and len(database.series("a.pte", "b")) == 1
    series = sorted(database.history(), key=lambda one: [*map(str, one.key.values())])
    keys = [(one.model, one.method, one.device, one.backend) for one in series]
    assert keys == [
        ("a.pte", "decode", "host", "portable"),
        ("a.pte", "forward", "b", "portable"),
        ("a.pte", "forward", "host", "XnnpackBackend"),
        ("a.pte", "forward", "host", "portable"),
        ("b'%.pte", "forward", "host", "portable"),
    ]
    points = series[3].points
    assert [(p.job_id, p.p50_ms, p.p90_ms, p.marked) for p in points] == [
        (first, 1.5, 3.0, False),
        (second, 2.5, 5.0, True),
        (third, 3.5, 7.0, False),
    ]
    assert [p.marks for p in points] == [(), ("hot",), ()]
    assert [(p.load_ms, p.first_ms) for p in points] == [(3.0, 4.0)] * 3
    assert [dict(p.labels) for p in points] == [{"n": "1"}, {"n": "2"}, {"n": "3"}]
    assert points[1].model_sha256 == f"{2:064x}"
    assert points[0].at < points[1].at < points[2].at
    assert points[2].at == database.job(third).finished_at

    newest = next(one for one in database.history(limit=2) if one.key == series[3].key)
    assert [p.job_id for p in newest.points] == [second, third]
    assert [p.job_id for p in database.history(device="b")[0].points] == [other]
    assert sorted(len(one.points) for one in database.history("a.pte")) == [1, 1, 1, 3]
    assert [one.model for one in database.history("b'%.pte", "host")] == ["b'%.pte"]
    assert database.history("a.pt_") == [] == database.history("a.pte", "c")
    with pytest.raises(UsageError):
        database.history(limit=0)


def test_devices_are_remembered_as_last_seen(database: Database) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
    config = DeviceConfig("b", "ssh", {"host": "board", "port": 22}, {"room": "2"})
    device = Device(config, {"arch": "aarch64"}, "busy", "job", at, {"load": [0.5]}, "why")
    database.set_devices(
        Device(DeviceConfig("c", "host", {}, {}), {}, conditions={"t": float("nan")})
    )
    database.set_devices(Device(config, {}))
    database.set_devices(device)
    assert [one.config.name for one in database.devices()] == ["b", "c"]
    assert database.devices()[0] == device
    assert database.devices()[1].conditions == {"t": None}


def test_one_engine_has_a_device(database: Database) -> None:
    for engine in ("one", "two"):
        database.renew(engine, LEASE)
    for _ in range(2):
        assert database.acquire_devices(["d", "c"], "one") == {"d", "c"}
    assert database.acquire_devices(["d", "e"], "two") == {"e"}
    database.renew("two", -1)
    assert database.engines() == {"one"}
    assert database.acquire_devices(["d", "e"], "one") == {"d", "e"}
    database.release_devices("one")
    assert database.acquire_devices(["d"], "two") == {"d"}
    database.renew("two", LEASE)
    assert database.acquire_devices(["d"], "one") == set()


def test_tokens(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = database.add_token("ci", ["submit"])
    assert len(secret) > 40 and database.add_token("other", ["read"]) != secret
    token = database.check_token(secret)
    assert token is not None and token.name == "ci" and "submit" in token.scopes
    assert "admin" not in token.scopes and token.expires_at is None
    wrong = ["", secret[:-1], secret + "x", secret.upper(), "ci", "etl_", secret + "\x00", "\ud800"]
    assert all(database.check_token(text) is None for text in wrong)
    assert [one.name for one in database.tokens()] == ["ci", "other"]

    with pytest.raises(UsageError, match="ci"):
        database.add_token("ci", ["read"])
    for name, scopes in (("x", ["root"]), ("x", []), ("", ["read"]), ("x" * 101, ["read"])):
        with pytest.raises(UsageError):
            database.add_token(name, scopes)
    for end in (datetime(2030, 1, 1), datetime.now(timezone.utc) - timedelta(seconds=1)):
        with pytest.raises(UsageError):
            database.add_token("late", ["read"], end)

    database.revoke("ci")
    assert database.check_token(secret) is None
    with pytest.raises(MissingDataError):
        database.revoke("ci")

    end = datetime.now(timezone.utc) + timedelta(hours=1)
    short = database.add_token("short", ["read"], end)
    assert database.check_token(short) is not None
    monkeypatch.setattr("etscope_lab.database.database.now", lambda _: end)
    assert database.check_token(short) is None
    assert [one.name for one in database.tokens()] == ["other", "short"]


def test_a_secret_is_nowhere_in_the_files(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path / 'lab.db'}") as database:
        secret = database.add_token("ci", ["admin"])
        assert database.check_token(secret) is not None
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # with the log ahead
    kept += b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"ci" in kept and secret[-43:].encode() not in kept
    assert secret[-20:].encode() not in kept


def test_a_device_that_never_shows_its_conditions_is_compared_with_itself(
    database: Database,
) -> None:
    files = {"/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n"}
    marks = judged([conditions_of(files, 0)], Limits(), None).marks
    assert len(marks) == 3, marks
    for number, p50 in enumerate([1.0, 1.0, 1.01, 1.0, 1.01, 1.0, 1.5, 1.5]):
        run_through(database, spec_of_number(number, model_name="net.pte"), p50, marks=marks)
    busy = "the device was busy before the run: a load of 0.90 a core"
    run_through(database, spec_of_number(9, model_name="net.pte"), 9.0, marks=(*marks, busy))
    [series] = database.history()
    standings = [point.standing for point in judged_series(series).points]
    assert standings[5:] == ["steady", "regressed", "steady", "unjudged"]
