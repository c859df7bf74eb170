"""The report as a browser shows it: its numbers are the Inspector's, and nothing in it acts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope import Inspector
from etscope.analysis.comparison.changes import MethodDiff
from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.diff_table import diff_table
from etscope.analysis.comparison.waterfall import waterfall_table
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.profile_table import profile_table
from etscope.capture.files import runs_of_files
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.units import TimeScale
from etscope.views.page import ReportRun, document_of
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import draw, screenshot, set_scheme
from tests.support.timed_dumps import timed_dump, told_dump
from tests.unit.views.page.test_document import HOSTILE, hostile_dump

MS = Scale(TimeScale.NS, TimeScale.MS)
MODEL = "transformer"

# Every cell of a table that is drawn: {row: {column: value}}.
READ_TABLE = """element => Object.fromEntries(
  [...element.querySelectorAll('[data-row]')].map(row => [
    row.dataset.row,
    Object.fromEntries([...row.querySelectorAll('[data-col]')].map(
      cell => [cell.dataset.col, cell.dataset.value])),
  ]))"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = artifacts(MODEL).etdump_timing
    assert source is not None
    return told_dump(source, tmp_path_factory.mktemp("told") / "timing.etdp")


@pytest.fixture(scope="module")
def inspector(dump: Path) -> Inspector:
    return Inspector(dump, etrecord=artifacts(MODEL).etrecord)


@pytest.fixture(scope="module")
def report(dump: Path, page_of: Any) -> str:
    """The address of a report of two runs, the first with values that were compared."""
    files = artifacts(MODEL)
    ran = [np.load(files.inputs)["forward/0/0"]]
    options = ReportOptions(inputs=lambda *_: ran)
    (values,) = report_inputs(
        runs_of_files([files.etdump, files.etrecord, files.pte, files.debug_buffer]), options
    )
    (times,) = report_inputs(runs_of_files([dump, files.etrecord, files.pte]))
    assert values.numerics is not None, values.numerics_note
    found: str = page_of(document_of([times, values]))
    return found


def go(page: Any, address: str, tab: str, *, run: int = 0, selection: str = "") -> None:
    page.goto(f"{address}#run{run}/{tab}/0{selection and '/'}{selection}")
    page.wait_for_selector(f'#view[data-tab="{tab}"]')


def all_boxes(page: Any, graph: str) -> int:
    """How many boxes of a graph of the first run are drawn: not those that hold only weights."""
    found: int = page.evaluate(
        """key => {
             const graphs = JSON.parse(document.getElementById('etscope-data').textContent)
               .runs[0].graphs;
             const {nodes, groups} = graphs.find(one => one.key === key);
             const drawn = new Set();
             for (const {kind, weight, group} of nodes) {
               if (kind === 'get_attr' || (kind === 'placeholder' && weight !== null)) continue;
               for (let box = group; box !== null; box = groups[box].parent) drawn.add(box);
             }
             return drawn.size;
           }""",
        graph,
    )
    return found


def near(shown: Any, expected: Any) -> bool:
    """Equal but for the last digits: the page may have summed in another order."""
    return float(shown) == pytest.approx(float(expected), rel=1e-12, nan_ok=True)


def table(page: Any, test_id: str) -> dict[int, dict[str, str]]:
    """The drawn rows of a table, by their numbers in the document."""
    element = page.wait_for_selector(f'[data-testid="{test_id}"]')
    page.wait_for_selector(f'[data-testid="{test_id}"] [data-row]')
    return {int(row): cells for row, cells in element.evaluate(READ_TABLE).items()}


def test_the_numbers_are_those_of_the_inspector(
    page: Any, report: str, inspector: Inspector
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    profile = inspector.trace.profiles()[0]

    # The instructions, with their total.
    expected = profile_table(profile, MS, sort="run")
    go(page, report, "events")
    shown = table(page, "instructions-table")
    assert len(shown) > 15
    for row, cells in shown.items():
        for name in ("avg", "p50", "p90", "share"):
            value = expected.values[name][row]
            assert cells[name] == "" if value is None else near(cells[name], value)
        assert cells["event"] == expected.values["event"][row]
    assert near(shown[len(expected) - 1]["avg"], MS(profile.total).mean())

    # All events.
    counted = np.isin(profile.every.runs, profile.runs)
    frame = inspector.to_dataframe(include_units=False)
    page.get_by_text("All events").click()
    shown = table(page, "events-table")
    for row, cells in shown.items():
        assert cells["event_name"] == frame["event_name"][row]
        raw = np.array(frame["raw"][row])  # of the runs that count
        assert near(cells["avg"], raw[counted if len(raw) == len(counted) else ...].mean())
    assert len(shown) > 15

    # Modules hold what ran in them.
    go(page, report, "modules")
    page.wait_for_selector('[data-testid="icicle-frame"]')
    frames = page.eval_on_selector_all(
        '[data-testid="icicle-frame"]',
        "all => all.map(one => [one.dataset.path, Number(one.dataset.total)])",
    )
    totals = dict(frames)
    roots = totals.get("", 0.0) + totals.get("(no module)", 0.0)
    assert roots == pytest.approx(MS(profile.total - profile.unaccounted).mean(), rel=1e-12)
    screenshot(page, "report-modules")

    # The memory that is planned.
    go(page, report, "memory")
    peak = page.wait_for_selector('[data-testid="peak"]').get_attribute("data-value")
    assert int(peak) == memory_plan(read_pte(artifacts(MODEL).pte), "forward").peak_bytes
    screenshot(page, "report-memory")

    for tab, sign in (
        ("timeline", '[data-testid="timeline-canvas"]'),
        ("source", '[data-testid="source"]'),
        ("compare", '[data-testid="compare-table"] [data-row]'),
    ):
        page.click(f'[data-testid="tab-{tab}"]')
        page.wait_for_selector(sign)
        screenshot(page, f"report-{tab}")
    assert page.failures == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests), requests


def test_the_summary_has_the_times_and_leads_to_the_longest(
    page: Any, report: str, inspector: Inspector
) -> None:
    profile = inspector.trace.profiles()[0]
    go(page, report, "summary")
    section = page.wait_for_selector('[data-testid="section-profile"]')

    def fact(name: str) -> float:
        selector = f'[data-fact="{name}"] dd, [data-col="{name}"]'
        return float(section.query_selector(selector).get_attribute("data-value"))

    assert near(fact("first"), MS(profile.every.total)[0])
    assert near(fact("p50"), np.percentile(MS(profile.total), 50))
    runs = section.query_selector('[data-fact="runs"] dd, [data-col="runs"]')
    assert runs.get_attribute("data-value") == profile.runs_in_words
    screenshot(page, "report-summary")

    link = page.wait_for_selector('[data-testid="longest"] .entry .link')
    name = link.inner_text()
    link.click()
    page.wait_for_selector('#view[data-tab="events"]')
    row = page.wait_for_selector('[data-testid="instructions-table"] .row.chosen')
    assert name in row.inner_text()
    assert name in page.inner_text('[data-testid="details"] h2')


def test_one_selection_for_all_views(page: Any, report: str, inspector: Inspector) -> None:
    profile = inspector.trace.profiles()[0]
    kernels = [i for i, row in enumerate(profile.rows) if row.kind == "kernel"]
    row = max(kernels, key=lambda i: float(profile.rows[i].ticks.mean()))
    line = profile.rows[row].attribution.lines[0]

    go(page, report, "events", selection=f"row-0-{row}")  # a deep link

    details = page.wait_for_selector('[data-testid="details"]').inner_text()
    assert f"{Path(line.file).name}:{line.line}" in details or str(line) in details
    screenshot(page, "report-events")
    page.click('[data-testid="tab-graph"]')
    page.wait_for_selector('[data-testid="graph-card-avg"]')
    page.wait_for_selector('[data-testid="graph-drawn"]', state="attached")
    shown = page.get_attribute('[data-testid="graph-card-avg"]', "data-value")
    assert near(shown, MS(profile.rows[row].ticks).mean())
    screenshot(page, "report-graph")
    assert page.url.endswith(f"#run0/graph/0/row-0-{row}")
    assert page.failures == []


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory, page_of: Any) -> tuple[str, MethodDiff]:
    """The address of a report of portable kernels and XNNPACK, and what diff says of them."""
    folder = tmp_path_factory.mktemp("compared")
    traces = []
    for seed, name in enumerate(("cnn_portable", "cnn_xnnpack")):
        files = artifacts(name)
        assert files.etdump_timing is not None
        path = timed_dump(files.etdump_timing, folder / f"{name}.etdp", seed=seed)
        traces.append(Trace(read_etdump(path), record=read_etrecord(files.etrecord)))
    inputs = [ReportRun(f"run {n}", trace) for n, trace in enumerate(traces)]
    return page_of(document_of(inputs)), diff_profiles(*(trace.profiles()[0] for trace in traces))


def test_compare_is_what_diff_says(page: Any, two_runs: tuple[str, MethodDiff]) -> None:
    address, diff = two_runs
    expected = diff_table(diff, MS)
    page.set_viewport_size({"width": 1400, "height": 4000})

    go(page, address, "compare")
    words = page.wait_for_selector('[data-testid="headline"]').inner_text()
    rows = table(page, "compare-table")

    assert "forward takes " in words and "on XnnpackBackend after" in words
    assert len(rows) == len(expected)
    for row, cells in rows.items():
        for name in ("event", "verdict", "status"):
            assert cells[name] == (expected.values[name][row] or "")
        assert near(cells["change"], expected.values["change"][row])
    for by in ("module", "op", "type", "source"):
        page.click(f'[data-testid="compare-by"] [data-key="{by}"]')
        page.wait_for_selector(f'[data-testid="compare-table"] [data-col="{by}"]')
        sums = waterfall_table(diff, MS, by)
        shown = table(page, "compare-table")
        assert [cells[by] for _, cells in sorted(shown.items())] == list(sums.values[by])
        for row, cells in shown.items():
            assert near(cells["change"], sums.values["change"][row])

    # The other way round.
    reverse = diff_profiles(diff.sides.after, diff.sides.before)
    page.click('[data-testid="compare-by"] [data-key="rows"]')
    page.click('[data-testid="swap-sides"]')
    page.wait_for_function("location.hash.includes('compare.a=1')")

    words = page.inner_text('[data-testid="headline"]')
    total = table(page, "compare-table")[len(diff_table(reverse, MS)) - 1]
    assert "forward takes " in words and "on XnnpackBackend before, on kernels after" in words
    assert near(total["change"], reverse.total.change / 1e6)
    assert total["verdict"] == reverse.verdict.value
    screenshot(page, "report-compare-swapped")
    page.click('[data-testid="swap-sides"]')
    page.wait_for_function("location.hash.includes('compare.a=0')")
    page.click('[data-testid="tab-summary"]')
    page.wait_for_selector('[data-testid="insights"]')
    assert page.locator('[data-testid="insights"] [data-kind="changed"]').count() == 1
    assert page.failures == []


def test_a_graph_is_coloured_by_the_change_between_two_runs(
    page: Any, page_of: Any, tmp_path: Path
) -> None:
    files = artifacts("cnn_portable")
    assert files.etdump_timing is not None
    paths = [timed_dump(files.etdump_timing, tmp_path / f"{n}.etdp", seed=n) for n in (1, 2)]
    record = read_etrecord(files.etrecord)
    traces = [Trace(read_etdump(path), record=record) for path in paths]
    report = page_of(document_of([ReportRun("run", one) for one in traces]))
    page.goto(f"{report}#run0/graph/0?graph.colour=change")
    legend = page.wait_for_selector('[data-testid="graph-legend"]').inner_text()
    assert legend.startswith("change of avg, second run - first")
    ends = [page.get_attribute(f'[data-testid="graph-legend-{at}"]', "data-value") for at in (0, 1)]
    assert float(ends[0]) == -float(ends[1]) < 0
    assert page.locator('[data-testid="graph-scale"]').count() == 0
    assert page.failures == []


def test_the_icicle_of_a_comparison_shows_changes(
    page: Any, two_runs: tuple[str, MethodDiff]
) -> None:
    address, diff = two_runs
    modules = waterfall_table(diff, MS, "module").values
    changes = dict(zip(modules["module"], modules["change"], strict=True))

    page.goto(f"{address}#run0/compare/0?compare.by=icicle&compare.width=before")
    page.wait_for_selector('[data-testid="difference-frame"]')
    frames = page.locator('[data-testid="difference-frame"]').evaluate_all(
        "all => all.map(one => [one.dataset.path, one.dataset.change])"
    )

    assert len(frames) > 3
    assert all(near(change, changes[path]) for path, change in frames)
    # Hatched where the verdict shows no change for certain.
    verdicts = dict(zip(modules["module"], modules["verdict"], strict=True))
    hatched = page.locator('[data-testid="difference-frame"].unsure').evaluate_all(
        "all => all.map(one => one.dataset.path)"
    )
    unsure = {"cannot tell", "no difference"}
    assert set(hatched) == {path for path, _ in frames if verdicts[path] in unsure}
    page.locator('[data-testid="difference-frame"]').nth(1).click()
    page.wait_for_function("location.hash.includes('compare.zoom')")
    screenshot(page, "report-compare-icicle")
    assert page.failures == []


def test_numerics_are_those_of_the_diagnosis(page: Any, report: str) -> None:
    files = artifacts(MODEL)
    inspector = Inspector(
        files.etdump, etrecord=files.etrecord, debug_buffer_path=files.debug_buffer
    )
    found = inspector.diagnose_numerics(inputs=[np.load(files.inputs)["forward/0/0"]])
    expected = found.table()

    go(page, report, "numerics", run=1)
    verdict = page.wait_for_selector('[data-testid="numerics-verdict"]').inner_text()
    shown = table(page, "numerics-table")

    assert verdict == ("fine" if found.is_fine else "not fine")
    assert shown
    for row, cells in shown.items():
        for name in ("total", "local"):
            value = expected.values[name][row]
            known = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
            text = "" if value is None else known.get(value)
            assert cells[name] == text if text is not None else near(cells[name], value)
    screenshot(page, "report-numerics")
    go(page, report, "summary", run=1)
    card = page.wait_for_selector('[data-testid="numerics-card"]')
    assert card.query_selector(".badge").inner_text() == "fine"
    assert page.failures == []


@pytest.fixture(scope="module")
def nan_report(page_of: Any) -> str:
    """The address of a report with NaN where the reference, on other inputs, has numbers."""
    files = artifacts("nan_output")
    positive = [np.abs(np.load(files.inputs)["forward/0/0"])]
    (found,) = report_inputs(
        runs_of_files([files.etdump, files.etrecord, files.pte, files.debug_buffer]),
        ReportOptions(inputs=lambda *_: positive),
    )
    address: str = page_of(document_of([found]))
    return address


@pytest.fixture(scope="module")
def record_alone(page_of: Any) -> str:
    """The address of a report of a record without a dump."""
    found = list(report_inputs(runs_of_files([artifacts(MODEL).etrecord])))
    address: str = page_of(document_of(found))
    return address


def test_what_is_not_a_number_is_said(page: Any, nan_report: str) -> None:
    go(page, nan_report, "numerics")
    shown = table(page, "numerics-table")
    text = page.inner_text('[data-testid="numerics-notes"]')

    assert shown[0]["verdict"] == "wrong" and shown[0]["non_finite"] == "2 NaN"
    assert (shown[0]["total"], shown[0]["local"]) == ("NaN", "NaN")
    cell = '[data-testid="numerics-table"] [data-row="0"] [data-col="local"]'
    assert page.inner_text(cell) == "NaN"
    assert "its SQNR is not a number (NaN)" in text and "nan dB" not in text
    legend = page.locator('[data-testid="error-chart"] .u-legend .u-label').all_inner_texts()
    assert {"instruction", "not a number", "wrong"} <= set(legend)
    go(page, nan_report, "graph")
    page.goto(f"{nan_report}#run0/graph/0/node-1-edge%2Fforward?graph.colour=error")
    fact = page.wait_for_selector('[data-testid="measures"] [data-fact="error"] dd')
    assert fact.inner_text() == "NaN"

    go(page, nan_report, "summary")
    card = page.wait_for_selector('[data-testid="numerics-card"]')
    assert "not fine" in card.inner_text() and "is the first that goes wrong" in card.inner_text()
    card.query_selector("p .link").click()
    page.wait_for_selector('#view[data-tab="numerics"]')
    chosen = page.wait_for_selector('[data-testid="numerics-table"] .row.chosen')
    assert chosen.get_attribute("data-row") == "0"
    assert page.failures == []


def test_the_controls_survive_a_reload(page: Any, report: str) -> None:
    def chosen(test_id: str) -> str:
        return str(page.input_value(f'[data-testid="{test_id}"]'))

    go(page, report, "events")
    page.fill('[data-testid="filter"]', "share>0")
    page.select_option('[data-testid="group-by"]', "op")
    page.click('[data-col="p90"] .head')
    page.click('[data-testid="columns"]')
    page.get_by_label("kind", exact=True).click()
    page.keyboard.press("Escape")
    page.click('[data-testid="tab-graph"]')
    page.wait_for_selector('[data-testid="graph-drawn"]', state="attached")
    page.select_option('[data-testid="graph-select-0"]', "exported/forward")
    page.select_option('[data-testid="graph-colour"]', "memory")
    page.click('[data-testid="graph-scale"] [data-key="quantile"]')
    page.click('[data-testid="graph-split"]')
    page.locator('[data-testid="graph-depth"]').first.select_option("999")
    opened = all_boxes(page, "exported/forward")
    page.wait_for_selector(f'[data-testid="graph-drawn"][data-open="{opened}"]', state="attached")
    page.click('[data-testid="tab-modules"]')
    page.click('[data-testid="icicle-shape"] [data-key="flame"]')
    page.click('[data-testid="tab-graph"]')

    page.reload()

    page.wait_for_selector(f'[data-testid="graph-drawn"][data-open="{opened}"]', state="attached")
    assert chosen("graph-select-0") == "exported/forward"
    assert chosen("graph-colour") == "memory"
    assert page.get_attribute('[data-key="quantile"]', "aria-pressed") == "true"
    assert page.locator('[data-testid="graph-pane"]').count() == 2
    page.click('[data-testid="tab-modules"]')
    assert page.get_attribute('[data-key="flame"]', "aria-pressed") == "true"
    page.click('[data-testid="tab-events"]')
    page.wait_for_selector('[data-testid="instructions-table"] [data-group]')
    assert (chosen("filter"), chosen("group-by")) == ("share>0", "op")
    heads = page.locator('[data-testid="instructions-table"] [role="columnheader"]')
    shown = heads.evaluate_all("all => all.map(one => [one.dataset.col, one.ariaSort])")
    assert ["kind", "none"] in shown and ["p90", "descending"] in shown
    page.go_back()
    page.wait_for_selector('#view[data-tab="modules"]')
    assert page.failures == []


TICKS = """all => all.map(one => [...one.querySelectorAll('[data-value]')]
  .map(tick => tick.dataset.value).join(' '))"""


def test_panes_side_by_side_have_one_scale(page: Any, report: str) -> None:
    graphs = "graph.left=edge/forward&graph.right=exported/forward"
    page.goto(f"{report}#run0/graph/0?{graphs}")
    page.wait_for_selector('[data-testid="graph-drawn"]', state="attached")
    page.locator('[data-testid="graph-depth"]').first.select_option("999")
    opened = all_boxes(page, "edge/forward")
    page.wait_for_selector(f'[data-testid="graph-drawn"][data-open="{opened}"]', state="attached")
    draw(page)
    (alone,) = page.locator('[data-testid="graph-legend"]').evaluate_all(TICKS)
    assert alone

    page.click('[data-testid="graph-split"]')
    # The boxes of the right one are closed, and hold more.
    page.wait_for_function(
        f"""alone => {{
             const [left, right] = ({TICKS})(
               [...document.querySelectorAll('[data-testid="graph-legend"]')]);
             return left === right && left !== alone;
           }}""",
        arg=alone,
    )
    assert page.failures == []


def test_arrow_keys_go_from_tab_to_tab(page: Any, report: str) -> None:
    go(page, report, "events")
    page.focus('[data-testid="tab-events"]')
    for key, tab in (("ArrowRight", "modules"), ("End", "compare"), ("ArrowRight", "summary")):
        page.keyboard.press(key)
        page.wait_for_selector(f'#view[data-tab="{tab}"]')
        assert page.evaluate("document.activeElement.dataset.testid") == f"tab-{tab}"
    assert page.locator('[role="tab"][tabindex="0"]').count() == 1


def test_a_phone_shows_the_whole_width_and_the_chosen_tab(page: Any, report: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for tab in ("summary", "events", "timeline", "graph", "source", "memory", "compare"):
        go(page, report, tab, run=1)
        draw(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab
        box = page.locator(f'[data-testid="tab-{tab}"]').bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, tab


def test_nothing_is_cut_off_and_each_canvas_has_a_label(page: Any, report: str) -> None:
    drawn = ("timeline", "graph", "numerics", "memory")
    for tab in ("summary", "events", "modules", "source", *drawn):
        go(page, report, tab, run=1)
        if tab in drawn:
            page.wait_for_selector("canvas")
        for width in (800, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            draw(page)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            inner = page.locator(".simple-wrap").evaluate_all(
                "all => all.map(one => one.scrollWidth - one.clientWidth)"
            )
            assert tab not in ("summary", "memory") or inner
            assert all(beyond <= 0 for beyond in inner), tab
        assert_canvases_have_labels(page)
    go(page, report, "summary")
    page.wait_for_selector("canvas")
    assert_canvases_have_labels(page)
    go(page, report, "events", run=1)
    page.select_option('[data-testid="group-by"]', "op")
    page.wait_for_selector("[data-group] small")
    for width in (800, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        draw(page)
        beyond = page.locator("[data-group] small").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().right"
            " - one.parentElement.getBoundingClientRect().right)"
        )
        assert beyond and all(pixels <= 0 for pixels in beyond)


def assert_canvases_have_labels(page: Any) -> None:
    labels = page.locator("canvas").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label') ?? one.ariaLabel)"
    )
    assert all(labels), page.url


def test_a_record_alone_has_graphs_and_says_what_it_lacks_in_both_colour_schemes(
    page: Any, record_alone: str
) -> None:
    go(page, record_alone, "graph")
    page.wait_for_selector('[data-testid="graph-canvas"]')
    go(page, record_alone, "events")
    assert "There is no dump" in page.inner_text("#view")
    assert json.loads(page.inner_text("#etscope-data") or "{}")["runs"][0]["methods"] == []
    for scheme in ("light", "dark"):
        set_scheme(page, scheme)
        go(page, record_alone, "compare")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(int(part) for part in paper.strip("rgb()").split(",")[:3]) > 3 * 128
        assert light is (scheme == "light")
        colours = page.locator(".tab.empty").first.evaluate(
            "one => [getComputedStyle(one).color,"
            " getComputedStyle(one.parentElement).backgroundColor]"
        )
        assert contrast(*colours) >= 4.5
        assert "There is no profile in this report" in page.inner_text("#view")
    assert page.failures == []


def contrast(*colours: str) -> float:
    """The contrast of two CSS colours, "rgb(r, g, b)", by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.strip("rgb()").split(",")]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


def test_hostile_names_are_text(page: Any, page_of: Any) -> None:
    opened = Inspector(etdump_data=hostile_dump())
    report = page_of(document_of([ReportRun(HOSTILE[0], opened.trace)]))
    page.on("dialog", lambda dialog: page.failures.append(dialog.message))

    for tab in ("summary", "events", "timeline", "modules", "compare"):
        go(page, report, tab)
        draw(page)
    go(page, report, "events")
    names = {cells["event"] for cells in table(page, "instructions-table").values()}

    assert page.title() != "hacked"
    assert set(HOSTILE) <= names
    text = page.inner_text("body")
    assert "\u202e" not in text and "\x1b" not in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert page.failures == []
