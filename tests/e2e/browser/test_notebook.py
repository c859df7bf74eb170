"""The report in a cell: two views of a widget, each a sandboxed frame, with one selection."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from etscope import Inspector
from etscope.analysis.profile.scale import Scale
from etscope.analysis.tables.profile_table import profile_table
from etscope.units import TimeScale
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import screenshot

pytest.importorskip("anywidget")

MS = Scale(TimeScale.NS, TimeScale.MS)

# A model as a notebook's front end gives it to the widget's script, and two views of it.
_HOST = """async ([script, packed, tab]) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
  const state = { _page: new DataView(bytes.buffer), tab, selection: "", height: 640, _rows: [] };
  const heard = {};
  window.model = {
    state,
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const hear of heard["change:" + name] ?? []) hear();
    },
    on: (name, hear) => (heard[name] ??= []).push(hear),
    off() {},
    save_changes() {},
  };
  for (let view = 0; view < 2; view++) {
    const el = document.body.appendChild(document.createElement("div"));
    await widget.render({ model: window.model, el });
  }
}"""


def frames(page: Any, widget: Any, tab: str) -> list[Any]:
    """Show two views of a widget in a page, and return their frames when they are drawn."""
    packed = base64.b64encode(widget._page).decode()
    page.evaluate(_HOST, [str(widget._esm), packed, tab])
    views = [handle.content_frame() for handle in page.query_selector_all("iframe")]
    for view in views:
        view.wait_for_selector(f'main[data-tab="{tab}"]')
    return views


def test_views_share_the_selection_and_python_has_its_rows(page: Any) -> None:
    files = artifacts("cnn_xnnpack")
    inspector = Inspector(files.etdump_timing, etrecord=files.etrecord)
    widget = inspector.report()
    first, second = frames(page, widget, "events")
    first.click('[data-testid="tab-graph"]')
    second.click('[data-testid="instructions-table"] [data-row="3"]')
    page.wait_for_function("model.state._rows.length > 0")
    state = page.evaluate("({ selection: model.state.selection, _rows: model.state._rows })")
    assert state["selection"] == "run0/row-0-3"
    first.wait_for_selector('[data-testid="details"]')  # selected in the other view, too
    assert first.query_selector('main[data-tab="graph"]') and page.url == "about:blank"
    screenshot(page, "notebook-widget")

    for name, value in state.items():
        setattr(widget, name, value)
    table = profile_table(inspector.trace.profiles()[0], MS, sort="run")
    assert widget.selected.values["event"] == [table.values["event"][3]]

    page.evaluate("model.set('selection', 'run0/row-0-2')")  # as Python does
    page.wait_for_function("JSON.stringify(model.state._rows) === '[[0,2]]'")
    page.evaluate("model.set('selection', ''); model.set('tab', 'timeline')")
    for view in (first, second):
        view.wait_for_selector('main[data-tab="timeline"]')
        view.wait_for_selector('[data-testid="details"]', state="detached")
    assert page.failures == []


def test_a_frame_cannot_reach_the_notebook(page: Any) -> None:
    files = artifacts("cnn_xnnpack")
    widget = Inspector(files.etdump_timing, etrecord=files.etrecord).report()
    view, _ = frames(page, widget, "summary")
    reached = view.evaluate(
        "() => { try { return String(parent.document.body) } catch (error) { return error.name } }"
    )
    assert reached == "SecurityError"
