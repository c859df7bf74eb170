"""The demo runs."""

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
        [warm_python(), "-m", "etscope", "run", "--demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "140"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wrote, kept = done.stderr.splitlines()
    assert wrote == "wrote keyword_spotter.py: the model of the demo"
    assert kept.endswith("; next: etscope explain, etscope report, etscope inspect")
    assert (tmp_path / "keyword_spotter.py").read_text() == (
        ROOT / "examples" / "keyword_spotter.py"
    ).read_text()
    assert "keyword_spotter.py:" in done.stdout
    assert "Method::execute" in done.stdout
    assert len(done.stdout.splitlines()) <= 60
