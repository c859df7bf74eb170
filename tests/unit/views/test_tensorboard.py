"""Event files as TensorBoard's own loader and plugins read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.graphs.flow import own_times
from etscope.analysis.graphs.node_costs import STATISTICS
from etscope.analysis.graphs.views import GraphView, view_of
from etscope.units import TimeScale
from etscope.views.tensorboard import (
    FLOPS_TAG,
    LONGEST_ATTRIBUTE,
    MOVED_TAG,
    NodeNames,
    device,
    named,
    scope_name,
    time_tag,
    write_runs,
)
from tests.support.analysis.graphs import call, graph, linked, profile, row
from tests.support.views.graph_shapes import HOSTILE, hostile, timed

pytest.importorskip("tensorboard")

# TensorBoard's rules, from its front end (hierarchy.ts, proto.ts).
SERIES = re.compile(r"^(\D*)(\d+)$")
DEVICE = re.compile(r"/device:([^:]+:[0-9]+)$")


class Run:
    """What is in the event file of a run."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        from tensorboard.compat.proto.config_pb2 import RunMetadata
        from tensorboard.compat.proto.graph_pb2 import GraphDef

        (file,) = folder.glob("*tfevents*")
        self.graph: Any = None
        self.texts: dict[str, Any] = {}
        self.profiles: dict[str, Any] = {}
        for event in LegacyEventFileLoader(str(file)).Load():
            kind = event.WhichOneof("what")
            if kind == "graph_def":
                self.graph = GraphDef.FromString(event.graph_def)
            elif kind == "tagged_run_metadata":
                tagged = event.tagged_run_metadata
                self.profiles[tagged.tag] = RunMetadata.FromString(tagged.run_metadata)
            elif kind == "summary":
                self.texts.update({value.tag: value for value in event.summary.value})
        self.nodes = {} if self.graph is None else {node.name: node for node in self.graph.node}

    def stats(self, tag: str) -> dict[str, Any]:
        devices = self.profiles[tag].step_stats.dev_stats
        return {stats.node_name: stats for one in devices for stats in one.node_stats}

    def span(self, tag: str, box: str) -> int:
        """The time of a box as TensorBoard takes it: from the first start to the last end."""
        found = [
            (stats.all_start_micros, stats.all_start_micros + stats.all_end_rel_micros)
            for name, stats in self.stats(tag).items()
            if name.startswith(box) and stats.all_end_rel_micros
        ]
        return max(end for _, end in found) - min(start for start, _ in found) if found else 0


def run_of(
    folder: Path, view: GraphView, texts: Mapping[str, str] | None = None,
    source: TimeScale = TimeScale.US,
) -> Run:  # fmt: skip
    (run, *_) = write_runs(folder, [view], texts or {}, source)
    return Run(folder / run)


def test_boxes_span_the_sum_of_their_nodes(tmp_path: Path) -> None:
    # Two modules take turns: laid out in order of execution, each would span the other.
    names = "abcdef"
    nodes = [
        call(n, "aten.add.Tensor", handle=i, module=f"m{i % 2}.inner") for i, n in enumerate(names)
    ]
    rows = [row("kernel", "add", i, 10 * (i + 1), 10 * (i + 1) + 1) for i in range(len(names))]
    handles = {i: i for i in range(len(names))}
    view = view_of(linked(graph(*nodes), handles), "edge/forward", profile(*rows, total=[999, 999]))
    run = run_of(tmp_path, view)
    tag = time_tag("avg", TimeScale.US)
    assert run.span(tag, "m0_/") == pytest.approx(10 + 30 + 50 + 1.5, abs=1)
    assert run.span(tag, "m1_/") == pytest.approx(20 + 40 + 60 + 1.5, abs=1)
    assert run.span(tag, "m1_/inner/") == run.span(tag, "m1_/")
    assert run.span(tag, "") == pytest.approx(210 + 3, abs=1)


def test_each_statistic_is_a_tag_with_its_numbers(tmp_path: Path) -> None:
    view = timed()
    run = run_of(tmp_path, view)
    names = named(view).names
    for statistic in STATISTICS:
        own, stats = own_times(view, statistic), run.stats(time_tag(statistic, TimeScale.US))
        assert own
        for key, value in own.items():
            assert stats[names[key]].all_end_rel_micros == pytest.approx(value, abs=1)
    # 3500 of the call's 6000 µs are inside: its box has all of it.
    assert run.stats(time_tag("avg", TimeScale.US))[names["delegate"]].all_end_rel_micros == 2500
    assert run.span(time_tag("avg", TimeScale.US), "fc/delegate/") == 6000


def test_times_are_microseconds_whatever_the_clock(tmp_path: Path) -> None:
    micros = run_of(tmp_path / "us", timed(), source=TimeScale.US)
    nanos = run_of(tmp_path / "ns", timed(), source=TimeScale.NS)
    cycles = run_of(tmp_path / "cycles", timed(), source=TimeScale.CYCLES)
    (conv,) = (name for name in micros.nodes if name.endswith("/conv_"))
    assert micros.stats("time min")[conv].all_end_rel_micros == 3000
    assert nanos.stats("time min")[conv].all_end_rel_micros == 3
    assert cycles.stats("time min [1 µs shown = 1 cycle]")[conv].all_end_rel_micros == 3000
    assert "time first run" in micros.profiles


@pytest.mark.parametrize("milliseconds", [0.004, 1, 61, 601, 7000, 10**6])
def test_the_scale_is_that_of_short_and_long_runs(tmp_path: Path, milliseconds: float) -> None:
    """Boxes add up, also operators of less than a microsecond."""
    ticks, handles = int(milliseconds * 10**5), {i: i for i in range(10)}
    nodes = [call(f"n{i}x", "aten.add.Tensor", handle=i, module="m") for i in handles]
    rows = [row("kernel", "add", i, ticks) for i in handles]
    times = profile(*rows, total=[10 * ticks])
    view = view_of(linked(graph(*nodes), handles), "edge/forward", times)
    run = run_of(tmp_path, view, source=TimeScale.NS)
    assert run.span("time avg", "m/") == milliseconds * 1000


def test_a_graph_without_times(tmp_path: Path) -> None:
    view = replace(timed(), times={}, errors={}, profile=None)
    run = run_of(tmp_path, view)
    assert set(run.profiles) == {"bytes of outputs", FLOPS_TAG, MOVED_TAG}
    assert len(run.nodes) == len(view.nodes)
    long = replace(call("a", "aten.add.Tensor"), target="é" * 2000)
    cut = run_of(tmp_path / "long", view_of(linked(graph(long)), "edge/forward"))
    target = cut.nodes["a_"].attr["target"].s
    assert len(target) <= LONGEST_ATTRIBUTE
    assert target.decode().endswith("é...")


def test_nodes_say_what_they_are(tmp_path: Path) -> None:
    run = run_of(tmp_path, timed())
    conv = run.nodes["stem/conv/conv_"]
    attributes = {key: value.s.decode() for key, value in conv.attr.items() if value.s}
    assert conv.op == "aten.convolution.default"
    assert conv.device == "/device:CPU:0"
    assert attributes["outputs"] == "float32[1, 8, 16, 16]"
    assert attributes["dtypes"] == "float32"
    assert attributes["debug_handle"] == "1"
    assert attributes["source_line"] == "/home/me/model.py:10"
    assert attributes["stack_trace"] == "/home/me/model.py:10 forward"
    assert attributes["module_type"] == "Conv"
    assert [d.size for d in conv.attr["_output_shapes"].list.shape[0].dim] == [1, 8, 16, 16]
    assert list(conv.input) == ["x_", "stem/conv/weight_"]
    inner = run.nodes["fc/delegate/addmm_"]
    assert inner.device == "/device:SOME:0"
    assert inner.attr["_XlaCluster"].s == b"SomeBackend #1"
    assert run.nodes["stem/conv/weight_"].op == "Const"
    assert conv.attr["error"].s == b"sqnr 120, fine"
    assert run.stats("bytes of outputs")[conv.name].memory[0].total_bytes == 4 * 8 * 16 * 16
    errors = "local error [1 µs shown = 1 dB over -200 dB]"
    assert run.stats(errors)[conv.name].all_end_rel_micros == 80
    # The worst of a box's nodes is the box's.
    assert run.span(errors, "") == 200 - 41


def test_a_time_of_several_nodes_is_marked(tmp_path: Path) -> None:
    nodes = [call(n, "aten.add.Tensor", handle=i) for i, n in enumerate("abc")]
    found = linked(graph(*nodes), {0: [0, 1, 2]}, delegates={0: "B"})
    view = view_of(found, "edge/forward", profile(row("delegate", "B", 0, 9), total=[9]))
    run = run_of(tmp_path, view)
    assert run.nodes["a_"].attr["time_is_of_nodes"].s == b"3 together: a, b, c"
    assert run.nodes["c_"].attr["time_stands_at"].s == b"a"
    assert run.span(time_tag("avg", TimeScale.US), "") == 9


def test_numbers_do_not_collapse_into_series(tmp_path: Path) -> None:
    nodes = [call(f"add_{i}", "aten.add.Tensor", module=f"layer.{i}") for i in range(9)]
    run = run_of(tmp_path, view_of(linked(graph(*nodes)), "edge/forward"))
    parts = {part for name in run.nodes for part in name.split("/")}
    assert len(parts) == 19
    assert not [part for part in parts if SERIES.match(part)]


def test_hostile_names(tmp_path: Path) -> None:
    view = hostile()
    run = run_of(tmp_path, view)
    assert len(run.nodes) == len(view.nodes)
    for name, node in run.nodes.items():
        assert DEVICE.search(node.device)
        assert all(part and not SERIES.match(part) for part in name.split("/"))
        assert len(name) < 300
        assert name.isprintable()
        assert not {"__proto__", "constructor"} & set(name.split("/"))
        assert all(len(value.s) <= 1024 for value in node.attr.values())
        assert all(source.split(":")[0] in run.nodes for source in node.input)
    stats = run.stats(time_tag("avg", TimeScale.US))
    assert sum(s.all_end_rel_micros for s in stats.values()) == sum(
        10 + i for i in range(len(HOSTILE))
    )


def test_names() -> None:
    names = NodeNames()
    assert names.name(("blocks", "0"), "add_1") == "blocks/0_/add_1_"
    assert names.name(("blocks", "0"), "add_1") == "blocks/0_/add_1~2_"
    assert (scope_name("head"), scope_name("constructor")) == ("head", "constructor_")
    for backend in ("XnnpackBackend", "a:b", "Ünïcode/Backend", "", "Backend"):
        assert DEVICE.fullmatch(device(backend))  # or it is dropped


def test_writing_again_replaces_what_was_there(tmp_path: Path) -> None:
    other = tmp_path / "edge" / "forward" / "events.out.tfevents.1.other"
    for _ in range(3):
        run_of(tmp_path, timed())
    other.write_bytes(b"")
    write_runs(tmp_path, [timed()], {}, TimeScale.NS)
    files = {file.name for file in other.parent.iterdir()}
    assert other.name in files
    assert len(files) == 2
    # Whatever it is called, a run stays in the log directory.
    inside = tmp_path / "logs" / "inside"
    write_runs(inside, [replace(timed(), key="../../etc/../passwd\\..")], {}, TimeScale.NS)
    (file,) = (tmp_path / "logs").rglob("*tfevents*")
    assert file.resolve().is_relative_to(inside.resolve())
    assert ".." not in file.relative_to(tmp_path).parts


def test_texts_are_scalars_that_the_text_tab_renders(tmp_path: Path) -> None:
    from tensorboard.plugins.text.text_plugin import text_array_to_html
    from tensorboard.util.tensor_util import make_ndarray

    text = "| a | b |\n| :--- | ---: |\n| &lt;script&gt;x&lt;/script&gt; | 1 |\n"
    write_runs(tmp_path, [], {"forward/operators": text}, TimeScale.NS)
    (value,) = Run(tmp_path / "tables").texts.values()
    assert value.metadata.plugin_data.plugin_name == "text"
    assert not value.tensor.tensor_shape.dim
    html = text_array_to_html(make_ndarray(value.tensor), True)
    assert html.count("<table>") == 1
    assert "<script" not in html
    assert "&lt;script&gt;x" in html
