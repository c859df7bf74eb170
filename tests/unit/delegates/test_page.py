"""The tables of docs/delegates.md are what etscope shows of such dumps."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from etscope.analysis.profile.profile_table import profile_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.units import TimeScale
from etscope.views.tables import terminal
from tests.support.delegate_dumps import (
    Log,
    coreml,
    dump_of,
    ethos_u,
    neutron,
    qnn,
    vgf,
    vgf_statistics,
    vulkan,
)
from tests.support.docs.pages import BAR

PAGE = Path(__file__).resolve().parents[3] / "docs" / "delegates.md"
STATISTICS = vgf_statistics(debug_database=b"abc", statistics_memory=b"x" * 64)
TABLES: dict[str, tuple[Log, str]] = {
    "qnn": (qnn(), "event avg value unit derived share"),
    "vulkan": (vulkan(), "event avg share kernel_name"),
    "coreml": (coreml(), "event avg value unit share compute_unit"),
    "neutron": (neutron(), "event avg value unit share"),
    "ethos_u": (ethos_u(), "event avg share"),
    "vgf": (vgf(STATISTICS), "event avg share segments statistics_memory_bytes"),
}


@pytest.mark.parametrize("backend", TABLES)
def test_the_page_shows_what_is_printed(backend: str) -> None:
    assert shown(*TABLES[backend]) in PAGE.read_text()


def shown(log: Log, columns: str) -> str:
    """The rows of a call as the page has them."""
    (profile,) = Trace(read_etdump(dump_of(log))).profiles()
    table = profile_table(profile, Scale(TimeScale.NS, TimeScale.US), sort="run")
    out = io.StringIO()
    terminal.write(table.select(columns.split()), out, color=False, width=100)
    lines = [BAR.sub("", line.rstrip()) for line in out.getvalue().splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("─"))
    last = next(n for n, line in enumerate(lines) if n > first and line.startswith("─"))
    return "\n".join(line.rstrip() for line in lines[1:last])
