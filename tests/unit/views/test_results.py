"""Short texts of results at a prompt, and their tables in notebooks, where names stay text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope import Inspector, parse_etrecord
from etscope.analysis.comparison.programs import Side, diff_programs
from etscope.analysis.graphs.views import graph_views
from etscope.analysis.info import file_info
from etscope.analysis.memory.needs import program_memory
from etscope.analysis.work.profile_work import profile_work
from etscope.check import check
from etscope.explain import explain
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.run_json import SavedRun
from etscope.model.report import Report, facts
from etscope.model.table import Column, Table
from etscope.support.shown import Shown
from etscope.views.page import ReportRun
from tests.support.artifacts import artifacts
from tests.support.views.shapes import HOSTILE
from tests.unit.views.page.test_document import hostile_dump

KNOWN = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code"}


class Parts(HTMLParser):
    """The tags, the names of attributes and the text of HTML."""

    def __init__(self, html: str | None) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = set[str](), set[str](), ""
        assert html is not None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def inspector() -> Inspector:
    files = artifacts("cnn_xnnpack")
    return Inspector(files.etdump_timing, etrecord=files.etrecord, program=files.pte)


def results(inspector: Inspector) -> Iterator[Any]:
    trace = inspector.trace
    profile = trace.profiles()[0]
    program, record = trace.program, trace.record
    assert program is not None and record is not None and program.source.path is not None
    side = Side("a", program, record, ())
    yield from (inspector, trace, trace.export, profile, side, diff_programs(side, side))
    yield from (block for block in inspector.event_blocks)
    yield from explain(trace)
    yield from graph_views(trace)
    yield from (check(trace, trace), profile_work(trace, profile), program_memory(trace.export))
    yield from (parse_etrecord(record.path), read_etrecord(record.path))
    yield from (ReportRun("run", trace), file_info(program.source.path))


def reachable(value: Any, seen: dict[int, Any], depth: int = 5) -> Iterator[Any]:
    """Yield what the fields of a result lead to, each once; of long sequences the first items."""
    if id(value) in seen or depth < 0:
        return
    seen[id(value)] = value
    if isinstance(value, (list, tuple)):
        for item in value[:10]:
            yield from reachable(item, seen, depth - 1)
    elif isinstance(value, dict):
        yield from reachable(list(value.values()), seen, depth)
    elif type(value).__module__.startswith("etscope"):
        yield value
        for field in fields(value) if is_dataclass(value) else ():
            yield from reachable(getattr(value, field.name), seen, depth - 1)


def test_every_result_is_short_at_a_prompt(inspector: Inspector) -> None:
    found = [*results(inspector)]
    everything = list(reachable(found, {}))
    assert len(everything) > 150
    long = {type(one).__name__: len(repr(one)) for one in everything if len(repr(one)) > 2000}
    assert long == {}
    assert [repr(one) for one in found if " object at 0x" in repr(one)] == []


def test_every_result_is_html_in_a_notebook(inspector: Inspector) -> None:
    for one in results(inspector):
        parts = Parts(one._repr_html_())
        assert parts.tags <= KNOWN and parts.attributes <= {"class", "style"}, one
        assert len(one._repr_html_()) < 100_000 and len(parts.text) > 20, one
    html = inspector._repr_html_()
    assert html is not None and "cnn.py:" in html
    longest = max(inspector.trace.profiles()[0].rows, key=lambda row: float(row.ticks.mean()))
    assert html.index(longest.name) < len(html) / 2


def test_hostile_names_are_text() -> None:
    dump = Inspector(etdump_data=hostile_dump())
    table = Table.of({Column("name"): [*HOSTILE, "x" * 5000]}, title=HOSTILE[3], notes=HOSTILE)
    report = Report({"file": HOSTILE[3]}, (facts("a", HOSTILE[3], [(Column("b"), HOSTILE[3])]),))
    for one in (dump, dump.trace.dump, table, report, SavedRun({}, HOSTILE[3])):
        html = one._repr_html_()
        parts = Parts(html)
        assert parts.tags <= KNOWN and parts.attributes <= {"class", "style"}
        assert html is not None and html.isascii() and len(html) < 20_000
        assert not {"\x1b", "\u202e", "\u200b", "\x07"} & {*parts.text, *repr(one)}
    assert "<script>alert(1)</script>" in Parts(table._repr_html_()).text


def test_a_long_table_says_what_it_leaves_out() -> None:
    text = Parts(Table.of({Column("n"): range(1000)})._repr_html_()).text
    assert "29" in text and "970 rows not shown." in text and "\n30\n" not in text


@dataclass(frozen=True)
class Result(Shown):
    """A result with every kind of field."""

    path: Path
    name: str
    rows: tuple[int, ...]
    array: Any
    hidden: str = "default"
    empty: tuple[int, ...] = ()
    verdict: str | None = None


def test_the_text_has_single_values_and_lengths() -> None:
    array = np.zeros((2, 3))
    assert repr(Result(Path("a"), "b", (1, 2), array)) == (
        "<Result path='a' name='b' len(rows)=2 len(array)=2>"
    )
    assert repr(Result(Path("a"), "b", (), array, verdict="it is fine")) == "<Result it is fine>"
    assert len(repr(Result(Path("a" * 1000), "b" * 1000, (), array))) < 200
