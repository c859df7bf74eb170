"""The selector language."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import UsageError
from etscope.model.selector import Selector

CONV = {
    "name": ["convolution.out"],
    "op": ["aten::convolution.out", "aten.convolution.default"],
    "module": ["blocks.0.conv"],
    "type": ["Conv2d"],
    "file": ["/home/me/proj/model.py:34"],
    "delegate": [],
    "handle": ["12"],
    "id": ["3"],
    "kind": ["kernel"],
    "shape": ["1x3x8x8", "1x16x4x4"],
    "dtype": ["float32", "int8"],
}


MATCHES = [
    *("convolution.out", "'convolution.out'", "conv*", "CONV*", "op:convolution", "op:conv*"),
    *("op:aten::convolution.out", "op:aten.convolution.default", "type:conv2d"),
    *("module:blocks", "module:blocks.0", "module:blocks.*.conv"),
    *("shape:1x3x8x8", "shape:1x16x*", "dtype:int8 and not dtype:int32"),
    *("file:model.py", "file:model.py:34", "file:proj/model.py", "handle:12", "handle:10-20"),
    r"file:proj\model.py:34",
    *("id:3 and kind:kernel", "not delegate:*", "(relu or conv*) and not module:head"),
    "relu or module:blocks and op:conv*",
]
OTHERS = [
    *("relu", "conv", "not conv*", "op:conv", "aten::convolution.out", "module:block"),
    *("module:blocks.0.conv.bias", "file:odel.py", "file:model.py:3", "handle:1", "handle:13-20"),
    *("delegate:*", "relu or module:head and op:conv*"),
]


@pytest.mark.parametrize("text", [*MATCHES, *OTHERS])
def test_what_a_selector_matches(text: str) -> None:
    assert Selector(text).matches(CONV) == (text in MATCHES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a pattern"),
        ("and conv", "expected a pattern"),
        ("conv or", "expected a pattern"),
        ("(conv", r"expected '\)'"),
        ("conv relu", "column 6: expected 'and' or 'or'"),
        ("modul:x", "unknown key 'modul'"),
        ("op:", "nothing after op:"),
        ("'conv", "quote is not closed"),
        ("(" * 200 + "a", "nested too deeply"),
    ],
)
def test_what_is_no_selector_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Selector(text)


@given(st.text(alphabet="ab():*'\" notrd", max_size=40))
def test_any_text_is_a_selector_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert Selector(text).matches(CONV) in (True, False)


def test_a_range_of_absurd_numbers_matches_nothing() -> None:
    assert not Selector("handle:" + "9" * 5000 + "-7").matches({"handle": ["7"]})
