"""Every view adds up to what `Method::execute` took: no time is lost, and none counts twice.

A view says how it divides the time of a method, in ticks. With what no instruction accounts for,
its parts must be the method's time to one tick of the clock in each run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from etscope.analysis.graphs.flow import own_times
from etscope.analysis.graphs.linked_graph import linked_graph
from etscope.analysis.graphs.node_costs import node_times
from etscope.analysis.graphs.node_table import NodeTables
from etscope.analysis.graphs.views import graph_views
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.rollup import rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import event_spans
from etscope.analysis.profile.trace import Trace
from etscope.analysis.selector_fields import fields_of_row
from etscope.analysis.tables.profile_table import GROUPINGS, grouped_table, profile_table
from etscope.cli.output.tables import row_filter
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.model.table import Table
from etscope.units import TimeScale
from etscope.views import write_timeline
from etscope.views.tensorboard import profiles as tensorboard_profiles
from etscope.views.tensorboard import time_tag
from tests.support.artifacts import artifacts
from tests.support.views.page_reports import document

NS = Scale(TimeScale.NS, TimeScale.NS)
# Of each kind of run one: others, and the large, are for the night.
DAILY = (
    "cnn_portable",
    "cnn_xnnpack_int8",
    "cnn_xnnpack_lowered",
    "transformer",
    "two_methods",
    "cond",
    "while_loop",
    "dynamic_shape",
    "many_delegates",
)
NAMES = (
    *DAILY,
    *(
        pytest.param(name, marks=pytest.mark.nightly)
        for name in (
            *("cnn_xnnpack", "forward_and_extra", "bf16_fp16", "deconvolution"),
            *("attention_xnnpack", "recurrent_xnnpack", "batched_linear", "llama_xnnpack"),
            *("large_20k", "bert_base_xnnpack"),
        )
    ),
)
# What a view shows of a method, and the sum of its parts in ticks, over all runs together.
Sums = Iterator[tuple[str, float]]


# Models with instructions that stand for no node: jumps, moves, and what emission adds.
NODELESS = ("cond", "while_loop", "dynamic_shape")


@cache
def trace_of(name: str, *, program: bool = True) -> Trace:
    files = artifacts(name)
    assert files.etrecord is not None
    return Trace(
        read_etdump(files.etdump_timing or files.etdump),
        record=read_etrecord(files.etrecord),
        program=read_pte(files.pte) if program else None,
    )


def beside_nodes(name: str, profile: MethodProfile, accounted: Any) -> float:
    """Average ticks that no node of a graph has: of no instruction, or of one without a node."""
    nodeless = float((profile.total - profile.unaccounted - accounted).mean())
    assert nodeless == 0 or (nodeless > 0 and name in NODELESS)
    return nodeless + float(profile.unaccounted.mean())


def top_rows(table: Table) -> float:
    """The sum of a table of averages without its total, and without rows inside others."""
    depth = table.depth or [0] * len(table)
    rows = zip(table.values["avg"][:-1], depth[:-1], strict=True)
    return sum(average or 0 for average, level in rows if not level)


def leaf_rows(table: Table) -> float:
    """The sum of the rows of a table that hold no others, without its total."""
    averages, depth = table.values["avg"], [*(table.depth or [0] * len(table)), 0]
    return sum(averages[i] for i in range(len(table) - 1) if depth[i + 1] <= depth[i])


def selectors_of(profile: MethodProfile) -> Iterator[str | None]:
    """No selector, and one by each key that picks the longest leaf with such a field."""
    yield None
    leaves = [leaf for one in profile.instructions for leaf in one.leaves]
    leaves.sort(key=lambda leaf: -leaf.ticks.mean())
    for key in ("module", "op", "type", "file", "kind", "delegate"):
        texts = (text for leaf in leaves for text in fields_of_row(leaf)[key])
        text = next(texts, None)
        if text is not None:
            yield f'{key}:"{text}"'
            yield f'not {key}:"{text}"'


def tables_of_the_record_alone(name: str, profile: MethodProfile) -> Sums:
    bare = trace_of(name, program=False).profiles()
    yield from tables(name, next(one for one in bare if one.method == profile.method))


def tables(name: str, profile: MethodProfile) -> Sums:
    for selector in selectors_of(profile):
        keep = row_filter(selector)
        for limit in (None, 0, 3) if selector is None else (3,):
            where = f"{selector}, limit {limit}"
            for sort in ("time", "run"):
                table = profile_table(profile, NS, keep=keep, limit=limit, sort=sort)
                yield f"rows by {sort}, {where}", top_rows(table)
                if not any(row.own_clock for row in profile.rows):
                    yield f"leaves by {sort}, {where}", leaf_rows(table)
            for by in (*GROUPINGS, "module"):
                table = grouped_table(profile, NS, by, keep=keep, limit=limit)
                yield f"by {by}, {where}", top_rows(table)


def trees(name: str, profile: MethodProfile) -> Sums:
    trace = trace_of(name)
    rest = float(profile.unaccounted.mean())
    modules = rollup(profile, "module").tree()
    yield "modules", rest + sum(one.average for one in modules if one.parent is None)
    assert trace.record is not None
    for key in trace.record.graph_names:
        linked = linked_graph(trace, key)
        if linked.method == profile.method:
            times = node_times(linked, profile)
            tree = NodeTables(linked, times=times, scale=NS).modules()
            tops = zip(tree.values["avg"], tree.depth or (), strict=True)
            shown = sum(average or 0 for average, level in tops if not level)
            yield f"graph {key} --tree", shown + beside_nodes(name, profile, times.accounted)


def graphs(name: str, profile: MethodProfile) -> Sums:
    for view in graph_views(trace_of(name)):
        if view.profile is None or view.profile.method != profile.method:
            continue
        rest = beside_nodes(name, profile, view.accounted)
        own = own_times(view, "avg")
        assert min(own.values()) >= 0
        yield view.key, rest + sum(own.values())
        (tag,) = (
            one
            for one in tensorboard_profiles(view, TimeScale.NS)
            if one.tag == time_tag("avg", TimeScale.NS)
        )
        yield f"TensorBoard's {view.key}", rest + 1000 * sum(tag.values.values())


def timelines(name: str, profile: MethodProfile) -> Sums:
    """What is right below the spans of `Method::execute`, on the runtime's own track."""
    spans = event_spans(trace_of(name), runs=profile.runs.tolist())
    out = io.StringIO()
    write_timeline(spans.timeline, "speedscope", out)
    document = json.loads(out.getvalue())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    stack: list[tuple[str, int]] = []
    calls = 0
    for event in document["profiles"][0]["events"]:
        if event["type"] == "O":
            stack.append((names[event["frame"]], event["at"]))
            continue
        _, start = stack.pop()
        if stack and stack[-1][0] == "Method::execute":
            calls += event["at"] - start
    yield "speedscope", calls / len(profile.runs) + float(profile.unaccounted.mean())


def pages(name: str, profile: MethodProfile) -> Sums:
    """The page's modules, graphs and rows, which are in ms."""
    (run,) = document(name)["runs"]
    accounted = {view.key: view.accounted for view in graph_views(trace_of(name))}
    method = next(one for one in run["methods"] if one["name"] == profile.method)
    averages, depth = method["rows"]["values"]["avg"], method["rows"]["depth"]
    rows = zip(averages[:-1], depth[:-1], strict=True)
    yield "page's rows", 1e6 * sum(average or 0 for average, level in rows if not level)
    roots = [one["total"] for one in method["modules"] if one["parent"] is None]
    yield "page's modules", 1e6 * (averages[-2] + sum(roots))
    for graph in run["graphs"]:
        for measure in graph["measures"]:
            if measure["key"] == "avg" and graph["method"] == method["name"]:
                nodes = zip(measure["nodes"], graph["nodes"], strict=True)
                groups = zip(measure["groups"], graph["groups"], strict=True)
                shown = sum(value or 0 for value, node in nodes if node["group"] is None)
                shown += sum(value or 0 for value, group in groups if group["parent"] is None)
                rest = beside_nodes(name, profile, accounted[graph["key"]])
                yield f"page's graph {graph['key']}", 1e6 * shown + rest


View = Callable[[str, MethodProfile], Sums]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "view", [tables, tables_of_the_record_alone, trees, graphs, timelines, pages]
)
def test_a_view_adds_up_to_what_the_method_took(name: str, view: View) -> None:
    for profile in trace_of(name).profiles():
        took, compared = float(profile.total.mean()), 0
        for what, found in view(name, profile):
            assert abs(found - took) <= 1, f"{what} of {profile.method}"
            compared += 1
        assert compared
