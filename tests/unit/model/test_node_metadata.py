"""Module stacks, debug handles and origins as text."""

from __future__ import annotations

import json

import pytest

from etscope.errors import FormatError
from etscope.model.exported_graph import Origins, debug_handle, module_frames
from etscope.model.graph import ModuleFrame, Origin


@pytest.mark.parametrize(
    ("stack", "frames"),
    [
        (None, ()),
        ("", ()),
        ("L__self__,,__main__.Net", (ModuleFrame("L__self__", "", "__main__.Net"),)),
        (
            "k,a.0,m.A;k2,a.0.b,m.B",
            (ModuleFrame("k", "a.0", "m.A"), ModuleFrame("k2", "a.0.b", "m.B")),
        ),
        ("k,p,m.T[int, str]", (ModuleFrame("k", "p", "m.T[int, str]"),)),
        ("k,L['self'].x[0],m.T", (ModuleFrame("k", "L['self'].x[0]", "m.T"),)),
        ("k,a[31m,m.T", (ModuleFrame("k", "a[31m", "m.T"),)),
        ("k, p, f(a, (b, c))", (ModuleFrame("k", "p", "f(a, (b, c))"),)),
        ("k,p,t]],x", (ModuleFrame("k", "p", "t]],x"),)),
    ],
)
def test_module_stacks(stack: str | None, frames: tuple[ModuleFrame, ...]) -> None:
    assert module_frames(stack) == frames


def test_a_broken_module_stack() -> None:
    with pytest.raises(FormatError, match="key,path,type"):
        module_frames("key,path")


@pytest.mark.parametrize(
    ("text", "handle"), [("17", 17), ("0", 0), ("-1", -1), ("None", None), (None, None)]
)
def test_debug_handles(text: str | None, handle: int | None) -> None:
    assert debug_handle(text) == handle


@pytest.mark.parametrize("text", ["", "1.0", "9" * 30, "1_000", "[1]"])
def test_broken_debug_handles(text: str) -> None:
    with pytest.raises(FormatError):
        debug_handle(text)


def test_origins_are_parsed_once_and_compare_as_tuples() -> None:
    link = {"name": "a", "target": "t", "graph_id": 5, "pass_name": "", "action": "create"}
    origins = Origins(json.dumps([{**link, "from_node": []}]))
    expected = (Origin("a", "t", 5, "", ("create",)),)
    assert origins == expected and len(origins) == 1 and origins[-1] is origins[0]
    assert origins[0:] == expected and hash(origins) == hash(expected)
    assert repr(origins) == repr(expected)
    assert Origins("null") == ()
