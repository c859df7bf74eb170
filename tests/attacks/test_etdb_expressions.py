"""Texts that must not run, hang or take the machine's memory: all end in an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from etscope.errors import EtscopeError, UsageError
from etscope.etdb.expression import evaluate, parse
from tests.attacks.mutations import limited

WRITABLE = np.zeros(4, np.float32)


class Scope:
    """Two tensors, one of which a text could write to."""

    def value(self, name: str) -> Any:
        values = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": WRITABLE}
        if name not in values:
            raise UsageError(f"no value is called {name!r}")
        return values[name]

    def function(self, name: str) -> Callable[..., Any] | None:
        return None


HOSTILE = [
    # Attributes, names and syntax beyond arithmetic.
    *("__import__('os').system('true')", "().__class__.__bases__", "x.__class__", "import os"),
    *("x.tofile('/tmp/etscope_attack')", "x.dump('/tmp/etscope_attack')", "x.data", "x.ctypes"),
    *("x.base", "open('/etc/passwd')", "eval('1')", "exec('1')", "getattr(x, 'data')", "unknown"),
    *("(lambda: 1)()", "[i for i in x]", "{1: 2}", "f'{x}'", "(a := 1)", "x if 1 else y", "*x"),
    *("yield x", "await x", "x = 1", "x; y", "x\ny", "x +", "", "\x00", "x\u202e", "x.mean"),
    # Calls and operators that do not fit.
    *("x.item().__class__", "abs(x, y)", "x.exp(y)", "sqrt(x, out=y)", "x.sum(out=y)", "gap(x)"),
    *("x.reshape(99)", "x[None, 'a']", "x['a']", "x[1.5]", "x[99]", "1 / 'a'", "x[...] @ 'a'"),
    *("x.reshape(-1)[:, None] @ 5", "round(x, 'a')", "sum(x, 'a')", "sum(x, axis=99)"),
    # What would take much time or memory.
    *("9 ** 99999", "10 ** 10 ** 10", "x ** 1000", "'a' * 1000000000", "1" * 1000),
    *("(" * 300 + "x" + ")" * 300, "-" * 500 + "x", "not " * 500 + "x", "x" + "[0]" * 500),
    "x." + "a" * 3000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_an_error_and_nothing_else(text: str) -> None:
    with limited(), pytest.raises(EtscopeError) as caught:
        evaluate(parse(text), Scope())
    assert caught.value.message
    assert not WRITABLE.any()


def test_results_are_bounded() -> None:
    class Large(Scope):
        def value(self, name: str) -> Any:
            return np.zeros(1 << 16, np.float32)

    for text in (
        "a[:, None] + a",
        "a[:, None] * a[None]",
        "a[:, None] @ a[None]",
        "a[:, None] < a",
    ):
        with pytest.raises(UsageError, match="too large"):
            evaluate(parse(text), Large())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.shape", [2, 3]),
        ("x.mean()", 2.5),
        ("x.abs().max()", 5.0),
        ("x[0, :2].sum()", 1.0),
        ("x[..., -1].sum()", 7.0),
        ("(x - 1).abs().max() > 3", True),
        ("x.dtype == 'float32'", True),
        ("x.shape == [2, 3]", True),
        ("x.max(dim=1)[0]", 2.0),
        ("x.sum(axis=0)[1]", 5.0),
        ("1 < 2 < 3", True),
        ("1 < 2 and not 3 < 2", True),
        ("-x[1, 2] ** 2", -25.0),
        ("x.T.shape", [3, 2]),
        ("(x @ x.T)[0, 0]", 5.0),
        ("isnan(x).any() or x.numel() == 6", True),
        ("x.reshape(3, 2)[2, 1]", 5.0),
    ],
)
def test_what_people_write_has_its_value(text: str, expected: object) -> None:
    assert evaluate(parse(text), Scope()) == expected
