"""The windows that a long text is cut into, and what is read as its tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import FormatError, MissingFileError, UsageError
from etscope.evaluation._token_results import Window, windows
from etscope.evaluation._tokens import read_tokens


def test_windows_by_hand() -> None:
    """Disjoint ones predict all but the first token, each from those of its own window."""
    assert list(windows(7, 3, 3)) == [Window(0, 1, 4), Window(3, 4, 7)]
    assert list(windows(6, 4, 2)) == [Window(0, 1, 5), Window(1, 5, 6)]
    assert list(windows(8, 4, 2)) == [Window(0, 1, 5), Window(2, 5, 7), Window(3, 7, 8)]
    assert list(windows(2, 100, 100)) == [Window(0, 1, 2)]


@given(st.integers(2, 200), st.integers(1, 40), st.data())
def test_each_token_is_predicted_once_from_as_much_as_fits(
    count: int, context: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, context))
    found = list(windows(count, context, stride))
    predicted = [token for one in found for token in range(one.first, one.end)]
    assert predicted == list(range(1, count))
    for one in found:
        given_tokens = one.end - 1 - one.begin
        assert 1 <= given_tokens <= context
        assert given_tokens == context or one.begin == 0
        assert one.begin < one.first
    for one in found[1:]:
        assert one.end - one.first <= stride


def test_tokens_of_files(tmp_path: Path) -> None:
    (tmp_path / "ids.tokens").write_text("1, 5\n9 3")
    assert read_tokens(tmp_path / "ids.tokens") == [1, 5, 9, 3]
    np.save(tmp_path / "ids.npy", np.array([[4, 7]], np.int32))
    assert read_tokens(str(tmp_path / "ids.npy")) == [4, 7]
    np.savez(tmp_path / "one.npz", np.array([2, 3]))
    assert read_tokens(tmp_path / "one.npz") == [2, 3]
    np.savez(tmp_path / "named.npz", logits=np.zeros((2, 3)), tokens=np.array([8, 9]))
    assert read_tokens(tmp_path / "named.npz") == [8, 9]
    assert read_tokens("5,6") == [5, 6]


def test_files_without_tokens(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(1, int), b=np.zeros(1, int))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "two.npz").read_bytes()[:60])
    np.save(tmp_path / "floats.npy", np.zeros(3))
    (tmp_path / "words.txt").write_text("call me Ishmael")
    for name, error, message in (
        ("two.npz", FormatError, "none of its 2 arrays is called tokens"),
        ("cut.npz", FormatError, "not a file of numpy"),
        ("floats.npy", UsageError, "whole numbers, not float64"),
        ("none.tokens", MissingFileError, "none.tokens"),
        ("words.txt", UsageError, "'call' is not a token id"),
    ):
        with pytest.raises(error, match=message):
            read_tokens(tmp_path / name)
