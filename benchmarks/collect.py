"""Measure collecting many dumps: time against their number, workers against each other, and
upstream's Inspector with pandas in a loop.

    python -m benchmarks.collect --dumps 1000           # some 3 GB in a temporary folder; minutes
    python -m benchmarks.collect --dumps 250 --upstream 8 --folder /tmp/big

Each dump is the run of a real program, repeated with other times until it has some 20,000 events.
Exit code 1 when the time is not linear, or two workers are not faster than one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.side import MEASURE, ROOT
from etscope.formats.etdump.reader import EventKind, read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.units import format_bytes
from tests.support.artifacts import artifacts

PROGRAM = "transformer"
EVENTS = 20_000
DEVICES = 10
# How far the time a dump may differ between a quarter of them and all.
_LINEAR = 1.35

_COLLECT = """
import sys
from etscope_lab.fleet import collect
done = collect([{folder!r}], {target!r}, etrecord={record!r}, workers={workers!r})
assert done.taken == {count} and not done.bad, done
"""
_UPSTREAM = """
import warnings; warnings.simplefilter("ignore")
import pandas
from executorch.devtools import Inspector
"""
_LOOP = """
frames = []
for path in {paths!r}:
    inspector = Inspector(etdump_path=path, etrecord={record!r})
    frames.append(inspector.to_dataframe())
# Of mixed types, which Parquet has not.
odd = ["stack_traces", "module_hierarchy", "debug_data", "delegate_debug_identifier"]
frame = pandas.concat(frames).drop(columns=odd)
frame.astype({{"op_types": str}}).to_parquet({target!r})
"""


def main(arguments: list[str] | None = None) -> int:
    """Make the dumps, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dumps", type=int, default=1000)
    parser.add_argument("--upstream", type=int, default=10, help="dumps that upstream reads")
    parser.add_argument("--folder", type=Path, help="for the dumps; default: a temporary one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="collect-") as folder:
        return measure(Path(folder), options.dumps, options.upstream)


def measure(folder: Path, dumps: int, upstream: int) -> int:
    made = artifacts(PROGRAM)
    assert made.etrecord is not None
    assert made.etdump_timing is not None
    record = str(made.etrecord)
    size, events = write_dumps(made.etdump_timing, folder / "all", dumps)
    print(
        f"{dumps} dumps of {events:,} events, {format_bytes(size)}, on {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    parts = sorted({max(1, dumps // 4), max(1, dumps // 2), dumps})
    print("| dumps | workers | time | a dump | events/s | peak memory | dataset |")
    print("|---|---|---|---|---|---|---|")
    each: dict[tuple[int, int | None], float] = {}
    for count, workers in [*((part, None) for part in parts), (dumps, 1), (dumps, 2)]:
        source = some(folder / "all", folder / f"some-{count}", count)
        target = folder / "dataset"
        shutil.rmtree(target, ignore_errors=True)
        seconds, peak = timed(
            _COLLECT.format(
                folder=str(source), target=str(target), record=record, workers=workers, count=count
            )
        )
        each[count, workers] = seconds / count
        written = sum(path.stat().st_size for path in target.rglob("*.parquet"))
        shown = "this process" if workers is None else str(workers)
        memory = format_bytes(peak) if workers is None else ""
        print(
            f"| {count} | {shown} | {seconds:.1f} s | {1e3 * seconds / count:.1f} ms "
            f"| {count * events / seconds:,.0f} | {memory} | {format_bytes(written)} |",
            flush=True,
        )
    linear = each[dumps, None] / each[parts[0], None]
    faster = each[dumps, 1] / each[dumps, 2]
    print(f"\ntime a dump, all to a quarter: {linear:.2f}; one worker to two: {faster:.2f} x")
    if upstream:
        compare(folder, record, upstream)
    return 0 if linear <= _LINEAR and faster > 1 else 1


def compare(folder: Path, record: str, count: int) -> None:
    """Print how long upstream's Inspector takes for some of the dumps, and we for the same."""
    source = some(folder / "all", folder / "upstream", count)
    paths = sorted(map(str, source.iterdir()))
    theirs, _ = timed(
        _LOOP.format(paths=paths, record=record, target=str(folder / "theirs.parquet")), _UPSTREAM
    )
    ours, _ = timed(
        _COLLECT.format(
            folder=str(source), target=str(folder / "ours"), record=record, workers=None,
            count=count,
        )
    )  # fmt: skip
    print(
        f"{count} dumps: upstream's Inspector and pandas {theirs:.1f} s, etscope {ours:.2f} s, "
        f"{theirs / ours:.0f} x"
    )


def write_dumps(source: Path, folder: Path, count: int) -> tuple[int, int]:
    """`count` dumps like `source` with other times, on some devices; bytes of all, and events of
    each."""
    folder.mkdir()
    dump = read_etdump(source)
    rows = np.flatnonzero((dump.run == dump.num_runs - 1) & (dump.kind == EventKind.PROFILE))
    start = dump.start[rows].astype(np.float64)
    end = dump.end[rows].astype(np.float64)
    repeats = -(-EVENTS // len(rows)) - 1  # the block itself is a run, too
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    for row in rows.tolist():
        place = {
            "chain_index": int(dump.chain_index[row]),
            "instruction_id": int(dump.instruction_id[row]),
        }
        times = int(dump.start[row]), int(dump.end[row])
        if dump.delegate_id_str[row] >= 0:
            writer.log_profiling_delegate(dump.strings[dump.delegate_id_str[row]], *times, **place)
        else:
            writer.log_profiling(dump.strings[dump.name[row]], *times, **place)
    random = np.random.default_rng(0)
    size = 0
    block = writer._blocks[-1]
    for number in range(count):
        # A run is stretched as a whole, so that what lies in something stays there.
        factors = random.lognormal(0.05 * (number % DEVICES), 0.02, (repeats, 1))
        starts = start[0] + np.arange(repeats)[:, None] * 2 * (end.max() - start.min())
        writer._blocks = [block]
        writer.repeat_block(
            (starts + factors * (start - start.min())).astype(np.uint64),
            (starts + factors * (end - start.min())).astype(np.uint64),
        )
        path = folder / f"device-{number % DEVICES}-{number:05d}.etdp"
        writer.save(path)
        size += path.stat().st_size
    return size, len(rows) * (repeats + 1)


def some(source: Path, target: Path, count: int) -> Path:
    """A folder with hard links to the first dumps of another."""
    if not target.exists():
        target.mkdir()
        for path in sorted(source.iterdir())[:count]:
            os.link(path, target / path.name)
    return target


def timed(code: str, setup: str = "import etscope_lab.fleet") -> tuple[float, int]:
    """Seconds of `code` in a process of its own after `setup`, and the peak of memory above that
    before it."""
    guarded = [setup, "", code, 1, 0, "perf_counter"]
    begin = time.perf_counter()
    # A cluster's processes import the main module, so that it is a file.
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "measured.py")
        body = "".join(f"    {line}\n" for line in MEASURE.strip().splitlines())
        script.write_text(f"if __name__ == '__main__':\n{body}")
        done = subprocess.run(
            [sys.executable, str(script), json.dumps(guarded)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
    if done.returncode:
        raise RuntimeError(f"after {time.perf_counter() - begin:.1f} s:\n{done.stderr[-3000:]}")
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


if __name__ == "__main__":
    sys.exit(main())
