"""The examples run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.source_tree import ROOT
from tests.support.warm import warm_python

pytest.importorskip("executorch")


@pytest.mark.nightly
def test_the_demo(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [warm_python(), str(ROOT / "examples/demo.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "140"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.startswith(("wrote ", "saved in ")) for line in done.stderr.splitlines())
    assert "keyword_spotter.py:" in done.stdout
    assert "Method::execute" in done.stdout
    assert len(done.stdout.splitlines()) <= 50
    for name in ("float/model.pte", "int8/model.etrecord", "int8/run.etdp", "report.html"):
        assert (tmp_path / name).stat().st_size > 0
