"""`etscope report`, as a person or a script calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from etscope.cli import main
from tests.support.artifacts import artifacts


def data_of(path: Path) -> dict[str, object]:
    """What the page at `path` carries."""
    found = re.search(r'<script type="application/json" id="etscope-data">(.*?)</script>',
                      path.read_text(), re.DOTALL)  # fmt: skip
    data: dict[str, object] = json.loads(found[1])
    return data


def run(*arguments: object) -> int:
    return main(["report", *map(str, arguments)])


def test_a_report_is_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = artifacts("cnn_portable")
    out = tmp_path / "r.html"

    code = run(files.etrecord, files.etdump_timing, "-o", out, "--title", "A <title>")

    assert (code, capsys.readouterr().out) == (0, "")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
    data = data_of(out)
    assert data["title"] == "A <title>"
    assert len(data["runs"]) == 1  # type: ignore[arg-type]


def test_two_dumps_are_two_runs(tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    out = tmp_path / "r.json"
    code = run(
        files.etdump, files.etdump_timing, "-r", files.etrecord, "-p", files.pte, "-o", out,
        "--no-numerics", "--unit", "us",
    )  # fmt: skip
    runs = json.loads(out.read_text())["runs"]
    assert code == 0
    assert [found["unit"] for found in runs] == ["us", "us"]
    assert "--no-numerics" in runs[0]["numericsNote"]


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(artifacts("cnn_portable").pte, "-o", "-") == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "nothing to report on"),
        (["none.etdp"], 2, "not found"),
        (["--source-unit", "years"], 2, "Invalid value"),
    ],
)
def test_wrong_calls(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == code
    assert words in capsys.readouterr().err


def test_files_of_two_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"
    files = (artifacts("cnn_portable").etdump_timing, artifacts("cnn_xnnpack").etrecord)
    assert run(*files, "-o", out) == 3
    assert "do not belong together" in capsys.readouterr().err
    assert not out.exists()
    assert run(*files, "-o", out, "--force") == 0
    assert "was not checked" in " ".join(data_of(out)["runs"][0]["notes"])  # type: ignore[index]


def test_numerics_that_cannot_be_are_an_error_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = artifacts("cnn_portable")
    code = run(files.etdump_timing, files.etrecord, "--numerics", "-o", tmp_path / "r.html")
    assert code == 4
    assert "no logged values" in capsys.readouterr().err
