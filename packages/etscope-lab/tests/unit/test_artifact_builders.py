"""What the lab's pages show of a run is built from its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from etscope.formats.run_json import RUN_ETDP
from etscope_lab.pages._artifact_builders import BUILDERS
from tests.support.artifacts import artifacts


def test_operators_have_findings_and_what_to_do(tmp_path: Path) -> None:
    source, target, made = tmp_path / "in", tmp_path / "out", artifacts("cnn_portable")
    source.mkdir()
    target.mkdir()
    shutil.copy(made.etdump_timing, source / RUN_ETDP)
    shutil.copy(made.pte, source / "model")
    BUILDERS["operators"](source, target, {})
    (table,) = json.loads((target / "tables.json").read_text())
    told = table["insights"]
    assert any("that takes most" in one["sentence"] for one in told)
    start = "Nothing is delegated: kernels of the runtime take "
    (first,) = (one for one in told if one["sentence"].startswith(start))
    fix = "Lower the model to a backend: `etscope export MODEL --backend xnnpack`."
    assert fix in first["remedies"]
    assert first["place"] == "#run0/events/0?events.filter=kind%3Akernel"
