"""Documents of real artefacts, as the command makes them, and where their indices point."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etscope.capture.files import runs_of_files
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.views.output import dumps
from etscope.views.page import document_of
from tests.support.artifacts import artifacts

Json = dict[str, Any]


@functools.cache
def document(name: str) -> Json:
    """The document of an artefact's dump of times (else of values), record and program, as it
    comes out of its JSON."""
    files = artifacts(name)
    dump = files.etdump_timing or files.etdump
    paths = [path for path in (dump, files.etrecord, files.pte) if path is not None]
    return document_of_files(*paths)


def document_of_files(*paths: Any, **options: Any) -> Json:
    options.setdefault("numerics", False)
    inputs = list(report_inputs(runs_of_files(paths), ReportOptions(**options)))
    parsed: Json = json.loads(dumps(document_of(inputs)))
    return parsed


def data_of(page: Path) -> Json:
    """The document that a page carries."""
    found = re.search(r'id="etscope-data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: Json = json.loads(found[1])
    return data


def rows_of(table: Json) -> int:
    """How many rows a `TableDoc` has; its columns must agree."""
    lengths = {len(table["values"][column["name"]]) for column in table["columns"]}
    assert len(lengths) == 1, lengths
    assert table["values"].keys() == {column["name"] for column in table["columns"]}
    return lengths.pop()


def wrong_indices(run: Json) -> Iterator[str]:
    """Every index of a run that points nowhere, and every list that is not as long as its twin."""
    yield from _wrong_lines(run)
    graphs = {graph["key"]: graph for graph in run["graphs"]}
    for number, method in enumerate(run["methods"]):
        yield from _wrong_in_method(f"methods[{number}]", method, run, graphs)
    for graph in run["graphs"]:
        yield from _wrong_in_graph(graph, len(run["source"]["lines"]))
        behind = graph.get("edgeNodes")
        if behind is not None:
            if len(behind) != len(graph["nodes"]):
                yield f"{graph['key']}.edgeNodes: {len(behind)} for {len(graph['nodes'])} nodes"
            edge = graphs[f"edge/{graph['method']}"]["nodes"]
            for indices in behind:
                yield from _outside(f"{graph['key']}.edgeNodes", indices, len(edge))
    for memory in run["memory"]:
        if not len(memory["labels"]) == len(memory["rows"]) <= len(memory["live"]):
            yield f"memory of {memory['method']}: lists of different lengths"
    if run["timeline"] is not None:
        yield from _wrong_in_timeline(run["timeline"], run["methods"])


def _outside(where: str, indices: Any, count: int) -> Iterator[str]:
    for index in indices:
        if index is not None and not 0 <= index < count:
            yield f"{where}: {index} of {count}"


def _wrong_lines(run: Json) -> Iterator[str]:
    source = run["source"]
    files = (line["file"] for line in source["lines"])
    yield from _outside("source.lines.file", files, len(source["files"]))


def _wrong_in_method(where: str, method: Json, run: Json, graphs: dict[str, Json]) -> Iterator[str]:
    count, events = rows_of(method["rows"]), rows_of(method["events"])
    lines, links = len(run["source"]["lines"]), method["links"]
    for name in ("lines", "stack"):
        if len(links[name]) != count:
            yield f"{where}.links.{name}: {len(links[name])} for {count} rows"
        for indices in links[name]:
            yield from _outside(f"{where}.links.{name}", indices, lines)
    for key, by_row in links["nodes"].items():
        if len(by_row) != count:
            yield f"{where}.links.nodes: {len(by_row)} for {count} rows"
        for indices in by_row:
            yield from _outside(f"{where}.links.nodes", indices, len(graphs[key]["nodes"]))
    if not len(links["module"]) == len(method["samples"]) == count:
        yield f"{where}: {len(links['module'])} modules for {count} rows"
    yield from _outside(f"{where}.links.module", links["module"], len(method["modules"]))
    if len(method["eventRow"]) != events:
        yield f"{where}.eventRow: {len(method['eventRow'])} for {events} events"
    yield from _outside(f"{where}.eventRow", method["eventRow"], count)
    for samples in method["samples"]:
        if samples is not None and len(samples) != method["runs"]:
            yield f"{where}.samples: {len(samples)} for {method['runs']} runs"
    for number, module in enumerate(method["modules"]):
        yield from _outside(f"{where}.modules.parent", [module["parent"]], number)
        yield from _outside(f"{where}.modules.rows", module["rows"], count)


def _wrong_in_graph(graph: Json, lines: int) -> Iterator[str]:
    where, nodes, groups = graph["key"], graph["nodes"], graph["groups"]
    edges = graph["edges"]
    if len(edges) % 3:
        yield f"{where}.edges: no triples"
    yield from _outside(f"{where}.edges", [*edges[0::3], *edges[1::3]], len(nodes))
    labels = (label for label in edges[2::3] if label != -1)
    yield from _outside(f"{where}.edgeLabels", labels, len(graph["edgeLabels"]))
    for node in nodes:
        yield from _outside(f"{where}.group", [node["group"]], len(groups))
        yield from _outside(f"{where}.line", [node["line"], *node["stack"]], lines)
    for number, group in enumerate(groups):
        yield from _outside(f"{where}.groups.parent", [group["parent"]], number)
    for measure in graph["measures"]:
        if (len(measure["nodes"]), len(measure["groups"])) != (len(nodes), len(groups)):
            yield f"{where}.measures.{measure['key']}: as long as nothing else"
        yield from _outside(f"{where}.shared", measure["shared"], len(nodes))


def _wrong_in_timeline(timeline: Json, methods: list[Json]) -> Iterator[str]:
    columns = ("track", "start", "duration", "name", "level", "row")
    if len({len(timeline[name]) for name in columns}) != 1:
        yield "timeline: columns of different lengths"
    yield from _outside("timeline.track", timeline["track"], len(timeline["tracks"]))
    yield from _outside("timeline.name", timeline["name"], len(timeline["names"]))
    for place in timeline["row"]:
        if place is not None:
            yield from _outside("timeline.row", [place[0]], len(methods))
            yield from _outside("timeline.row", [place[1]], rows_of(methods[place[0]]["rows"]))
