"""Write tables, timelines and graphs as text or files. A view does not aggregate or open files.

A new view is one new module with a writer, one line in a registry below, and one golden file.
The registries hold names, so that views are imported only on use.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from etscope.errors import UsageError
from etscope.views.output import open_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etscope.analysis.graphs.views import GraphView
    from etscope.analysis.profile.scale import Scale
    from etscope.model.table import Table
    from etscope.model.timeline import Timeline

__all__ = [
    "GRAPH_VIEWS",
    "TABLE_VIEWS",
    "TIMELINE_VIEWS",
    "ViewSpec",
    "format_of",
    "save_graphs",
    "save_table",
    "save_timeline",
    "write_graphs",
    "write_table",
    "write_timeline",
]


class ViewSpec(NamedTuple):
    """A view: its writer ("module:function"), its file suffix and its line of help.

    `binary`: it writes bytes. `styled`: it has the keywords `width` and `color`.
    """

    writer: str
    suffix: str
    help: str
    binary: bool = False
    styled: bool = False


_FORMATS = "etscope.views.tables.formats"
_GRAPHS = "etscope.views.graphs"

TABLE_VIEWS: dict[str, ViewSpec] = {
    "table": ViewSpec(
        "etscope.views.tables.report:write_terminal", ".txt", "for people", styled=True
    ),
    "json": ViewSpec(f"{_FORMATS}:write_json", ".json", "one versioned document"),
    "jsonl": ViewSpec(f"{_FORMATS}:write_jsonl", ".jsonl", "one object a row"),
    "csv": ViewSpec(f"{_FORMATS}:write_csv", ".csv", "comma-separated values"),
    "tsv": ViewSpec(f"{_FORMATS}:write_tsv", ".tsv", "tab-separated values"),
    "md": ViewSpec(f"{_FORMATS}:write_markdown", ".md", "a GitHub table"),
    "html": ViewSpec(f"{_FORMATS}:write_html", ".html", "a part of an HTML page"),
    "parquet": ViewSpec(f"{_FORMATS}:write_parquet", ".parquet", "typed columns", binary=True),
}

TIMELINE_VIEWS: dict[str, ViewSpec] = {
    "perfetto": ViewSpec(
        "etscope.views.traces:write_perfetto",
        ".pftrace",
        "protobuf trace for ui.perfetto.dev",
        binary=True,
    ),
    "chrome": ViewSpec("etscope.views.traces:write_chrome", ".json", "Trace Event JSON"),
    "speedscope": ViewSpec(
        "etscope.views.traces:write_speedscope",
        ".speedscope.json",
        "flame graph for speedscope.app",
    ),
}

GRAPH_VIEWS: dict[str, ViewSpec] = {
    "dot": ViewSpec(f"{_GRAPHS}:write_dot", ".dot", "one graph for Graphviz"),
    "graph-json": ViewSpec(f"{_GRAPHS}:write_graph_json", ".graph.json", "nodes and edges"),
    "model-explorer": ViewSpec(
        f"{_GRAPHS}:write_explorer", ".explorer.json", "graphs for Model Explorer"
    ),
    "node-data": ViewSpec(
        f"{_GRAPHS}:write_node_data", ".nodedata.json", "numbers of nodes for Model Explorer"
    ),
}


def write_table(
    table: Table, format: str, out: IO[Any], *, width: int | None = None, color: bool | None = None
) -> None:
    """Write `table` to an open stream in a format of `TABLE_VIEWS`.

    `width` (columns of text) and `color` are for formats with `styled`; None: by the type of `out`.
    """
    spec = _spec(TABLE_VIEWS, format, "table")
    style = {"width": width, "color": color} if spec.styled else {}
    writer_of(spec)(table, out, **style)


def write_timeline(timeline: Timeline, format: str, out: IO[Any]) -> None:
    """Write `timeline` to an open stream in a format of `TIMELINE_VIEWS`."""
    writer_of(_spec(TIMELINE_VIEWS, format, "timeline"))(timeline, out)


def write_graphs(
    views: Sequence[GraphView], format: str, out: IO[Any], *, scale: Scale, **options: Any
) -> None:
    """Write graphs to an open stream in a format of `GRAPH_VIEWS`; times are in `scale`'s unit.

    options: `overlay` of "node-data", see `etscope.views.graphs.write_node_data`.
    """
    writer_of(_spec(GRAPH_VIEWS, format, "graph"))(views, out, scale=scale, **options)


def save_table(
    table: Table,
    path: str | os.PathLike[str] = "-",
    format: str | None = None,
    *,
    width: int | None = None,
    color: bool | None = None,
) -> None:
    """Write `table` to a file, or to standard output ("-").

    Without `format` the file's suffix decides; a further suffix ".gz" compresses.
    """
    format = format or format_of(path, TABLE_VIEWS, default="table")
    with open_output(path, binary=_spec(TABLE_VIEWS, format, "table").binary) as out:
        write_table(table, format, out, width=width, color=color)


def save_timeline(
    timeline: Timeline, path: str | os.PathLike[str], format: str | None = None
) -> None:
    """Write `timeline` to a file, or to standard output ("-"); see `save_table`."""
    format = format or format_of(path, TIMELINE_VIEWS, default="perfetto")
    with open_output(path, binary=_spec(TIMELINE_VIEWS, format, "timeline").binary) as out:
        write_timeline(timeline, format, out)


def save_graphs(
    views: Sequence[GraphView],
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    scale: Scale,
    **options: Any,
) -> None:
    """Write graphs to a file, or to standard output ("-"); see `write_graphs`, `save_table`."""
    format = format or format_of(path, GRAPH_VIEWS, default="graph-json")
    with open_output(path) as out:
        write_graphs(views, format, out, scale=scale, **options)


def format_of(path: str | os.PathLike[str], views: Mapping[str, ViewSpec], *, default: str) -> str:
    """Return the format with the longest suffix that `path` ends with; `default` for "-"."""
    name = os.fspath(path)
    if name == "-":
        return default
    stem = name.lower().removesuffix(".gz")
    for format, spec in sorted(views.items(), key=lambda item: -len(item[1].suffix)):
        if stem.endswith(spec.suffix):
            return format
    known = ", ".join(f"{spec.suffix} ({format})" for format, spec in views.items())
    raise UsageError(f"no format has the suffix of {name!r}", hint=f"suffixes are: {known}")


def _spec(views: Mapping[str, ViewSpec], format: str, shape: str) -> ViewSpec:
    try:
        return views[format]
    except KeyError:
        raise UsageError(
            f"unknown {shape} format {format!r}", hint="formats are: " + ", ".join(views)
        ) from None


def writer_of(spec: ViewSpec) -> Any:
    """Return the function that writes a view."""
    module, _, function = spec.writer.partition(":")
    return getattr(importlib.import_module(module), function)
