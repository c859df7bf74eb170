"""What is in a dataset after dumps were collected, and that every dump is in it once."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etscope import Inspector
from etscope.errors import (
    MismatchError,
    MissingDataError,
    MissingFileError,
    UsageError,
    VersionError,
)
from etscope.formats.etdump.reader import EventKind, read_etdump
from etscope_lab.fleet import Dataset, Source, collect, query
from etscope_lab.fleet._collect import Batch, collect_options, plan, write_batch
from etscope_lab.fleet._dataset import DUMP_FIELDS, EVENT_FIELDS, SCHEMA
from etscope_lab.fleet._sources import Record, matching_record
from lab_support.dumps import record_of, saved_run
from tests.support.artifacts import artifacts


def rows(dataset: Path, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
    return list(query(Dataset.open(dataset), sql, parameters, timeout=None).rows())


def one(dataset: Path, sql: str) -> Any:
    ((value,),) = rows(dataset, sql)
    return value


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two programs on two devices."""
    folder = tmp_path_factory.mktemp("runs")
    for number, device in enumerate(("pixel", "pixel", "s24")):
        saved_run(
            folder / f"cnn-{number}",
            seed=number,
            device=device,
            recorded_at=f"2026-0{number + 1}-03T10:00:00+02:00",
            labels={"commit": f"c{number}"},
            environment={"os": {"name": "Android", "version": 15}, "cores": [4, 4]},
            executorch="1.5.1",
            threads=2,
            calls=[{"warmup": 0}],
        )
    saved_run(folder / "transformer", "transformer", device={"name": "pixel", "soc": "G3"})
    return folder


@pytest.fixture(scope="module")
def dataset(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "ds"
    done = collect([runs], folder, labels={"team": "vision"})
    assert (done.found, done.taken, done.again, done.bad) == (4, 4, 0, ())
    return folder


def test_events_are_those_of_the_inspector(tmp_path: Path) -> None:
    """Each event with its samples, the operators, handles, module and line behind it."""
    for name in ("cnn_xnnpack", "cnn_portable"):
        made = artifacts(name)
        collect([made.etdump_timing], tmp_path / name, etrecord=made.etrecord)
        found = rows(
            tmp_path / name,
            "select block, name, instruction_id, list(duration_ns order by run), list(run order by "
            "run), any_value(op), any_value(debug_handles), any_value(delegate), any_value(source) "
            "from events where kind <> 'rest' group by block, name, instruction_id",
        )
        by_key = {row[:3]: row[3:] for row in found}
        assert name != "cnn_portable" or "aten.addmm.default" in {row[5] for row in found}
        inspector = Inspector(made.etdump_timing, etrecord=made.etrecord)
        blocks = [(block, event) for block in inspector.event_blocks for event in block.events]
        assert len(by_key) == len(blocks) > 10
        for block, event in blocks:
            framework = event.name.startswith(("Method::", "Program::"))
            key = (block.name, event.name, None if framework else event.instruction_id)
            durations, runs, op, handles, delegate, source = by_key[key]
            np.testing.assert_allclose(np.array(durations) / 1e6, event.perf_data.raw, rtol=1e-12)
            assert runs == list(block.runs)
            behind = event.debug_handles
            assert handles == ([behind] if isinstance(behind, int) else behind)
            assert delegate == event.delegate_backend_name
            if event.op_types and event.name != "DELEGATE_CALL":
                # Of the nodes that share the handle those that ran there.
                assert set(op.split("+")) <= set(event.op_types)
            if event.name == "DELEGATE_CALL":
                assert op == "XnnpackBackend"
            if any(event.stack_traces.values()):
                assert "cnn.py:" in source


def test_what_run_json_tells(dataset: Path, runs: Path) -> None:
    found = query(Dataset.open(dataset), "select * from dumps order by path")
    assert found.names == tuple(field.name for field in DUMP_FIELDS)
    values = found.values
    assert values["model"] == ["cnn_portable"] * 3 + ["transformer"]
    assert values["device"] == ["pixel", "pixel", "s24", "pixel"]
    assert values["recorded_at"][0] == "2026-01-03T08:00:00"  # UTC
    dump = runs / "cnn-0" / "run.etdp"
    assert values["dump_id"][0] == hashlib.sha256(dump.read_bytes()).hexdigest()
    assert values["bytes"][0] == dump.stat().st_size
    assert values["executions"] == [5, 5, 5, 5]
    assert values["warmup"] == [0, 0, 0, None]
    assert values["threads"] == [2, 2, 2, None]
    assert len(set(values["fingerprint"])) == 2
    assert values["labels"][0] == "commit=c0, team=vision"
    assert values["environment"][0] == "os.name=Android, os.version=15, cores=4, 4"
    assert "device.soc=G3" in values["environment"][3]
    # Without a word of it, a dump is as old as its file.
    modified = (runs / "transformer" / "run.etdp").stat().st_mtime
    told = datetime.fromisoformat(values["recorded_at"][3] + "+00:00")
    assert told.timestamp() == pytest.approx(modified, abs=0.01)


def test_kinds_iterations_and_totals_are_those_of_the_events(dataset: Path) -> None:
    found = rows(
        dataset,
        "select kind, count(*), count(iteration), max(iteration) from events "
        "where model = 'cnn_portable' group by kind order by kind",
    )
    assert [row[0] for row in found] == ["call", "execute", "kernel"]
    assert found[1][1:] == (15, 15, 4)  # three dumps of five runs
    assert all(row[1] == row[2] for row in found)
    totals = (
        "select sum(duration_ns) filter (kind = 'execute')::bigint, "
        "median(duration_ns) filter (kind = 'execute' and counted), count(*) "
        "from events where kind <> 'rest' group by dump_id order by dump_id"
    )
    told = rows(dataset, "select execute_ns, p50_ns, events from dumps order by dump_id")
    assert told == rows(dataset, totals)


def test_the_files(dataset: Path) -> None:
    """Partitions, and columns as they are documented, in files that others read, too."""
    files = sorted((dataset / "events").rglob("*.parquet"))
    assert {str(f.parent.relative_to(dataset / "events")) for f in files} == {
        "model=cnn_portable/month=2026-01",
        "model=cnn_portable/month=2026-02",
        "model=cnn_portable/month=2026-03",
        next(str(f.parent.relative_to(dataset / "events")) for f in files if "trans" in str(f)),
    }
    schema = pq.read_schema(files[0])
    assert schema.names == [field.name for field in EVENT_FIELDS]
    assert json.loads(schema.metadata[b"etscope"])["schema"] == SCHEMA
    assert schema.field("duration_ns").metadata[b"unit"] == b"ns"
    assert pa.types.is_dictionary(schema.field("op").type)
    column = pq.ParquetFile(files[0]).metadata.row_group(0).column
    names = [column(i).path_in_schema for i in range(len(schema.names))]
    assert "DELTA_BINARY_PACKED" in column(names.index("start_ns")).encodings
    assert "RLE_DICTIONARY" in column(names.index("op")).encodings
    import pandas as pd

    assert len(pd.read_parquet(dataset / "events")) == one(dataset, "select count(*) from events")


def test_a_dump_is_taken_once(runs: Path, tmp_path: Path) -> None:
    """By content, whatever its name, and in one collect, too."""
    first = collect([runs / "cnn-0", runs / "cnn-0" / "run.etdp"], tmp_path / "ds")
    assert (first.found, first.taken) == (1, 1)
    copy = tmp_path / "copy.etdp"
    copy.write_bytes((runs / "cnn-0" / "run.etdp").read_bytes())
    before = sorted((tmp_path / "ds").rglob("*.parquet"))
    second = collect([copy, runs / "cnn-0"], tmp_path / "ds")
    assert (second.found, second.taken, second.again, second.events) == (2, 0, 2, 0)
    assert sorted((tmp_path / "ds").rglob("*.parquet")) == before
    third = collect([copy, runs], tmp_path / "ds")
    assert (third.taken, third.again) == (3, 2)
    assert rows(tmp_path / "ds", "select count(*), count(distinct dump_id) from dumps") == [(4, 4)]


def test_records_are_matched(runs: Path, tmp_path: Path) -> None:
    """By what ran, and by the hash of the program where that is known."""
    records = tmp_path / "records"
    records.mkdir()
    for name in ("cnn_portable", "transformer", "two_methods"):
        (records / f"{name}.etrecord").write_bytes(record_of(name).read_bytes())
    done = collect([runs / "cnn-0", runs / "transformer"], tmp_path / "ds", etrecord_dir=records)
    assert done.without_record == 0
    found = rows(tmp_path / "ds", "select model, methods, etrecord from dumps order by model")
    assert [(row[0], row[1], Path(row[2]).stem) for row in found] == [
        ("cnn_portable", ["forward"], "cnn_portable"),
        ("transformer", ["forward"], "transformer"),
    ]
    assert one(tmp_path / "ds", "select count(*) from events where source like '%.py:%'") > 100
    done = collect([runs], tmp_path / "other", etrecord=record_of("transformer"))
    assert done.taken == 1  # that it fits
    assert {bad.slug for bad in done.bad} == {MismatchError.slug}
    with pytest.raises(MissingFileError):
        collect([runs], tmp_path / "other", etrecord=tmp_path / "none.etrecord")
    with pytest.raises(MissingDataError, match="no ETRecord"):
        collect([runs], tmp_path / "other", etrecord_dir=runs)


def test_a_record_by_the_hash_of_its_program() -> None:
    made = artifacts("cnn_portable")
    dump = read_etdump(made.etdump)
    right, wrong = Record(str(made.etrecord), "a" * 64), Record(str(made.etrecord), "b" * 64)
    silent = Record(str(made.etrecord), None)
    other = Record(str(record_of("transformer")), None)
    assert matching_record(dump, "1", (wrong, right), "a" * 64) is right
    assert matching_record(dump, "1", (wrong, right), "c" * 64) is None
    assert matching_record(dump, "1", (other, wrong, silent), "c" * 64) is silent
    assert matching_record(dump, "1", (other,), "c" * 64) is None
    # Two programs that log the same cannot be told apart.
    assert matching_record(dump, "1", (wrong, right), None) is None
    assert matching_record(dump, "1", (other, right), None) is right


def test_names_of_partitions(tmp_path: Path) -> None:
    """Whatever a model is called, its name is kept, and its folder is one folder."""
    names = ["a/../b c%", "ünï=x", "x" * 400, "  ", "new\nline", "*?[x]"]
    for number, name in enumerate(names):
        saved_run(tmp_path / "runs" / str(number), seed=number, labels={"model": name})
    collect([tmp_path / "runs"], tmp_path / "ds")
    found = [row[0] for row in rows(tmp_path / "ds", "select model from dumps order by path")]
    assert found[:2] + found[3:] == ["a/../b c%", "ünï=x", "unknown", "newline", "*?[x]"]
    assert found[2].startswith("xxx") and len(found[2]) < 200
    in_events = rows(tmp_path / "ds", "select distinct model from events order by model")
    assert [row[0] for row in in_events] == sorted(found)
    assert len(list((tmp_path / "ds" / "events").iterdir())) == len(names)


def test_bad_dumps_are_named_and_the_rest_is_taken(runs: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    good = (runs / "cnn-0" / "run.etdp").read_bytes()
    (bad / "cut.etdp").write_bytes(good[: len(good) // 2])
    (bad / "empty.etdp").write_bytes(b"")
    (bad / "text.etdp").write_text("no dump at all")
    (bad / "run").mkdir()
    (bad / "run" / "run.etdp").write_bytes((runs / "cnn-1" / "run.etdp").read_bytes())
    (bad / "run" / "run.json").write_text('{"recorded_at": "yesterday"}')
    done = collect([bad, runs / "cnn-0", tmp_path / "gone.etdp"], tmp_path / "ds")
    assert done.taken == 1
    errors = {Path(b.url).relative_to(tmp_path).as_posix(): b.error for b in done.bad}
    assert set(errors) == {
        "gone.etdp", "bad/cut.etdp", "bad/empty.etdp", "bad/text.etdp", "bad/run/run.etdp"
    }  # fmt: skip
    assert "cut off" in errors["bad/cut.etdp"] and "ISO 8601" in errors["bad/run/run.etdp"]
    assert one(tmp_path / "ds", "select count(*) from dumps") == 1
    strict = tmp_path / "strict"
    done = collect([runs, bad / "empty.etdp"], strict, strict=True)
    assert (done.taken, len(done.bad)) == (0, 1)
    assert list(strict.rglob("*.parquet")) == []
    assert one(strict, "select count(*) from events") == 0
    assert collect([runs], strict, strict=True).taken == 4
    assert one(strict, "select count(*) from dumps") == 4


def test_what_an_interrupted_collect_left(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events without their dumps are not there for readers, and are removed by the next collect."""
    monkeypatch.setattr("etscope_lab.fleet._collect._MOST_DUMPS", 1)

    def stop(done: int, total: int | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect([runs], tmp_path / "ds", progress=stop)
    dataset = Dataset.open(tmp_path / "ds")
    before = rows(tmp_path / "ds", "select count(*), count(distinct dump_id) from events")
    assert before[0][1] == one(tmp_path / "ds", "select count(*) from dumps") == 2
    file = dataset.event_files()[0]
    orphan = file.with_name("part-20990101T000000-abcdef01-00000.0.parquet")
    orphan.write_bytes(file.read_bytes())
    (dataset.folder / ".collecting" / "x").mkdir(parents=True)
    assert rows(tmp_path / "ds", "select count(*), count(distinct dump_id) from events") == before

    monkeypatch.setattr("etscope_lab.fleet._collect._MOST_DUMPS", 2)
    copy = tmp_path / "copy.etdp"
    copy.write_bytes((runs / "cnn-0" / "run.etdp").read_bytes())
    told: list[tuple[int, int | None]] = []
    done = collect([runs, copy], tmp_path / "ds", progress=lambda *counts: told.append(counts))
    assert (done.found, done.taken, done.again) == (5, 2, 3)
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert not orphan.exists() and not (dataset.folder / ".collecting").exists()
    assert rows(tmp_path / "ds", "select count(*), count(distinct dump_id) from dumps") == [(4, 4)]


def test_the_same_dump_in_two_batches(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etscope_lab.fleet._collect._MOST_DUMPS", 2)
    copy = tmp_path / "copy.etdp"
    copy.write_bytes((runs / "cnn-0" / "run.etdp").read_bytes())
    done = collect([runs, copy], tmp_path / "ds")
    assert (done.found, done.taken, done.again) == (5, 4, 1)
    assert rows(tmp_path / "ds", "select count(*), count(distinct dump_id) from dumps") == [(4, 4)]


def test_folders_that_are_no_dataset(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not empty"):
        collect([runs], runs)
    with pytest.raises(MissingFileError):
        Dataset.open(tmp_path / "none")
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "etscope-dataset.json").write_text('{"schema": "etscope.fleet/1"}')
    for what in (lambda at: collect([runs], at), lambda at: query(str(at), "FROM events")):
        with pytest.raises(VersionError, match=f"etscope.fleet/1; this etscope reads {SCHEMA}"):
            what(tmp_path / "earlier")
    busy = Dataset.make(tmp_path / "busy")
    with busy.writing(), pytest.raises(UsageError, match="another collect"):
        collect([runs], tmp_path / "busy")


def test_batches(runs: Path, tmp_path: Path) -> None:
    sources = [Source(f"{n}", 1 << 20) for n in range(1000)]
    assert [len(batch) for batch in plan(sources, 1)] == [128] * 7 + [104]
    assert len(plan(sources[:16], 2)) == 8
    assert plan([], 2) == []
    assert sum(map(len, plan(sources, 3))) == 1000
    two = tuple(Source(str(runs / f"cnn-{n}" / "run.etdp"), 1) for n in range(2))
    known = frozenset({hashlib.sha256(Path(two[0].url).read_bytes()).hexdigest()})
    options = collect_options(None, None, {}, "ns")
    written = write_batch(Batch("b", two, str(tmp_path), ""), options, known)
    assert (len(written.rows), written.again) == (1, 1)


def test_units(runs: Path, tmp_path: Path) -> None:
    collect([runs / "cnn-0"], tmp_path / "ns")
    collect([runs / "cnn-0"], tmp_path / "us", source_unit="us")
    total = "select sum(duration_ns)::bigint from events"
    assert one(tmp_path / "us", total) == 1000 * one(tmp_path / "ns", total)
    with pytest.raises(UsageError, match="cycles"):
        collect([runs / "cnn-0"], tmp_path / "cycles", source_unit="cycles")


def test_every_artifact(tmp_path: Path) -> None:
    """Loops, branches, several methods, allocations, bundled inputs: each timed event is a row."""
    names = ("while_loop", "cond", "two_methods", "allocations", "bundled", "empty_blocks")
    for name in names:
        made = artifacts(name)
        done = collect([made.etdump], tmp_path / "ds", etrecord=made.etrecord)
        assert done.bad == () and done.taken == 1
        dump = read_etdump(made.etdump)
        timed = dump.kind == EventKind.PROFILE
        assert done.events == int(timed.sum())
        found = rows(
            tmp_path / "ds",
            "select run, start_ns, duration_ns from events join dumps using (dump_id) "
            "where path = $path order by run, start_ns, duration_ns",
            path=os.fspath(made.etdump),
        )
        elapsed = (dump.end - dump.start)[timed].astype(np.int64)
        wanted = zip(
            dump.run[timed].tolist(), dump.start[timed].tolist(), elapsed.tolist(), strict=True
        )
        assert found == sorted(wanted)


def test_a_full_disk(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was finished stays, and nothing half-written does."""
    collect([runs / "cnn-0"], tmp_path / "ds")
    before = sorted(path for path in (tmp_path / "ds").rglob("*") if path.is_file())

    def full(self: object, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(UsageError, match="No space left"):
        collect([runs], tmp_path / "ds")
    monkeypatch.undo()
    assert sorted(path for path in (tmp_path / "ds").rglob("*") if path.is_file()) == before
    assert collect([runs], tmp_path / "ds").taken == 3


def test_dumps_by_url(runs: Path, tmp_path: Path) -> None:
    """With what is beside them; in memory, as an object store has them."""
    memory = fsspec.filesystem("memory")
    for name in ("run.etdp", "run.json"):
        memory.pipe(f"/collected/{name}", (runs / "cnn-2" / name).read_bytes())
    memory.pipe("/collected/bad.etdp", b"no dump")
    done = collect(["memory://collected"], tmp_path / "ds")
    assert (done.taken, len(done.bad)) == (1, 1)
    assert done.bad[0].url.endswith("collected/bad.etdp")
    assert rows(tmp_path / "ds", "select device, labels['commit'] from dumps") == [("s24", "c2")]


def test_small_batches_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost or there twice: for a reader that listed the files before, for one that does
    after, and after a merge that was interrupted."""
    monkeypatch.setattr("etscope_lab.fleet._collect._MANY", 3)
    runs, target = tmp_path / "runs", tmp_path / "ds"
    for seed in range(3):
        saved_run(runs / str(seed), seed=seed, recorded_at=f"2026-05-0{seed + 1}")
    collect([runs / "0"], target)
    collect([runs / "1"], target)
    commit = Dataset.commit

    def interrupted(self: Dataset, batch: str, parts: Any, rows: Any, replaces: Any = ()) -> None:
        commit(self, batch, parts, rows, replaces)
        if replaces:  # killed before the file of dumps
            (self.folder / "dumps" / f"part-{batch}.parquet").unlink()
            raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "commit", interrupted)
        assert collect([runs / "2"], target).taken == 1
    before = Dataset.open(target).event_files()
    whole = "select dump_id, count(*), sum(duration_ns)::bigint from events group by 1 order by 1"
    collect([runs], tmp_path / "at-once")
    assert len(before) == 3
    assert rows(target, whole) == rows(tmp_path / "at-once", whole)
    assert collect([runs], target).again == 3  # and merges
    (merged,) = Dataset.open(target).event_files()
    assert rows(target, whole) == rows(tmp_path / "at-once", whole)
    assert rows(target, "select count(*), count(distinct dump_id) from dumps") == [(3, 3)]
    assert all(path.is_file() for path in before)  # a query may be reading them
    monkeypatch.setattr("etscope_lab.fleet._dataset._GRACE_SECONDS", -1.0)
    assert collect([runs], target).again == 3
    assert sorted((target / "events").rglob("*.parquet")) == [merged]
    assert len(list((target / "dumps").iterdir())) == 1
    assert rows(target, whole) == rows(tmp_path / "at-once", whole)
