"""`etscope convert --slim`, as a person calls it."""

from __future__ import annotations

from pathlib import Path

from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run


def test_sizes_before_and_after(run: Run, tmp_path: Path) -> None:
    record, slim = artifacts("cnn_xnnpack").etrecord, tmp_path / "slim.etrecord"
    code, out, err = run("convert", record, "--slim", "-o", slim)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(f"{record}: ")
    assert out.splitlines()[1].startswith(f"{slim}: ")
    assert "exported_program_state_dict" in out
    assert slim.stat().st_size < record.stat().st_size / 4  # type: ignore[union-attr]


def test_the_record_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    path, link, slim = (tmp_path / name for name in ("record", "link", "slim"))
    before = artifacts("cnn_portable").etrecord.read_bytes()  # type: ignore[union-attr]
    path.write_bytes(before)
    link.symlink_to(path)
    for source, target, wanted, said in (
        (path, path, 2, "are the same file"),
        (path, link, 2, "are the same file"),
        ("/nowhere", slim, 2, "ETRecord file not found"),
        (artifacts("cnn_portable").pte, slim, 3, "not an ETRecord: this is an Exec"),
    ):
        code, out, err = run("convert", source, "--slim", "-o", target)
        assert (code, out) == (wanted, "")
        assert said in err
    assert path.read_bytes() == before
    assert not slim.exists()
