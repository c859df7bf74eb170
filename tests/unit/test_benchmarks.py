"""Benchmarks that are measured by themselves take their place among the others' rows."""

from __future__ import annotations

from benchmarks.run import HEAD, MARKS, merged

TITLES = ["first", "second, `a | b`", "third"]
RULE = "|---|---|"


def page(*rows: str) -> str:
    return "\n".join(["# Title", MARKS[0], "Measured.", "", HEAD, RULE, *rows, MARKS[1], "| end |"])


def test_rows_that_are_not_measured_anew_stay() -> None:
    old = page("| first **missed** | 1 s |", "| third | 3 s |", "| gone | 4 s |")
    new = [HEAD, RULE, "| second, `a | b` | 2 s |", "| third **missed** | 9 s |"]
    assert merged(new, old, TITLES)[2:] == [
        "| first **missed** | 1 s |",
        "| second, `a | b` | 2 s |",
        "| third **missed** | 9 s |",
    ]


def test_a_page_without_a_table() -> None:
    assert merged([HEAD, RULE, "| first | 1 s |"], page(), TITLES)[2:] == ["| first | 1 s |"]
