"""KEY=VALUE is read, and refused, in the same way by every command and form."""

from __future__ import annotations

import pytest

from etscope.errors import UsageError
from etscope.support.options import key_values


def test_pairs() -> None:
    assert key_values(("a=1", "b = x=y ", "c=", "a=1"), "label") == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1", " = 1"):
        with pytest.raises(UsageError, match=f"label '{wrong}' is not KEY=VALUE"):
            key_values((wrong,), "label")
    with pytest.raises(UsageError, match="label a is given twice: 1 and 2"):
        key_values(("a=1", "a=2"), "label")
