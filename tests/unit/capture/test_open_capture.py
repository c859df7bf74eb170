"""`open_capture`: the files of a run in any order, told by content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from etscope.analysis.matching.export import Export
from etscope.analysis.profile.trace import Trace
from etscope.capture import open_capture
from etscope.errors import MismatchError, UsageError
from tests.support.artifacts import artifacts


def test_a_dump_with_its_record_and_program_is_a_run() -> None:
    made = artifacts("cnn_xnnpack")
    capture = open_capture(made.pte, made.etdump, made.etrecord)
    assert isinstance(capture, Trace)
    assert capture.record is not None and capture.program is not None
    assert [profile.method for profile in capture.profiles()] == ["forward"]


@pytest.mark.parametrize("names", [("pte",), ("etrecord",), ("pte", "etrecord")])
def test_without_a_dump_it_is_an_export(names: tuple[str, ...]) -> None:
    made = artifacts("cnn_xnnpack")
    capture = open_capture(*(getattr(made, name) for name in names))
    assert isinstance(capture, Export)
    assert (capture.program is not None, capture.record is not None) == (
        "pte" in names,
        "etrecord" in names,
    )


def test_a_folder_holds_the_files_of_a_run(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    shutil.copy(made.etdump, tmp_path / "run.etdp")
    shutil.copy(made.etrecord, tmp_path / "model.etrecord")
    capture = open_capture(tmp_path)
    assert isinstance(capture, Trace) and capture.record is not None


def test_files_of_several_runs_are_refused() -> None:
    one, other = artifacts("cnn_xnnpack"), artifacts("cnn_portable")
    with pytest.raises(UsageError, match="the files of 2 runs"):
        open_capture(one.etdump, other.etdump)


def test_files_that_do_not_belong_together_are_refused_unless_forced() -> None:
    one, other = artifacts("cnn_xnnpack"), artifacts("two_methods")
    with pytest.raises(MismatchError):
        open_capture(other.etdump, one.etrecord)
    assert isinstance(open_capture(other.etdump, one.etrecord, force=True), Trace)
    portable = artifacts("cnn_portable")
    with pytest.raises(MismatchError):
        open_capture(portable.pte, one.etrecord)
    assert isinstance(open_capture(portable.pte, one.etrecord, force=True), Export)
