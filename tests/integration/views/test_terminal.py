"""The table for people, looked at as golden files and held to its promises."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etscope.model.table import Column, Kind, Table
from etscope.views import write_table
from etscope.views.tables.report import cell_width, cut_start
from tests.support.golden_files import check_golden
from tests.support.views import shapes


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(table: Table, **options: object) -> str:
    out = io.StringIO()
    write_table(table, "table", out, **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140, None])
def test_events(width: int | None) -> None:
    check_golden(f"terminal/events_{width or 'piped'}.txt", shown(shapes.events(), width=width))


def test_events_in_colour() -> None:
    text = shown(shapes.events(), width=140, color=True)
    check_golden("terminal/events_140_colour.txt", text)
    assert re.sub(r"\x1b\[\d*m", "", text) == shown(shapes.events(), width=140)


@pytest.mark.parametrize("name", ["kinds", "hostile", "empty"])
def test_other_tables(name: str) -> None:
    check_golden(f"terminal/{name}.txt", shown(getattr(shapes, name)(), width=140))


def test_no_line_is_wider_than_the_terminal() -> None:
    for width in range(40, 200, 7):
        for table in (shapes.events(), shapes.hostile(), shapes.empty()):
            lines = shown(table, width=width).splitlines()
            assert max(map(cell_width, lines)) <= width


def test_numbers_are_never_cut() -> None:
    for width in (20, 60, 80, 140):
        text = shown(shapes.events(), width=width)
        assert all(value in text for value in ("12.346", "0.914", "100.0%")), width


def test_options_in_notes_are_whole() -> None:
    notes = ("etscope inspect has --source-unit, --no-numerics and float32-float64 for others",)
    table = Table((Column("a", Kind.INT),), {"a": [1]}, title="--debug-buffer-out", notes=notes)
    whole = {"--source-unit,", "--no-numerics", "float32-float64", "--debug-buffer-out"}
    for width in range(40, 90):
        assert whole <= set(shown(table, width=width).split()), width


def test_the_least_important_column_is_left_out_first() -> None:
    names = ("a", "b", "c", "d")
    priorities = (0, 2, 3, 1)
    table = Table(
        tuple(Column(n, Kind.COUNT, priority=p) for n, p in zip(names, priorities, strict=True)),
        {name: [1234567] for name in names},
    )
    heads = [shown(table, width=width).split("\n")[0].split() for width in (42, 31, 20, 9, 1)]
    assert heads == [["a", "b", "c", "d"], ["a", "b", "d"], ["a", "d"], ["a"], ["a"]]


def test_a_column_without_values_is_left_out_before_others() -> None:
    columns = (Column("name"), Column("full", priority=9), Column("nothing", priority=1))
    values = {"name": ["x"], "full": ["y"], "nothing": [None]}
    text = shown(Table(columns, values), width=12)
    assert " ".join(text.split()).endswith("columns not shown at 12 wide: nothing")


@pytest.mark.parametrize(
    ("path", "width", "text"),
    [
        ("/home/me/model.py:34", 20, "/home/me/model.py:34"),
        ("/home/me/model.py:34", 19, "…/me/model.py:34"),
        ("/home/me/model.py:34", 16, "…/me/model.py:34"),
        ("/home/me/model.py:34", 15, "…/model.py:34"),
        ("encoder.layers.0.conv", 16, "….layers.0.conv"),
        ("transformer.py:33", 14, "…sformer.py:33"),
        ("a/very_long_file_name.py", 14, "…_file_name.py"),
        ("short.py", 14, "short.py"),
    ],
)
def test_paths_keep_their_end(path: str, width: int, text: str) -> None:
    assert cut_start(path, width, "…") == text


def test_columns_variable_sets_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert shown(shapes.events()) == shown(shapes.events(), width=80)
    monkeypatch.setenv("COLUMNS", "wide")
    assert shown(shapes.events()) == shown(shapes.events(), width=None)


@pytest.mark.parametrize(
    ("variables", "terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colour_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = Terminal() if terminal else io.StringIO()
    write_table(shapes.events(), "table", out, width=80)
    assert ("\x1b[" in out.getvalue()) is coloured


def test_an_encoding_without_our_strokes_gets_ascii() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    write_table(shapes.events(), "table", out, width=80)
    out.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert lines[3].startswith("-----")
    assert lines[5].startswith("    |- Convolution")


printable = st.text(st.characters(), max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    names=st.lists(printable, min_size=1, max_size=5),
    title=printable,
    width=st.one_of(st.none(), st.integers(1, 120)),
)
def test_no_text_acts_on_the_terminal(names: list[str], title: str, width: int | None) -> None:
    table = Table(
        (Column("name", title=title), Column("where", Kind.PATH), Column("n", Kind.COUNT)),
        {"name": names, "where": names, "n": names},
        title=title,
        notes=(title,),
    )
    text = shown(table, width=width)
    assert all(char.isprintable() or char == "\n" for char in text)
    if width is None:
        assert len(text.splitlines()) <= 4 + len(names)


def test_a_very_long_name_is_bounded() -> None:
    table = Table((Column("name"),), {"name": ["x" * 1_000_000, "y"]})
    assert len(shown(table)) < 2000


def test_it_imports_next_to_nothing() -> None:
    code = (
        "import sys; import etscope.views.tables.report; "
        "print([m for m in ('numpy', 'rich', 'pandas', 'pyarrow', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
