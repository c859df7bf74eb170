"""`Inspector.report`: the file it writes, and that its numbers are the Inspector's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from etscope import Inspector
from tests.support.artifacts import artifacts


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'id="etscope-data">(.*?)</script>', path.read_text(), re.DOTALL)
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_times_are_in_the_inspectors_scale_and_by_its_converter(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    files = artifacts("cnn_xnnpack")
    inspector = Inspector(
        files.etdump_timing,
        etrecord=files.etrecord,
        target_time_scale="us",
        delegate_time_scale_converter=lambda name, time: 7 * time,
    )
    inspector.report(path, title="mine")
    data = data_of(path)
    (run,) = data["runs"]
    assert (data["title"], run["unit"]) == ("mine", "us")
    frame = inspector.to_dataframe(include_units=False)
    events = run["methods"][0]["events"]["values"]
    assert events["avg"] == frame["avg"].tolist()
    assert {file["role"] for file in run["files"]} == {"dump", "record"}
    content = artifacts("cnn_portable").etdump_timing.read_bytes()
    Inspector(etdump_data=content).report(path)  # a dump in memory has one, too
    (run,) = data_of(path)["runs"]
    assert run["files"][0]["bytes"] == len(content)
    assert any("No ETRecord" in note for note in run["notes"])
