"""Files of backends' tools in the report's page: their tables and their tracks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from etscope.backends.registry.tool_files import read_backend_file
from etscope.capture.files import runs_of_files
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.views.page import document_of
from tests.support.backend_files import ETHOS_U_KERNELS, chrome_trace, pmu_log, run_of
from tests.support.browser.chromium import screenshot

RECORD = Path(__file__).parents[2] / "corpus" / "ethos_u" / "net.etrecord"
TRACK = '[data-testid="timeline-track"]'


def document(folder: Path, *files: str) -> Any:
    dump = folder / "run.etdp"
    dump.write_bytes(run_of(runs=3, kernels=ETHOS_U_KERNELS))
    given = []
    for number, content in enumerate(files):
        path = folder / f"file{number}"
        path.write_text(content)
        given.append((None, read_backend_file(path)))
    options = ReportOptions(backend_files=given)
    return document_of(list(report_inputs(runs_of_files([dump, RECORD]), options)))


def test_a_file_has_a_table_and_a_track_and_is_in_no_sum(
    page: Any, page_of: Any, tmp_path: Path
) -> None:
    found = document(tmp_path, json.dumps(chrome_trace(runs=3)), pmu_log())
    report = page_of(found)

    page.goto(f"{report}#run0/summary/0")
    page.wait_for_selector("text=file1 · Ethos-U PMU log · EthosUBackend #1 of forward")
    assert page.locator("text=AXI0_RD_DATA_BEAT_RECEIVED").count() == 1

    page.goto(f"{report}#run0/timeline/0")
    page.wait_for_selector(TRACK)
    tracks = page.locator(TRACK).all_inner_texts()
    assert sum("file0 · Chrome trace" in text for text in tracks) == 3
    page.focus('[data-testid="timeline-canvas"]')
    page.keyboard.press("f")
    page.keyboard.press("m")
    total = page.wait_for_selector('[data-testid="span-total"]')
    method = found["runs"][0]["methods"][0]
    assert math.isclose(float(total.get_attribute("data-value")), sum(method["totals"]))
    rows = page.locator('[data-testid="span-row"]').evaluate_all(
        "all => all.map(one => Number(one.dataset.value))"
    )
    assert math.isclose(sum(rows), sum(method["totals"]))
    screenshot(page, "timeline-backend-file")
