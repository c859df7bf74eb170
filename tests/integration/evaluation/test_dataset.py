"""The forms of a dataset, and of labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import (
    EtscopeWarning,
    FormatError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    UsageError,
)
from etscope.evaluation import Sample, open_dataset, read_labels
from etscope.formats.torch_files.tensor_files import TensorFile

SHAPE = (1, 3)


def fit(given: Any) -> Sequence[Any]:
    """As a method with one input of that shape has it."""
    if isinstance(given, TensorFile):
        given = given.values
    if isinstance(given, dict):
        given = tuple(given.values())
    value = np.asarray(given[0] if isinstance(given, (tuple, list)) else given)
    if value.shape != SHAPE:
        raise MismatchError(f"it has the shape {list(value.shape)}")
    return [value]


def read(source: Any, limit: int | None = None) -> tuple[list[str], list[float], int | None]:
    """Names, first numbers, and the count that is known beforehand."""
    found = open_dataset(source, fit, limit)
    samples = list(found.samples)
    return [s.name for s in samples], [float(s.inputs()[0][0, 0]) for s in samples], found.count


def rows(count: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(count, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)


def test_a_folder_has_a_sample_in_each_file_numbers_by_value(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        np.save(tmp_path / f"s{number}.npy", rows(11)[number : number + 1])
    np.savez(tmp_path / "t.npz", x=rows(4)[3:])
    (tmp_path / ".hidden.npy").write_bytes(b"")
    assert read(tmp_path) == (["s1.npy", "s2.npy", "s10.npy", "t.npz"], [1, 2, 10, 3], 4)
    assert read(tmp_path, 2) == (["s1.npy", "s2.npy"], [1, 2], 2)
    (tmp_path / "notes.md").write_text("")
    with pytest.warns(EtscopeWarning, match=r"1 files in .* are not samples \(notes.md\)"):
        read(tmp_path)


@pytest.mark.parametrize("keeps_axis", [False, True])
def test_the_first_axis_of_a_file_counts_the_samples(tmp_path: Path, keeps_axis: bool) -> None:
    array = rows(5) if keeps_axis else rows(5)[:, None]
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    for name in ("a.npy", "a.npz"):
        names, numbers, count = read(tmp_path / name, 3)
        assert names == [f"{name} 0", f"{name} 1", f"{name} 2"]
        assert (numbers, count) == ([0, 1, 2], 3)
    assert read(array)[1] == read({"x": array})[1] == [0, 1, 2, 3, 4]


def test_pt_files_hold_a_list_of_samples_or_arrays(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.from_numpy(rows(3))
    for name, content in (
        ("list.pt", [(whole[n : n + 1],) for n in range(3)]),
        ("tensor.pt", whole),
        ("dict.pt", {"x": whole[:, None]}),
    ):
        torch.save(content, tmp_path / name)
        names, numbers, count = read(tmp_path / name)
        assert (names[2], numbers, count) == (f"{name} 2", [0, 1, 2], 3)


def test_what_can_be_gone_through_is_read_as_it_goes() -> None:
    taken = []

    def samples() -> Any:
        for number in range(1000):
            taken.append(number)
            yield (rows(3)[2:],)

    found = open_dataset(samples(), fit, 4)
    assert found.count == 4 and not taken
    first = next(found.samples)
    assert isinstance(first, Sample) and taken == [0]
    assert [one.name for one in found.samples] == ["#1", "#2", "#3"]
    assert len(taken) == 4
    assert read([rows(1), rows(1)])[2] == 2


def test_what_is_no_dataset_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.npz").write_bytes(b"junk" * 10)
    for source, error, words in (
        (tmp_path / "empty", MissingDataError, "does not have tensor files"),
        ([], MissingDataError, "no samples"),
        (rows(0), MissingDataError, "no samples"),
        (tmp_path / "nothing.npz", MissingFileError, "not found"),
        (tmp_path / "junk.npz", FormatError, "junk.npz"),
        (3, UsageError, "int is not a dataset"),
        ({"x": rows(3), "y": rows(2)}, MismatchError, r"shapes \[3, 3\], \[2, 3\]"),
    ):
        with pytest.raises(error, match=words):
            open_dataset(source, fit)
    for source, error, words in (
        (np.zeros((3, 2), np.float32), MismatchError, r"the shape \[2\]"),
        ([None], UsageError, "None is not a sample"),
    ):
        with pytest.raises(error, match=words):
            next(open_dataset(source, fit).samples).inputs()


def sample(number: int, name: str = "") -> Sample:
    return Sample(number, name, list)


def test_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([3, 1]))
    np.savez(tmp_path / "a.npz", labels=np.array([[3, 4], [1, 2]]))
    (tmp_path / "a.txt").write_text("3\n1\n\n")
    (tmp_path / "a.csv").write_text('file,label\none.npy,3\n"two",1\n')
    for name in ("a.npy", "a.txt"):
        labels = read_labels(tmp_path / name)
        assert [labels.of(sample(n)) for n in (0, 1)] == [(3,), (1,)]
    assert read_labels(tmp_path / "a.npz").of(sample(1)) == (1, 2)
    assert read_labels([3, 1]).of(sample(1)) == (1,)
    named = read_labels(tmp_path / "a.csv")
    assert [named.of(sample(7, name)) for name in ("one.npy", "two.pt")] == [(3,), (1,)]
    with pytest.raises(MismatchError, match="no label"):
        named.of(sample(0, "three.npy"))
    with pytest.raises(MismatchError, match="no label"):
        read_labels([3, 1]).of(sample(2))
    with pytest.raises(MismatchError, match="2 labels, and the dataset has 3"):
        read_labels([3, 1]).check(3, None)
    read_labels([3, 1]).check(3, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\nx\n", "line 2 is neither"),
        ("a,1\na,2\n", "has a label already"),
        ("a,1\n2\n", "some lines have a name"),
        ("label\n", "contains no labels"),
    ],
)
def test_broken_labels(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=words):
        read_labels(path)


def test_what_are_no_labels_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="labels file not found"):
        read_labels(tmp_path / "labels.txt")
    with pytest.raises(UsageError, match="integers"):
        read_labels([0.5, 1.5])
    np.savez(tmp_path / "two.npz", a=np.array([1]), b=np.array([1]))
    with pytest.raises(FormatError, match="one array"):
        read_labels(tmp_path / "two.npz")
