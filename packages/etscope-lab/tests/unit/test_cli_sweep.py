"""`etscope lab sweep`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from etscope_lab.cli.options import parse_span
from etscope_lab.jobs.spec import spec_of
from etscope_lab.lab import Lab
from tests.support.cli.fixtures import Run


def test_what_no_job_has_goes_when_it_is_old(run: Run, tmp_path: Path) -> None:
    with Lab.open(tmp_path / "lab") as lab:
        needed = lab.store.put_stream([b"of a job"], "model.pte")
        forgotten = lab.store.put_stream([b"of nobody"], "other.pte")
        lab.submit(spec_of({"model": f"sha256:{needed.sha256}"}))
        home = "--home", tmp_path / "lab"
        assert run("lab", *home, "sweep")[:2] == (0, "0\n")
        assert run("lab", *home, "sweep", "--older-than", "0h")[:2] == (0, "1\n")
        assert lab.store.has(needed.sha256)
        assert not lab.store.has(forgotten.sha256)


@pytest.mark.parametrize(
    ("text", "hours"), [("12h", 12), (" 7d", 7 * 24), ("2w", 2 * 7 * 24), ("5m", None), ("d", None)]
)
def test_spans_of_time(text: str, hours: int | None, run: Run, tmp_path: Path) -> None:
    assert parse_span(text) == (None if hours is None else timedelta(hours=hours))
    if hours is None:
        assert run("lab", "sweep", "--older-than", text)[0] == 2


def test_what_a_killed_server_left_goes(tmp_path: Path) -> None:
    with Lab.open(tmp_path / "lab") as lab:
        left = [lab.home.folder / "uploads" / "upload-x", lab.home.live_log("0123")]
        for path in left:
            path.parent.mkdir()
            path.write_text("half")
        assert lab.sweep(3600) == 0
        assert all(path.exists() for path in left)
        assert lab.sweep(-1) == 0
        assert not any(path.exists() for path in left)
