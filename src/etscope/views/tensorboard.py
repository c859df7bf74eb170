"""Event files for TensorBoard: graphs with profiles, and texts. TensorFlow is not needed.

A run of TensorBoard is a folder of its log directory; each gets one event file. Files that etscope
wrote into the folder before are removed, so that a run holds one graph.

The Graphs tab computes the time of a box as the span from the first start to the last end inside
it. So nodes are laid out one after the other, box by box, and a box's time is the sum of its nodes'
times. Where a box must show the largest of its nodes, they all start together.

The tab reads times as integers of microseconds. The ends of nodes are rounded, not their times, so
that the sum of many short ones is right to the microsecond.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.analysis.graphs.flow import edges, own_times
from etscope.analysis.graphs.node_costs import STATISTICS, NodeWork, node_work
from etscope.analysis.graphs.node_table import tensor_text
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.metrics import find_metric
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, module_type, user_line
from etscope.errors import UsageError
from etscope.model.graph import TensorSpec, source_lines
from etscope.support.optional import require
from etscope.units import TimeScale, format_float, listed
from etscope.views.output import open_output
from etscope.views.tables.cells import visible

WANTED_BY = "TensorBoard artifacts"
TABLES_RUN = "tables"
_SUFFIX = ".etscope"
_numbers = itertools.count()


def write_runs(
    logdir: Path, views: Iterable[GraphView], texts: Mapping[str, str], source: TimeScale
) -> list[str]:
    """Write a run for each view, and one with the texts (markdown by tag) if there are any.

    source: unit of the dump's clock. Returns the names of the runs. Raises
    `MissingDependencyError` without tensorboard, `UsageError` for a folder that cannot be written.
    """
    require("tensorboard", wanted_by=WANTED_BY)
    from tensorboard.compat.proto.event_pb2 import Event, TaggedRunMetadata

    runs: dict[str, list[bytes]] = {}
    for view in views:
        nodes = named(view)
        events = [_serialized(Event(graph_def=graph_def(nodes).SerializeToString()))]
        for profile in profiles(view, source):
            metadata = run_metadata(nodes, profile).SerializeToString()
            tagged = TaggedRunMetadata(tag=profile.tag, run_metadata=metadata)
            events.append(_serialized(Event(tagged_run_metadata=tagged)))
        # Names of folders: never "..", and without "/" in a part.
        parts = [part if part.isidentifier() else scope_name(part) for part in view.key.split("/")]
        runs["/".join(part.replace("\\", "_").strip(".") or "_" for part in parts)] = events
    if texts:
        runs[TABLES_RUN] = [_text_event(tag, text) for tag, text in texts.items()]
    for run, events in runs.items():
        _write(logdir / run, events)
    return list(runs)


def _write(folder: Path, events: Iterable[bytes]) -> None:
    """Write the events into a new file of the folder, and remove earlier ones."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    with _os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        before = list(folder.glob(f"*.tfevents.*{_SUFFIX}"))
    # TensorBoard reads files with "tfevents" in their names: an unfinished one has another.
    part = folder / f"{next(_numbers)}{_SUFFIX}"
    with open_output(part, binary=True) as out:
        writer = RecordWriter(out)
        for event in (_serialized(Event(file_version="brain.Event:2")), *events):
            writer.write(event)
    with _os_errors(folder):
        part.rename(folder / f"events.out.tfevents.{time.time_ns():020d}{_SUFFIX}")
        for file in before:
            file.unlink()


@contextmanager
def _os_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from error


def _text_event(tag: str, text: str) -> bytes:
    """A scalar text; the tab would show a tensor with dimensions as a table."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    plugin = SummaryMetadata.PluginData(plugin_name="text")
    data = text.encode("utf-8", errors="backslashreplace")
    value = Summary.Value(
        tag=tag,
        metadata=SummaryMetadata(plugin_data=plugin),
        tensor=TensorProto(dtype=DT_STRING, string_val=[data]),
    )
    return _serialized(Event(summary=Summary(value=[value])))


def _serialized(event: Any) -> bytes:
    event.wall_time = time.time()
    data: bytes = event.SerializeToString()
    return data


# -- Names that TensorBoard's graph shows unchanged, without folding or splitting them.
#
# - "/" separates boxes, ":" comes before the number of an output, "^" marks a control edge.
# - Five or more siblings that differ in a number at their end become one series box, so no name
#   here ends with a digit.
# - Names are keys of JavaScript objects, where "constructor" and "__proto__" are taken.
# - A name is drawn as one line of text; invisible characters are written as escapes.

LONGEST = (
    120  # characters of a name, drawn as one line; names of nodes hold those of all boxes around
)
# Similar characters: division slash, letter colon, circumflex.
_REPLACED = str.maketrans({"/": "\u2215", ":": "\ua789", "^": "\u02c6", "(": "[", ")": "]"})
_TAKEN = frozenset(
    {
        "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toString",
        "toLocaleString", "valueOf",
    }
)  # fmt: skip


def scope_name(part: str) -> str:
    """The name of a box; equal parts have equal names."""
    name = word(part)
    return f"{name}_" if name[-1].isdigit() else name


def word(text: str) -> str:
    """A text that the tab uses as a key, such as an operator or a part of a name."""
    plain = _plain(text)
    return f"{plain}_" if plain in _TAKEN or plain.startswith("__") else plain


class NodeNames:
    """Gives each node a unique name: boxes joined by "/", and a last part that ends with "_", so
    that it differs from the names of boxes."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def name(self, scope: Sequence[str], name: str) -> str:
        path = "/".join((*map(scope_name, scope), _plain(name)))
        free, number = f"{path}_", 1
        while free in self._used:
            number += 1
            free = f"{path}~{number}_"
        self._used.add(free)
        return free


def device(backend: str | None) -> str:
    """The device of a backend; the tab drops statistics of names other than "/device:NAME:0"."""
    if backend is None:
        return "/device:CPU:0"
    name = _plain(backend).removesuffix("Backend").upper() or "DELEGATE"
    return f"/device:{name}:0"


def _plain(text: str) -> str:
    """The text on one line of at most `LONGEST` characters, without special characters."""
    shown = visible(text).translate(_REPLACED) or "_"
    if len(shown) <= LONGEST:
        return shown
    mark = hashlib.sha256(shown.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{shown[: LONGEST - 10]}…{mark}_"


# -- Profiles.

# The tab requests at most 1024 bytes of an attribute, and does not show a larger one.
LONGEST_ATTRIBUTE = 1000
_FEWEST_DECIBELS = -200.0  # errors below are shown as 0
_LISTED = 12  # keys of nodes in an attribute, which the tab cuts at 1 KB

MEMORY_TAG = "bytes of outputs"
_CYCLES = " [1 µs shown = 1 cycle]"
FLOPS_TAG = "FLOPs [1 µs shown = 1,000 FLOPs]"
MOVED_TAG = "bytes read and written"
LIVE_TAG = "planned bytes alive [of nodes, not of boxes]"
_ERRORS = {"error to the reference": "total", "local error": "local"}  # attributes by title


@dataclass(frozen=True, slots=True)
class Profile:
    """One tag with numbers by node key.

    values: >= 0, read as microseconds. memory: bytes. summed: boxes show sums, else the largest.
    """

    tag: str
    values: Mapping[str, float]
    memory: Mapping[str, int]
    summed: bool = True


@dataclass(frozen=True)
class NamedView:
    """A view with the name of each node in TensorBoard, by key."""

    view: GraphView
    names: Mapping[str, str]

    def by_box(self) -> list[ViewNode]:
        """The nodes box by box, in order of first use, so that each box is contiguous."""
        first: dict[tuple[str, ...], int] = {}
        order: dict[str, tuple[int, ...]] = {}
        for position, node in enumerate(self.view.nodes):
            *boxes, _ = self.names[node.key].split("/")
            around = [tuple(boxes[: depth + 1]) for depth in range(len(boxes))]
            order[node.key] = (*(first.setdefault(box, position) for box in around), position)
        return sorted(self.view.nodes, key=lambda node: order[node.key])


def named(view: GraphView) -> NamedView:
    """The view with names for TensorBoard."""
    names = NodeNames()
    return NamedView(view, {n.key: names.name(n.scope, n.node.name) for n in view.nodes})


def time_tag(statistic: str, source: TimeScale) -> str:
    """The name of a tag of times, with the meaning of the tab's unit where it is not the time's."""
    title = "first run" if statistic == "first" else statistic
    return f"time {title}{_CYCLES if source is TimeScale.CYCLES else ''}"


def profiles(view: GraphView, source: TimeScale) -> Iterator[Profile]:
    """Yield a profile for each statistic of the times, for memory, work and known errors."""
    scale = Scale(source, TimeScale.CYCLES if source is TimeScale.CYCLES else TimeScale.US)
    if view.times:
        for statistic in STATISTICS:
            values = own_times(view, statistic)
            yield Profile(
                time_tag(statistic, source),
                {key: float(scale(value)) for key, value in values.items()},
                view.memory,
            )
    if view.memory:
        yield Profile(MEMORY_TAG, {}, view.memory)
    if view.live:
        yield Profile(LIVE_TAG, {}, view.live)
    work_of = node_work(view.linked)  # of nodes that hold no others
    works = {placed.key: work_of(placed.node) for placed in view.nodes if not placed.opens}
    flops = {key: work.flops / 1e3 for key, work in works.items() if work.flops}
    if flops:  # in the place of times
        yield Profile(FLOPS_TAG, flops, {})
    moved = {key: int(work.traffic.total) for key, work in works.items() if work.traffic.total}
    if moved:
        yield Profile(MOVED_TAG, {}, moved)
    for title, attribute in _ERRORS.items():
        levels = {
            key: level
            for key, error in view.errors.items()
            if (level := _decibels(error.metric, getattr(error, attribute))) is not None
        }
        if levels:
            yield Profile(f"{title} [1 µs shown = 1 dB over -200 dB]", levels, {}, summed=False)


def _decibels(metric: str, value: float | None) -> int | None:
    """An error as a level over -200 dB, so that 1e-7 and 1e-3 have different colours."""
    if value is None or math.isnan(value):
        return None
    found = find_metric(metric)
    if found.unit == "dB":
        level = -value
    elif found.better == "lower":
        level = 20 * math.log10(abs(value)) if value else -math.inf
    else:
        return None
    return round(min(max(level - _FEWEST_DECIBELS, 0.0), 1000.0))


# -- Protocol buffers.


def graph_def(named: NamedView) -> Any:
    """The view as a `GraphDef`."""
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    view, names = named.view, named.names
    work_of = node_work(view.linked)
    inputs: dict[str, list[str]] = {}
    for edge in edges(view):
        output = f":{edge.output}" if edge.output else ""
        inputs.setdefault(edge.target, []).append(f"{names[edge.source]}{output}")
    graph = GraphDef()
    for placed in view.nodes:
        if placed.node.kind == "placeholder":
            # The tab draws "Const" as a small circle next to its users.
            op = "Const" if placed.node.name in placed.graph.parameters else "Input"
        else:
            other = {"output": "Output", "get_attr": "Attribute"}.get(placed.node.kind)
            op = other or word(placed.node.op)
        made = graph.node.add(
            name=names[placed.key],
            op=op,
            input=inputs.get(placed.key, ()),
            device=device(placed.backend),
        )
        for key, text in _attributes(view, placed, work_of).items():
            made.attr[key].s = _cut(text)
        if placed.backend is not None:  # each delegate call is a cluster
            numbers = ", ".join(map(str, placed.instructions))
            call = f"#{numbers}" if numbers else str(placed.scope[:1])
            made.attr["_XlaCluster"].s = _cut(f"{placed.backend} {call}")
        if any(value.tensor is not None for value in placed.node.outputs):
            shapes = made.attr["_output_shapes"].list  # the tab writes them at the edges
            for value in placed.node.outputs:
                shape = shapes.shape.add()
                if value.tensor is None:
                    shape.unknown_rank = True
                else:
                    _set_shape(shape, value.tensor)
    return graph


def _attributes(view: GraphView, placed: ViewNode, work_of: NodeWork) -> dict[str, str]:
    """The texts shown for a selected node. The tab sorts them by name."""
    node = placed.node
    line = user_line(node.stack_trace)
    # Innermost frame first, on one line: the tab escapes line ends, quotes and non-ASCII text.
    frames = [f"{one} {one.function}".strip() for one in reversed(source_lines(node.stack_trace))]
    time, error = view.times.get(placed.key), view.errors.get(placed.key)
    work = work_of(node)
    together = ""
    if time is not None and len(time.keys) > 1:
        together = f"{len(time.keys)} together: {listed(time.keys, _LISTED)}"
    found = {
        "node": placed.key,
        "target": node.target,
        "outputs": ", ".join(filter(None, (tensor_text(v.tensor) for v in node.outputs))),
        "dtypes": ", ".join(dict.fromkeys(v.tensor.dtype for v in node.outputs if v.tensor)),
        "debug_handle": "" if node.debug_handle is None else str(node.debug_handle),
        "instructions": ", ".join(map(str, placed.instructions)),
        "source_line": "" if line is None else str(line),
        "source_code": "" if line is None else line.text,
        "stack_trace": " <- ".join(frames),
        "module": module_path(node) or "",
        "module_type": module_type(node) or "",
        "weight": placed.graph.parameters.get(node.name, ""),
        "delegated_to": placed.backend or "",
        "flops": "" if not work.flops else f"{work.flops:,.0f}",
        "bytes_moved": "" if not work.traffic.total else f"{work.traffic.total:,.0f}",
        "time_is_of_nodes": together,
        "time_stands_at": view.shared.get(placed.key) or "",
        "error": "" if error is None else _error_text(error.metric, error.total, error.verdict),
        "local_error": "" if error is None else _error_text(error.metric, error.local, None),
    }
    for position, (name, text) in enumerate(node.arguments[:_LISTED]):
        found[f"argument_{position}_{name}" if name else f"argument_{position}"] = text
    return {key: text for key, text in found.items() if text}


def _error_text(metric: str, value: float | None, verdict: str | None) -> str:
    if value is None:
        return ""
    return f"{metric} {format_float(value)}" + (f", {verdict}" if verdict else "")


def _cut(text: str) -> bytes:
    """The text in at most `LONGEST_ATTRIBUTE` bytes."""
    data = visible(text).encode("utf-8", errors="backslashreplace")
    if len(data) <= LONGEST_ATTRIBUTE:
        return data
    return data[: LONGEST_ATTRIBUTE - 3].decode("utf-8", errors="ignore").encode() + b"..."


def run_metadata(named: NamedView, profile: Profile) -> Any:
    """A profile as `RunMetadata`, with the names of `graph_def`."""
    from tensorboard.compat.proto.config_pb2 import RunMetadata

    metadata = RunMetadata()
    devices: dict[str, Any] = {}
    clock = 1.0  # the tab ignores a start of 0
    for placed in named.by_box():
        duration = profile.values.get(placed.key)
        memory = profile.memory.get(placed.key)
        if duration is None and memory is None:
            continue
        name = device(placed.backend)
        if name not in devices:
            devices[name] = metadata.step_stats.dev_stats.add(device=name)
        stats = devices[name].node_stats.add(node_name=named.names[placed.key])
        if duration is not None:
            # The clock keeps fractions, so that the times of boxes are exact to the unit.
            start, end = round(clock), round(clock + duration)
            stats.all_start_micros = start
            stats.op_end_rel_micros = stats.all_end_rel_micros = end - start
            clock += duration if profile.summed else 0.0
        if memory is not None:
            stats.memory.add(allocator_name="planned").total_bytes = memory
        for slot, value in enumerate(placed.node.outputs):
            if value.tensor is not None:
                described = stats.output.add(slot=slot).tensor_description
                _set_shape(described.shape, value.tensor)
    return metadata


def _set_shape(shape: Any, spec: TensorSpec) -> None:
    shape.SetInParent()  # the tab fails for a tensor without a shape, such as a scalar
    for position, size in enumerate(spec.shape):
        hint = spec.hints[position] if position < len(spec.hints) else None
        known = size if isinstance(size, int) else hint
        shape.dim.add(size=-1 if known is None else known)
