"""Event files that TensorBoard shows: graphs with profiles, and texts. No TensorFlow is needed.

A run of TensorBoard is a folder of its log directory; each gets one event file. Those that etscope
wrote into the folder before are removed, so that a run holds one graph.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etscope.analysis.graphs.views import GraphView
from etscope.errors import UsageError
from etscope.optional import require
from etscope.units import TimeScale
from etscope.views.output import open_output
from etscope.views.tensorboard.graph import graph_def, named, profiles, run_metadata, scope_name

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
