"""What is kept of files is for the same bytes, and of bounded size."""

from __future__ import annotations

import pytest

from etscope.formats.bytes.kept import Kept


def test_the_same_bytes_and_options_are_made_once() -> None:
    kept, made = Kept[object](most=100), list[object]()

    def make() -> object:
        made.append(object())
        return made[-1]

    first = kept.made((b"graph", b"cuts"), "name", make)
    assert kept.made((bytearray(b"graph"), memoryview(b"cuts")), "name", make) is first
    others = [
        ((b"Graph", b"cuts"), "name"),
        ((b"graphc", b"uts"), "name"),
        ((b"graph", b"cuts"), 1),
    ]
    for content, options in others:
        assert kept.made(content, options, make) is not first
    assert len(made) == 4


def test_those_used_last_stay_and_large_ones_are_not_kept() -> None:
    kept = Kept[str](most=10)
    kept.made((b"aaaa",), None, lambda: "a")
    kept.made((b"bbbb",), None, lambda: "b")
    assert kept.made((b"aaaa",), None, lambda: "a again") == "a"
    kept.made((b"cccc",), None, lambda: "c")
    assert kept.made((b"aaaa",), None, lambda: "a again") == "a"
    assert kept.made((b"bbbb",), None, lambda: "b again") == "b again"
    for again in ("large", "large again"):
        assert kept.made((b"d" * 11,), None, lambda again=again: again) == again
    assert kept.made((b"bbbb",), None, lambda: "b a third time") == "b again"


def test_errors_and_none_are_not_kept() -> None:
    kept = Kept[str | None](most=10)
    assert kept.made((b"a",), None, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        kept.made((b"a",), None, lambda: str(1 / 0))
    assert kept.made((b"a",), None, lambda: "a") == "a"
