"""`etscope slim`, as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etscope.cli import main
from tests.support.artifacts import artifacts


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_sizes_before_and_after(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record, slim = artifacts("cnn_xnnpack").etrecord, tmp_path / "slim.etrecord"

    code, out, err = run(capsys, "slim", record, slim)

    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(f"{record}: ")
    assert out.splitlines()[1].startswith(f"{slim}: ")
    assert "exported_program_state_dict" in out
    assert slim.stat().st_size < record.stat().st_size / 4  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack_lowered"])
def test_a_slim_record_explains_as_much(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    files, slim = artifacts(name), tmp_path / "slim.etrecord"
    run(capsys, "slim", files.etrecord, slim)

    for verb in (["graph", "RECORD", "edge", "-d", files.etdump], ["graph", "RECORD", "edge"]):
        answers = []
        for record in (files.etrecord, slim):
            arguments = [record if part == "RECORD" else part for part in verb]
            _, out, _ = run(capsys, *arguments, "-f", "json")
            answers.append(json.loads(out)["rows"])
        assert answers[0] == answers[1]


def test_the_record_is_never_overwritten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "record"
    path.write_bytes(artifacts("cnn_portable").etrecord.read_bytes())  # type: ignore[union-attr]
    link = tmp_path / "link"
    link.symlink_to(path)
    before = path.read_bytes()

    for other in (path, link):
        code, out, err = run(capsys, "slim", path, other)
        assert (code, out) == (2, "")
        assert "are the same file" in err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("/nowhere", 2, "ETRecord file not found"),
        ("program", 3, "not an ETRecord: this is an Exec"),
    ],
)
def test_what_is_no_record_leaves_no_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, source: str, code: int, message: str
) -> None:
    given = artifacts("cnn_portable").pte if source == "program" else source
    found, out, err = run(capsys, "slim", given, tmp_path / "slim")
    assert (found, out) == (code, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []
