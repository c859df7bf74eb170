"""`etscope report`, as a person or a script calls it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.views.page_reports import data_of


@pytest.fixture
def report(run: Run) -> Run:
    return partial(run, "report")


def test_a_report_is_one_file(report: Run, tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    out = tmp_path / "r.html"
    said = report(files.etrecord, files.etdump_timing, "-o", out)
    assert said[:2] == (0, "")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
    data = data_of(out)
    assert data["title"] == data["runs"][0]["name"]
    assert len(data["runs"]) == 1
    code, shown, _ = report(files.pte, "-o", "-")
    assert code == 0 and shown.startswith("<!doctype html>")


def test_two_dumps_are_two_runs(report: Run, tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    out = tmp_path / "r.json"
    code, _, _ = report(
        files.etdump, files.etdump_timing, "-r", files.etrecord, "-p", files.pte, "-o", out,
        "-X", "numerics=false", "-X", "unit=us",
    )  # fmt: skip
    runs = json.loads(out.read_text())["runs"]
    assert code == 0
    assert [found["unit"] for found in runs] == ["us", "us"]
    assert "-X numerics=false" in runs[0]["numericsNote"]


def test_wrong_calls(report: Run, tmp_path: Path) -> None:
    files, out = artifacts("cnn_portable"), tmp_path / "r.html"
    for arguments, wanted, words in (
        ((), 2, "has no runs"),
        (("none.etdp",), 2, "not found"),
        (("--source-unit", "years"), 2, "Invalid value"),
        (
            (files.etdump_timing, files.etrecord, "-Xnumerics=true", "-o", out),
            4,
            "does not have logged values",
        ),
    ):
        code, _, err = report(*arguments)
        assert code == wanted and words in err
    assert not out.exists()


def test_files_of_two_exports(report: Run, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    files = (artifacts("cnn_portable").etdump_timing, artifacts("cnn_xnnpack").etrecord)
    code, _, err = report(*files, "-o", out)
    assert code == 3 and "do not belong together" in err
    assert not out.exists()
    assert report(*files, "-o", out, "--force")[0] == 0
    assert "belong together was skipped" in " ".join(data_of(out)["runs"][0]["notes"])
