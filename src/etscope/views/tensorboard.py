"""Event files that TensorBoard shows: graphs with profiles, and texts. No TensorFlow is needed.

A run of TensorBoard is a folder of its log directory; each gets one event file. Those that etscope
wrote into the folder before are removed, so that a run holds one graph.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.analysis.graphs.flow import edges, own_times
from etscope.analysis.graphs.node_table import tensor_text
from etscope.analysis.graphs.views import STATISTICS, GraphView, ViewNode
from etscope.analysis.metrics import find_metric
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import module_path, module_type, user_line
from etscope.errors import UsageError
from etscope.model.graph import Node, TensorSpec, source_lines
from etscope.optional import require
from etscope.units import TimeScale, format_float
from etscope.views.output import open_output
from etscope.views.tables.text_cells import visible

# A `GraphView` as TensorBoard's graph and profiles of it.
#
# The Graphs tab takes the time of a box to be the span from the first start to the last end of what
# is in it, so nodes are laid out one after the other, box by box: then a box's time is the sum of
# its nodes'. Where a box is to show the largest of its nodes, they all start together.
#
# Times are integers of what the tab takes for microseconds. Nanoseconds are written there, and the
# tag says so, since operators often take less than a microsecond; for long runs tens
# of them, or more.


# Names that TensorBoard's graph shows as they are, and does not fold, split or trip over.
#
# - "/" is its separator of boxes, ":" comes before the number of an output, "^" marks a control
# edge. - Five or more siblings that differ in a number at their end become one series box: no name
# here   ends with a digit. - Names are keys of JavaScript objects: "constructor" and "__proto__"
# are taken. - A name is drawn as one line of text; what cannot be seen is written as an escape.


LONGEST = 120
# Signs that look alike: division slash, letter colon, circumflex.
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
    """A text that the tab uses as a key: an operator, a part of a name."""
    plain = _plain(text)
    return f"{plain}_" if plain in _TAKEN or plain.startswith("__") else plain


class NodeNames:
    """Gives each node a name of its own: boxes joined by "/", and a last part that ends with "_"
    so that it is no box's name."""

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
    """What the statistics of a backend stand under: the graph tab drops all that is not
    "/device:NAME:0"."""
    if backend is None:
        return "/device:CPU:0"
    name = _plain(backend).removesuffix("Backend").upper() or "DELEGATE"
    return f"/device:{name}:0"


def _plain(text: str) -> str:
    """The text on one line, no longer than `LONGEST`, without what has a meaning in a name."""
    shown = visible(text).translate(_REPLACED) or "_"
    if len(shown) <= LONGEST:
        return shown
    mark = hashlib.sha256(shown.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{shown[: LONGEST - 10]}…{mark}_"


# The tab asks for attributes of at most 1024 bytes, and shows none of a larger one.
LONGEST_ATTRIBUTE = 1000
_LONGEST_SHOWN = 60e6  # the tab shows more microseconds as minutes
_FEWEST_DECIBELS = -200.0  # of the error that is shown as nothing
_LISTED = 12

MEMORY_TAG = "bytes of outputs"
LIVE_TAG = "planned bytes alive [of nodes, not of boxes]"
_TITLES = {"avg": "avg", "first": "first run"}


@dataclass(frozen=True, slots=True)
class Profile:
    """One tag: numbers by key of the node, and the same in words for a person who looks there.

    values: numbers >= 0, in what the tab takes for microseconds. memory: bytes by key. summed:
    whether boxes show the sum of their nodes, or the largest.
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


def named(view: GraphView) -> NamedView:
    """The view with names for TensorBoard."""
    names = NodeNames()
    return NamedView(view, {n.key: names.name(n.scope, n.node.name) for n in view.nodes})


# -- profiles


def time_tag(statistic: str, source: TimeScale, shift: int = 0) -> str:
    """The name of a tag of times, which says how the tab's unit is to be read; `shift` as given by
    `time_shift`."""
    title = _TITLES.get(statistic, statistic)
    if source is TimeScale.CYCLES:
        return f"time {title} [1 µs shown = 1 cycle]"
    return f"time {title} [1 s shown = {('1 ms', '10 ms', '100 ms', '1 s')[shift]}]"


def time_shift(view: GraphView, source: TimeScale) -> int:
    """How many decimals of the nanoseconds are left out, 0 to 3: so many that the tab shows no run
    of the method in minutes."""
    if view.profile is None or source is TimeScale.CYCLES:
        return 0
    longest = float(Scale(source, TimeScale.NS)(view.profile.total).max())
    return next((shift for shift in range(3) if longest < _LONGEST_SHOWN * 10**shift), 3)


def profiles(view: GraphView, source: TimeScale) -> Iterator[Profile]:
    """A profile for each statistic of the times, for memory, and for the errors that are known."""
    target = TimeScale.CYCLES if source is TimeScale.CYCLES else TimeScale.NS
    scale, shift = Scale(source, target), time_shift(view, source)
    if view.times:
        for statistic in STATISTICS:
            values = own_times(view, statistic)
            yield Profile(
                time_tag(statistic, source, shift),
                {key: float(scale(value)) / 10**shift for key, value in values.items()},
                view.memory,
            )
    if view.memory:
        yield Profile(MEMORY_TAG, {}, view.memory)
    if view.live:
        yield Profile(LIVE_TAG, {}, view.live)
    for title, error in _ERRORS.items():
        levels = {key: found for key, e in view.errors.items() if (found := error(e)) is not None}
        if levels:
            yield Profile(f"{title} [1 µs shown = 1 dB over -200 dB]", levels, {}, summed=False)


def _decibels(metric: str, value: float | None) -> int | None:
    """An error as a level over -200 dB, so that colours tell 1e-7 from 1e-3."""
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


_ERRORS: Mapping[str, Callable[[Any], int | None]] = {
    "error to the reference": lambda error: _decibels(error.metric, error.total),
    "local error": lambda error: _decibels(error.metric, error.local),
}


# -- protocol buffers


def graph_def(named: NamedView) -> Any:
    """The view as a `GraphDef`."""
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    view, names = named.view, named.names
    inputs: dict[str, list[str]] = {}
    for edge in edges(view):
        output = f":{edge.output}" if edge.output else ""
        inputs.setdefault(edge.target, []).append(f"{names[edge.source]}{output}")
    graph = GraphDef()
    for placed in view.nodes:
        made = graph.node.add(
            name=names[placed.key],
            op=_op(placed),
            input=inputs.get(placed.key, ()),
            device=device(placed.backend),
        )
        for key, text in _attributes(view, placed).items():
            made.attr[key].s = _cut(text)
        cluster = _cluster(view, placed)
        if cluster is not None:
            made.attr["_XlaCluster"].s = _cut(cluster)
        _add_shapes(made, placed.node)
    return graph


def run_metadata(named: NamedView, profile: Profile) -> Any:
    """A profile as `RunMetadata`, of the same names as `graph_def`."""
    from tensorboard.compat.proto.config_pb2 import RunMetadata

    metadata = RunMetadata()
    devices: dict[str, Any] = {}
    clock = 1.0  # a start of 0 is no start
    for placed in _by_box(named):
        duration = profile.values.get(placed.key)
        memory = profile.memory.get(placed.key)
        if duration is None and memory is None:
            continue
        name = device(placed.backend)
        if name not in devices:
            devices[name] = metadata.step_stats.dev_stats.add(device=name)
        stats = devices[name].node_stats.add(node_name=named.names[placed.key])
        if duration is not None:
            # Fractions go on with the clock, so that boxes are exact to the unit.
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


def _by_box(named: NamedView) -> list[ViewNode]:
    """The nodes box by box, in order of first use, so that each box is one piece."""
    first: dict[tuple[str, ...], int] = {}
    places: dict[str, tuple[int, ...]] = {}
    for position, node in enumerate(named.view.nodes):
        *boxes, _ = named.names[node.key].split("/")
        around = [tuple(boxes[: depth + 1]) for depth in range(len(boxes))]
        places[node.key] = (*(first.setdefault(box, position) for box in around), position)
    return sorted(named.view.nodes, key=lambda node: places[node.key])


def _op(placed: ViewNode) -> str:
    node = placed.node
    if node.kind == "placeholder":
        # The tab draws "Const" as a small circle beside its users.
        return "Const" if node.name in placed.graph.parameters else "Input"
    return {"output": "Output", "get_attr": "Attribute"}.get(node.kind) or word(node.op)


def _attributes(view: GraphView, placed: ViewNode) -> dict[str, str]:
    """What a click on a node tells. The tab sorts them by name."""
    node = placed.node
    line = user_line(node.stack_trace)
    time, place = view.times.get(placed.key), view.shared.get(placed.key)
    error = view.errors.get(placed.key)
    instructions = ", ".join(map(str, placed.instructions))
    found = {
        "node": placed.key,
        "target": node.target,
        "outputs": ", ".join(filter(None, (tensor_text(v.tensor) for v in node.outputs))),
        "dtypes": ", ".join(dict.fromkeys(v.tensor.dtype for v in node.outputs if v.tensor)),
        "debug_handle": "" if node.debug_handle is None else str(node.debug_handle),
        "instructions": instructions,
        "source_line": "" if line is None else str(line),
        "source_code": "" if line is None else line.text,
        "stack_trace": _stack(node.stack_trace),
        "module": module_path(node) or "",
        "module_type": module_type(node) or "",
        "weight": placed.graph.parameters.get(node.name, ""),
        "delegated_to": placed.backend or "",
        "time_is_of_nodes": "" if time is None or len(time.keys) < 2 else _list(time.keys),
        "time_stands_at": place or "",
        "error": "" if error is None else _error_text(error.metric, error.total, error.verdict),
        "local_error": "" if error is None else _error_text(error.metric, error.local, None),
    }
    found.update((f"argument_{i}", text) for i, text in _arguments(node))
    return {key: text for key, text in found.items() if text}


def _arguments(node: Node) -> Iterator[tuple[str, str]]:
    for position, (name, text) in enumerate(node.arguments[:_LISTED]):
        yield (f"{position}_{name}" if name else str(position)), text


def _list(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return f"{len(keys)} together: {', '.join(keys[:_LISTED])}{more}"


def _error_text(metric: str, value: float | None, verdict: str | None) -> str:
    if value is None:
        return ""
    return f"{metric} {format_float(value)}" + (f", {verdict}" if verdict else "")


def _stack(stack_trace: str | None) -> str:
    """The frames of a stack trace on one line, innermost first: the tab escapes line ends, quotes
    and all that is not ASCII."""
    frames = (f"{line} {line.function}".strip() for line in reversed(source_lines(stack_trace)))
    return " <- ".join(frames)


def _cut(text: str) -> bytes:
    """The text in at most `LONGEST_ATTRIBUTE` bytes."""
    data = visible(text).encode("utf-8", errors="backslashreplace")
    if len(data) <= LONGEST_ATTRIBUTE:
        return data
    return data[: LONGEST_ATTRIBUTE - 3].decode("utf-8", errors="ignore").encode() + b"..."


def _cluster(view: GraphView, placed: ViewNode) -> str | None:
    """The delegate call that the node is in: one cluster each."""
    if placed.backend is None:
        return None
    numbers = ", ".join(map(str, placed.instructions))
    return f"{placed.backend} #{numbers}" if numbers else f"{placed.backend} {placed.scope[:1]}"


def _add_shapes(made: Any, node: Node) -> None:
    """The shapes of the values, which the tab writes at the edges."""
    if any(value.tensor is not None for value in node.outputs):
        shapes = made.attr["_output_shapes"].list
        for value in node.outputs:
            shape = shapes.shape.add()
            if value.tensor is None:
                shape.unknown_rank = True
            else:
                _set_shape(shape, value.tensor)


def _set_shape(shape: Any, spec: TensorSpec) -> None:
    shape.SetInParent()  # the tab stumbles over a tensor without a shape, as one of no dimensions
    for position, size in enumerate(spec.shape):
        hint = spec.hints[position] if position < len(spec.hints) else None
        known = size if isinstance(size, int) else hint
        shape.dim.add(size=-1 if known is None else known)


WANTED_BY = "TensorBoard artifacts"
TABLES_RUN = "tables"
_SUFFIX = ".etscope"
_numbers = itertools.count()


def write_runs(
    logdir: Path,
    views: Iterable[GraphView],
    texts: Mapping[str, str],
    source: TimeScale,
) -> list[str]:
    """Write a run for each view, and one with the texts (markdown by tag) if there are any.

    source: unit of the dump's clock. Returns the names of the runs. Raises
    `MissingDependencyError` without tensorboard, `UsageError` for a folder that cannot be written.
    """
    require("tensorboard", wanted_by=WANTED_BY)
    runs: dict[str, list[bytes]] = {}
    for view in views:
        run = "/".join(map(scope_name_of_run, view.key.split("/")))
        runs[run] = list(_graph_events(view, source))
    if texts:
        runs[TABLES_RUN] = [_text_event(tag, text) for tag, text in texts.items()]
    for run, events in runs.items():
        _write(logdir / run, events)
    return list(runs)


def scope_name_of_run(part: str) -> str:
    """A part of a run's name as the name of a folder: never "..", nor with a "/" in it."""
    name = scope_name(part) if not part.isidentifier() else part
    return name.replace("\\", "_").strip(".") or "_"


def _graph_events(view: GraphView, source: TimeScale) -> Iterator[bytes]:
    from tensorboard.compat.proto.event_pb2 import Event, TaggedRunMetadata

    nodes = named(view)
    yield _event(Event(graph_def=graph_def(nodes).SerializeToString()))
    for profile in profiles(view, source):
        tagged = TaggedRunMetadata(
            tag=profile.tag, run_metadata=run_metadata(nodes, profile).SerializeToString()
        )
        yield _event(Event(tagged_run_metadata=tagged))


def _text_event(tag: str, text: str) -> bytes:
    """A scalar text: one in a tensor with a dimension would be put into a table once more."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    plugin = SummaryMetadata.PluginData(plugin_name="text")
    value = Summary.Value(
        tag=tag,
        metadata=SummaryMetadata(plugin_data=plugin),
        tensor=TensorProto(
            dtype=DT_STRING, string_val=[text.encode("utf-8", errors="backslashreplace")]
        ),
    )
    return _event(Event(summary=Summary(value=[value])))


def _event(event: Any) -> bytes:
    event.wall_time = time.time()
    data: bytes = event.SerializeToString()
    return data


def _write(folder: Path, events: Iterable[bytes]) -> None:
    """Write the events into a new file of the folder, and remove what was written before."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    with _naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        before = list(folder.glob(f"*.tfevents.*{_SUFFIX}"))
    # TensorBoard knows event files by "tfevents" in their names: until it is whole it has another.
    part = folder / f"{next(_numbers)}{_SUFFIX}"
    with open_output(part, binary=True) as out:
        writer = RecordWriter(out)
        for event in (_event(Event(file_version="brain.Event:2")), *events):
            writer.write(event)
    with _naming(folder):
        part.rename(folder / f"events.out.tfevents.{time.time_ns():020d}{_SUFFIX}")
        for file in before:
            file.unlink()


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from error
