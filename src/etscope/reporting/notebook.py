"""The report in a cell of a notebook: a widget, and static tables where no widget can run.

The widget shows the page of `etscope report` in a sandboxed frame. The page's styles, keys and
address stay apart from the notebook's, text from files cannot reach it, and the frame works in
every notebook that shows widgets.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

from etscope.model.table import Table, joined
from etscope.support.optional import require
from etscope.views.page import page_html
from etscope.views.page.elements import table_of
from etscope.views.page.html import static_html
from etscope.views.tables.cells import visible

__all__ = ["ReportWidget"]  # noqa: F822 - made by `__getattr__`

_WANTED_BY = "the report in a notebook"

# The page answers "ready" and sends selections; web/src/embedded.ts has the other side.
_SCRIPT = """
async function unpacked(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
export default {
  async render({ model, el }) {
    const frame = document.createElement("iframe");
    frame.title = "etscope report";
    frame.setAttribute("sandbox", // not allow-same-origin: the page cannot reach the notebook
      "allow-scripts allow-downloads allow-popups allow-popups-to-escape-sandbox");
    frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #8886`;
    const send = () => frame.contentWindow?.postMessage(
      { etscope: { tab: model.get("tab"), selection: model.get("selection") } }, "*");
    const hear = (event) => {
      const message = event.data?.etscope;
      if (event.source !== frame.contentWindow || message === undefined) return;
      if (message === "ready") return send();
      if (message.isOwn) model.set("selection", message.selection);
      if (message.selection === model.get("selection")) model.set("_rows", message.rows);
      model.save_changes();
    };
    const select = () => frame.contentWindow?.postMessage(
      { etscope: { tab: "", selection: model.get("selection") } }, "*");
    addEventListener("message", hear);
    model.on("change:tab", send);
    model.on("change:selection", select);
    frame.srcdoc = await unpacked(model.get("_page"));
    el.replaceChildren(frame);
    return () => {
      removeEventListener("message", hear);
      model.off("change:tab", send);
      model.off("change:selection", select);
    };
  },
};
"""


def _selected(document: Mapping[str, Any], selection: str, rows: Sequence[Sequence[int]]) -> Table:
    run, _, _ = selection.partition("/")
    runs = {one["id"]: one for one in document["runs"]}
    found = []
    for number, method in enumerate(runs.get(run, {}).get("methods", ())):
        chosen = [row for in_method, row in rows if in_method == number]
        found += [table_of(method["rows"]).take(chosen)] if chosen else []
    return joined(found) if found else Table.of({})


def __getattr__(name: str) -> Any:
    """Make the class when it is first used: anywidget is an optional package."""
    if name != "ReportWidget":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("anywidget", wanted_by=_WANTED_BY)
    import anywidget
    import traitlets

    class ReportWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """A report in a cell. What is selected in one view is selected in all views of the widget.

        document: as `etscope.views.page.document_of` returns it.

        tab: the tab that views show: "summary", "events", "timeline", "graph", "numerics", …;
        setting it changes all views. selection: what is selected, as "run0/row-0-12" (run, then
        kind, method and number); "" for nothing. height: of a view, in pixels.
        """

        _esm = _SCRIPT
        _page = traitlets.Bytes().tag(sync=True)
        _rows = traitlets.List().tag(sync=True)
        tab = traitlets.Unicode("summary").tag(sync=True)
        selection = traitlets.Unicode("").tag(sync=True)
        height = traitlets.Int(640).tag(sync=True)

        def __init__(self, document: Mapping[str, Any], **values: Any) -> None:
            self._document = document
            page = gzip.compress(page_html(document).encode(), mtime=0)
            super().__init__(_page=page, **values)

        @property
        def selected(self) -> Table:
            """The rows of the profile that are selected, or that a selected node, module or line
            has; without any, a table without rows."""
            return _selected(self._document, self.selection, self._rows)

        def __repr__(self) -> str:
            return f"<ReportWidget {visible(self._document['title'])}>"

        def _repr_mimebundle_(self, **options: Any) -> Any:
            bundle = super()._repr_mimebundle_(**options)
            data, *metadata = bundle if isinstance(bundle, tuple) else (bundle or {},)
            data |= {"text/plain": repr(self), "text/html": static_html(self._document)}
            return (data, *metadata) if metadata else data

    globals()[name] = ReportWidget
    return ReportWidget
