"""Measure opening an ETDump, reader against reader, at three sizes.

    python -m benchmarks.bench_etdump_open

"first" is the first dump that a process opens, "again" the best of five more. Upstream's reader
(flatc to JSON to dataclasses) is measured on the smaller two; its Inspector, which comes on top,
is in `benchmarks.run`.
"""

from __future__ import annotations

import sys

from benchmarks.side import Cost, measured
from etscope.units import format_bytes, format_count
from tests.support.artifacts import artifacts

SIZES = {"large_20k": True, "large": True, "large_2m": False}  # name -> whether upstream too
OURS = "from etscope.formats.etdump.reader import read_etdump"
THEIRS = """
from pathlib import Path
from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
"""


def main() -> None:
    """Print one line per dump and reader."""
    print(f"{'dump':10} {'events':>10} {'file':>9}  {'reader':9} {'first':>9} {'again':>9}  peak")
    for name, with_upstream in SIZES.items():
        artifact = artifacts(name)
        head = f"{name:10} {format_count(artifact.meta['dump_events']):>10} "
        head += f"{format_bytes(artifact.etdump.stat().st_size):>9}"
        code = f"result = read_etdump({str(artifact.etdump)!r})"
        warm = measured(OURS + "\n" + code, code, repeats=5)
        report(head, "etscope", measured(OURS, code, repeats=1), warm)
        if with_upstream:
            path = f"Path({str(artifact.etdump)!r})"
            code = f"result = deserialize_from_etdump_flatcc({path}.read_bytes())"
            report(head, "upstream", measured(THEIRS, code, repeats=1), None)


def report(head: str, reader: str, first: Cost, again: Cost | None) -> None:
    repeated = "" if again is None else f"{1000 * again.seconds:.1f} ms"
    print(
        f"{head}  {reader:9} {1000 * first.seconds:>6.1f} ms {repeated:>9}"
        f"  {format_bytes(first.peak)}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
