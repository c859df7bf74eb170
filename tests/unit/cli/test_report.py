"""`etscope report`, as a person or a script calls it."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run


def data_of(path: Path) -> dict[str, object]:
    """What the page at `path` carries."""
    found = re.search(r'<script type="application/json" id="etscope-data">(.*?)</script>',
                      path.read_text(), re.DOTALL)  # fmt: skip
    data: dict[str, object] = json.loads(found[1])
    return data


@pytest.fixture
def report(run: Run) -> Run:
    return partial(run, "report")


def test_a_report_is_one_file(report: Run, tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    out = tmp_path / "r.html"

    said = report(files.etrecord, files.etdump_timing, "-o", out, "--title", "A <title>")

    assert said[:2] == (0, "")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
    data = data_of(out)
    assert data["title"] == "A <title>"
    assert len(data["runs"]) == 1  # type: ignore[arg-type]


def test_two_dumps_are_two_runs(report: Run, tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    out = tmp_path / "r.json"
    code, _, _ = report(
        files.etdump, files.etdump_timing, "-r", files.etrecord, "-p", files.pte, "-o", out,
        "--no-numerics", "--unit", "us",
    )  # fmt: skip
    runs = json.loads(out.read_text())["runs"]
    assert code == 0
    assert [found["unit"] for found in runs] == ["us", "us"]
    assert "--no-numerics" in runs[0]["numericsNote"]


def test_standard_output(report: Run) -> None:
    code, out, _ = report(artifacts("cnn_portable").pte, "-o", "-")
    assert code == 0 and out.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "nothing to report on"),
        (["none.etdp"], 2, "not found"),
        (["--source-unit", "years"], 2, "Invalid value"),
    ],
)
def test_wrong_calls(report: Run, arguments: list[str], code: int, words: str) -> None:
    found, _, err = report(*arguments)
    assert found == code and words in err


def test_files_of_two_exports(report: Run, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    files = (artifacts("cnn_portable").etdump_timing, artifacts("cnn_xnnpack").etrecord)
    code, _, err = report(*files, "-o", out)
    assert code == 3 and "do not belong together" in err
    assert not out.exists()
    assert report(*files, "-o", out, "--force")[0] == 0
    assert "was not checked" in " ".join(data_of(out)["runs"][0]["notes"])  # type: ignore[index]


def test_numerics_that_cannot_be_are_an_error_when_asked_for(report: Run, tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    given = (files.etdump_timing, files.etrecord, "--numerics")
    code, _, err = report(*given, "-o", tmp_path / "r.html")
    assert code == 4 and "no logged values" in err
