"""`etscope slim`, as a person calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run


def test_sizes_before_and_after(run: Run, tmp_path: Path) -> None:
    record, slim = artifacts("cnn_xnnpack").etrecord, tmp_path / "slim.etrecord"

    code, out, err = run("slim", record, slim)

    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(f"{record}: ")
    assert out.splitlines()[1].startswith(f"{slim}: ")
    assert "exported_program_state_dict" in out
    assert slim.stat().st_size < record.stat().st_size / 4  # type: ignore[union-attr]


def test_the_record_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(artifacts("cnn_portable").etrecord.read_bytes())  # type: ignore[union-attr]
    link = tmp_path / "link"
    link.symlink_to(path)
    before = path.read_bytes()

    for other in (path, link):
        code, out, err = run("slim", path, other)
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
    run: Run, tmp_path: Path, source: str, code: int, message: str
) -> None:
    given = artifacts("cnn_portable").pte if source == "program" else source
    found, out, err = run("slim", given, tmp_path / "slim")
    assert (found, out) == (code, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []
