"""A real TensorBoard shows what etscope wrote: driven in a browser, with the numbers compared."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.graphs.flow import own_times
from etscope.analysis.graphs.views import GraphView, graph_views
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.profile_table import profile_table
from etscope.capture.files import RunFiles, run_of_files
from etscope.reporting.tensorboard import write_tensorboard
from etscope.units import TimeScale
from etscope.views.tensorboard import named, scope_name, time_tag, write_runs
from tests.e2e.browser.test_report import near, table
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import screenshot
from tests.support.timed_dumps import told_dump
from tests.support.views.graph_shapes import HOSTILE, hostile

pytest.importorskip("tensorboard")

_TRIES = 200  # of a click that the tab may not hear yet
# What TensorBoard writes behind a number, in its microseconds.
UNITS = {"µs": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7}


@contextlib.contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """A TensorBoard on loopback, and its address; it is ended in any case."""
    arguments = ["--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *arguments, "--load_fast=false"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                yield found.group()
                return
        raise AssertionError("TensorBoard did not start:\n" + "".join(said))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    made = artifacts("transformer")
    assert made.etdump_timing is not None
    dump = told_dump(made.etdump_timing, tmp_path_factory.mktemp("told") / "run.etdp")
    return run_of_files([dump], RunFiles.given(record=made.etrecord, program=made.pte)).open()


@pytest.fixture(scope="module")
def address(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logdir = tmp_path_factory.mktemp("logdir")
    write_tensorboard(logdir, trace)
    write_runs(logdir, [hostile()], {}, TimeScale.US)
    with tensorboard(logdir) as address:
        yield address


def _comes(wait: Callable[[], Any]) -> Any:
    """What is waited for, None if it does not come in time."""
    from playwright.sync_api import TimeoutError as TooLate

    try:
        return wait()
    except TooLate:
        return None


class GraphsTab:
    """The Graphs tab, by its controls. Nodes get their events directly: where they are drawn they
    may still move, or be below a panel."""

    def __init__(self, page: Any, address: str, run: str, node: str) -> None:
        """Open the tab on a run, which has a node or box called `node` on its first level."""
        self.page = page
        page.goto(f"{address}/#graphs")
        page.wait_for_selector("g.node", state="attached")
        self._choose(0, run)
        page.wait_for_selector(self._shape(node), state="attached")

    def colour_by_time(self, tag: str) -> None:
        self._choose(1, tag)
        self.page.locator('tf-graph-controls paper-radio-button:has-text("Profile")').click()
        self.page.locator("#compute-time-radio-button").click()
        self.page.wait_for_selector("text=Devices included in stats")

    def open(self, box: str) -> None:
        inside = f'g.node[data-name^="{box}/"]'
        if self.page.locator(inside).count():
            return
        for _ in range(_TRIES):
            self.page.locator(self._shape(box)).first.dispatch_event("dblclick")
            # Long: a second double click would close a box that opens slowly.
            if _comes(lambda: self.page.wait_for_selector(inside, state="attached", timeout=9000)):
                return
        raise AssertionError(f"the box {box} does not open")

    def open_all(self, name: str) -> None:
        """Open all boxes around a node or box."""
        parts = name.split("/")
        for depth in range(1, len(parts)):
            self.open("/".join(parts[:depth]))

    def card(self, name: str) -> str:
        """What the card of a node or box says, once it has its time: while the tab still lays out
        or loads the profile, it forgets what was selected."""
        for _ in range(_TRIES):
            self.page.locator(self._shape(name)).first.dispatch_event("click")
            found = _comes(lambda: self.page.wait_for_function(_CARD_OF, arg=name, timeout=300))
            if found:
                return str(found.json_value())
        raise AssertionError(f"the card of {name} does not come, but: {self.page.evaluate(_CARD)}")

    def fill(self, name: str) -> str:
        """The colour of a node or box."""
        shape = self.page.locator(f"{self._shape(name)} :is(rect, ellipse)").first
        colour: str = shape.evaluate("element => getComputedStyle(element).fill")
        return colour

    def _choose(self, dropdown: int, item: str) -> None:
        self.page.locator("tf-graph-controls paper-dropdown-menu").nth(dropdown).click()
        items = self.page.locator("tf-graph-controls paper-item")
        items.filter(has_text=re.compile(rf"^\s*{re.escape(item)}\s*$")).first.click()

    def _shape(self, name: str) -> str:
        return f'g.node[data-name="{name}"] > g.nodeshape'


# The card is in shadow roots.
_WALK = """
const find = (root, name) => {
  for (const element of root.querySelectorAll('*')) {
    if (element.tagName === name) return element;
    const found = element.shadowRoot && find(element.shadowRoot, name);
    if (found) return found;
  }
  return null;
};
const text = (node) => {
  if (!node || node.tagName === 'STYLE') return '';
  if (node.nodeType === 3) return node.nodeValue + ' ';
  const children = [...(node.shadowRoot ? [node.shadowRoot] : []), ...node.childNodes];
  return children.map(text).join('');
};
const card = () => text(find(document, 'TF-NODE-INFO')).replace(/\\s+/g, ' ');
"""
_CARD = f"() => {{ {_WALK} return card(); }}"
_CARD_OF = f"""name => {{ {_WALK}
  const shown = card();  // spaces let a long name break
  const whole = shown.replaceAll(' ', '').startsWith(name) && shown.includes('Compute Time');
  return whole ? shown : null;
}}"""


def shown_time(card: str) -> float:
    """The compute time of a card in microseconds; the card has three figures."""
    found = re.search(r"Compute Time ([\d.,]+) (µs|ms|s|min)", card)
    assert found, card
    return float(found[1].replace(",", "")) * UNITS[found[2]]


def box_time(view: GraphView, box: tuple[str, ...]) -> float:
    """Our sum of what the nodes of a box took, in microseconds."""
    own = own_times(view, "avg")
    return 1e-3 * sum(own.get(n.key, 0.0) for n in view.nodes if n.scope[: len(box)] == box)


def view_of_run(trace: Trace, key: str) -> GraphView:
    (view,) = graph_views(trace, only=[key])
    return view


def test_times_of_boxes_are_the_sums_of_ours(page: Any, address: str, trace: Trace) -> None:
    view = view_of_run(trace, "edge/forward")
    tab = GraphsTab(page, address, "edge/forward", "blocks")
    tab.colour_by_time(time_tag("avg", TimeScale.NS))
    for box in ("blocks", "norm", "logits", "tokens"):
        expected = box_time(view, (box,))
        assert expected > 0
        assert shown_time(tab.card(box)) == pytest.approx(expected, rel=5e-3, abs=1)
    tab.open("blocks")
    for layer in "012":
        expected = box_time(view, ("blocks", layer))
        assert shown_time(tab.card(f"blocks/{layer}_")) == pytest.approx(expected, rel=5e-3, abs=1)
    tab.card("blocks/0_")
    page.locator("text=Fit to screen").click()
    screenshot(page, "tensorboard-graph", still=1500)
    # The more time, the more red; layers may have taken the same.
    shown = {f"blocks/{layer}_": box_time(view, ("blocks", layer)) for layer in "012"}
    shown |= {box: box_time(view, (box,)) for box in ("norm", "logits", "tokens")}
    longest, shortest = max(shown, key=shown.__getitem__), min(shown, key=shown.__getitem__)
    assert shown[longest] > 2 * shown[shortest]
    assert tab.fill(longest) != tab.fill(shortest)
    assert not page.failures


def test_the_executed_program_opens_its_delegates(page: Any, address: str, trace: Trace) -> None:
    view = view_of_run(trace, "executed/forward")
    tab = GraphsTab(page, address, "executed/forward", "blocks")
    tab.colour_by_time(time_tag("avg", TimeScale.NS))
    assert page.locator("text=XNNPACK:0").count()
    timed_in = {
        key: [node.key for node in view.below[key] if node.key in view.times] for key in view.below
    }
    call = view.by_key[next(key for key, timed in timed_in.items() if len(timed) > 1)]
    box = "/".join(scope_name(part) for part in call.scope)
    tab.open_all(box)
    assert shown_time(tab.card(box)) == pytest.approx(
        1e-3 * view.times[call.key].avg, rel=5e-3, abs=1
    )
    tab.open(box)
    names = named(view).names
    for key in timed_in[call.key]:
        tab.open_all(names[key])
        card = tab.card(names[key])
        assert shown_time(card) == pytest.approx(1e-3 * view.times[key].avg, rel=5e-3, abs=1)
        assert "/device:XNNPACK:0" in card
        assert f"XnnpackBackend #{call.key.rpartition('_')[2]}" in card
    screenshot(page, "tensorboard-delegate")
    assert not page.failures


def test_tables_are_in_the_text_tab(page: Any, address: str, trace: Trace) -> None:
    page.goto(f"{address}/#text")
    (profile,) = trace.profiles()
    page.wait_for_selector(f"text=forward: {profile.runs_in_words}")
    ours = profile_table(profile, Scale(TimeScale.NS, TimeScale.MS))
    shown = page.locator("table:has-text('p50'):has-text('share')").first
    shown.wait_for()
    rows = [row.split("\t") for row in shown.inner_text().splitlines()]
    text = next(row for row in rows if "Method::execute" in row)
    assert float(text[2]) == pytest.approx(ours.values["avg"][-1], abs=5e-5)
    assert float(text[3]) == pytest.approx(ours.values["p50"][-1], abs=5e-5)
    screenshot(page, "tensorboard-text")


def test_the_report_is_a_tab(page: Any, address: str, trace: Trace) -> None:
    page.goto(f"{address}/#executorch")
    outer = page.wait_for_selector("iframe").content_frame()
    inner = outer.wait_for_selector("iframe").content_frame()
    inner.wait_for_selector('[data-testid="tab-events"]').click()
    rows = table(inner, "instructions-table")
    screenshot(page, "tensorboard-tab")
    total = Scale(TimeScale.NS, TimeScale.MS)(trace.profiles()[0].total)
    assert near(rows[max(rows)]["avg"], float(total.mean()))
    assert "EXECUTORCH" in page.inner_text("body").upper()


def test_hostile_names_are_text(page: Any, address: str) -> None:
    tab = GraphsTab(page, address, 'edge/<b>"forward"', "constructor_")
    tab.colour_by_time(time_tag("avg", TimeScale.NS))
    drawn = page.locator("g.node > text").all_text_contents()
    assert any(text.startswith("<script>") for text in drawn)
    assert any("u202e" in text for text in drawn)
    assert shown_time(tab.card("constructor_")) == 10 + HOSTILE.index("constructor")
    screenshot(page, "tensorboard-hostile")
    assert not page.failures
