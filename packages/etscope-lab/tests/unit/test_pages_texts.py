"""Values as the pages write them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from etscope_lab.pages import _site as _texts


def test_a_time_has_the_unit_that_suits_it() -> None:
    nothing = "–"  # noqa: RUF001
    milliseconds: dict[Any, str] = {
        None: nothing,
        "12": nothing,
        0: "0 ms",
        1234.5: "1.2345 s",
        12.0: "12.000 ms",
        0.020412: "20.412 µs",
        0.000083: "83 ns",
        -0.0023821: "-2.3821 µs",
    }
    assert {value: _texts.duration(value) for value in milliseconds} == milliseconds
    lengths = {3.21: "3.2 s", 61: "1 min 1 s", 3725: "1 h 2 min", None: nothing}
    assert {value: _texts.seconds(value) for value in lengths} == lengths


def test_times_have_their_zone() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    text = '<time datetime="2026-01-02T03:04:05+00:00">2026-01-02 03:04:05 UTC</time>'
    assert str(_texts.when(at)) == text


def test_a_log_keeps_its_lines_and_nothing_in_it_acts() -> None:
    assert _texts.lines("<b>\x1b[31m\nnext\u202e") == "&lt;b&gt;\\x1b[31m\nnext\\u202e"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("memory_bytes", "1048576", ("memory", "1.00 MiB")),
        ("memory_bytes", "much", ("memory", "much")),
        ("peak_ms", 2.0, ("peak", "2.0000 ms")),
        ("cores", "8", ("cores", "8")),
        ("fine", True, ("fine", "yes")),
        ("nested", {"a": [1, 2]}, ("nested", "a: 1, 2")),
    ],
)
def test_facts_have_units_by_their_names(name: str, value: Any, shown: tuple[str, str]) -> None:
    assert (_texts.fact_name(name), _texts.fact(value, name)) == shown
