"""Measure both sides on the same files and print the ratios.

    python -m benchmarks.run                     # all; makes missing artefacts first (minutes)
    python -m benchmarks.run open_dump help      # some
    python -m benchmarks.run --write             # and put it into docs/appendix/benchmarks.md
    python -m benchmarks.run help --write        # and put this row there, beside the others

Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.comparisons import Comparison, Limit, comparisons
from etscope.units import format_bytes

PAGE = Path(__file__).resolve().parents[1] / "docs/appendix/benchmarks.md"
MARKS = ("<!-- measured -->", "<!-- end -->")
MISSED = " **missed**"
HEAD = "| what | upstream | etscope | ratio | target | peak memory, upstream | etscope |"


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks and print their table."""
    known = comparisons()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--write", action="store_true", help="update docs/appendix/benchmarks.md")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no benchmark named {', '.join(unknown)}")

    lines, met = [HEAD, "|---|---|---|---|---|---|---|"], True
    print("\n".join(lines), flush=True)
    for name in options.names or known:
        line, fine = row(known[name])
        lines.append(line)
        met &= fine
        print(line, flush=True)
    if options.write:
        titles = [entry.title for entry in known.values()]
        write(f"{machine()}\n\n" + "\n".join(merged(lines, PAGE.read_text(), titles)))
    return 0 if met else 1


def row(entry: Comparison | Limit) -> tuple[str, bool]:
    """The line of one measurement, and whether it meets its target."""
    ours = entry.ours()
    if isinstance(entry, Limit):
        fine = entry.limit is None or ours.seconds <= entry.limit
        target = "" if entry.limit is None else f"≤ {duration(entry.limit)}"
        cells = ["", duration(ours.seconds), "", target, "", memory(ours.peak)]
    else:
        upstream = entry.upstream()
        ratio = upstream.seconds / ours.seconds
        fine = ratio >= entry.target
        if entry.memory_target is not None:
            assert upstream.peak is not None
            assert ours.peak is not None
            fine &= upstream.peak >= entry.memory_target * ours.peak
        cells = [duration(upstream.seconds), duration(ours.seconds), times(ratio)]
        cells += [f"≥ {times(entry.target)}", memory(upstream.peak), memory(ours.peak)]
    return f"| {' | '.join([entry.title + ('' if fine else MISSED), *cells])} |", fine


def duration(seconds: float) -> str:
    """Seconds with three figures, in the unit that suits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def times(ratio: float) -> str:
    return f"{ratio:,.0f} x" if ratio >= 10 else f"{ratio:.2f} x"


def memory(peak: int | None) -> str:
    return "" if peak is None else format_bytes(peak)


def merged(lines: list[str], page: str, titles: list[str]) -> list[str]:
    """The table `lines` with the rows of the page's table that are not measured anew, all in the
    order of `titles`. Rows of other titles are dropped."""
    begin, end = MARKS
    rows = [*page.partition(begin)[2].partition(end)[0].splitlines(), *lines[2:]]
    found = [[row for row in rows if _is_of(title, row)] for title in titles]
    return [*lines[:2], *(own[-1] for own in found if own)]


def _is_of(title: str, row: str) -> bool:
    return row.startswith((f"| {title} |", f"| {title}{MISSED} |"))


def machine() -> str:
    """The machine and versions that the table was measured with."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("executorch", "torch", "numpy"))
    return (
        f"Measured on {os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, {packages}."
    )


def write(text: str) -> None:
    """Put `text` between the marks of docs/appendix/benchmarks.md."""
    begin, end = MARKS
    page = PAGE.read_text()
    between = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    PAGE.write_text(between.sub(lambda _: f"{begin}\n{text}\n{end}", page))


if __name__ == "__main__":
    sys.exit(main())
