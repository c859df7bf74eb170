"""Files that tools of backends write beside an ETDump: traces, counters, compile-time estimates.

Many backends log little or nothing into the dump. `read_backend_file` reads what their own tools
write, the kind being told by the content of a file; `etscope.analysis.backend_files.placement` puts
it to the delegate calls of a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from etscope.backends.arm import debug_json, ethos_u_pmu, vela
from etscope.backends.common import chrome_trace
from etscope.backends.common.imported import BackendFile, Basis, ImportedRow, ImportedSpans
from etscope.backends.qnn import optrace, qhas
from etscope.backends.vulkan import webgpu_queries
from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.identify import describe

_READABLE = (
    "a Chrome trace (JSON)",
    "QNN's optrace and QHAS summary (JSON)",
    "Vela's per-layer and summary CSV",
    "Arm's debug.json",
    "the log of Ethos-U PMU counters",
    "WebGPU's timestamp output",
)
_FEW = 65_536  # characters that are enough to see what a JSON file is
_TEXTS: tuple[tuple[Callable[[str], bool], Callable[[str, str], BackendFile]], ...] = (
    (vela.is_layers, vela.read_layers),
    (vela.is_summary, vela.read_summary),
    (ethos_u_pmu.recognises, ethos_u_pmu.read),
    (webgpu_queries.recognises, webgpu_queries.read),
)


def read_backend_file(path: PathLike) -> BackendFile:
    """Read a file of a backend's tool; its content tells which kind it is.

    Raises `FormatError` for a file of another kind, which names those that can be read, and for a
    broken one; `MissingFileError` if there is none.
    """
    source = open_source(path, "file of a backend's tool")
    name = source.name
    with reading("file of a backend's tool", name):
        try:
            text = str(source.buffer, "utf-8-sig")
        except UnicodeDecodeError:
            raise _unknown(describe(source.buffer)) from None
        if not text.strip():
            raise FormatError("this file is empty", hint="etscope reads " + ", ".join(_READABLE))
        start = text.lstrip()
        if start[0] in "{[":
            return _read_json(name, text)
        for recognises, read in _TEXTS:
            if recognises(start):
                return read(name, start)
        raise _unknown("its text matches no known form")


def _read_json(name: str, text: str) -> BackendFile:
    """Read a JSON file. A trace, an object with traceEvents or an array whose first object is an
    event, is large, and is read event by event."""
    if text.lstrip()[0] == "{":
        is_trace = '"traceEvents"' in text
    else:
        first = next(_first_events(text), None)
        is_trace = first is not None and isinstance(first.get("ph"), str)
    if is_trace:
        for event in _first_events(text):
            if optrace.recognises(event):
                return optrace.read(name, text)
        if '"OP_TRACE"' in text[:_FEW]:
            return optrace.read(name, text)
        return chrome_trace.read(name, text)
    try:
        document = json.loads(text)
    except RecursionError:
        raise FormatError("not valid JSON: it is nested too deeply") from None
    if isinstance(document, Mapping) and qhas.recognises(document):
        return qhas.read(name, document)
    if debug_json.recognises(document):
        return debug_json.read(name, document)
    raise _unknown("this is JSON of another kind")


def _first_events(text: str) -> Iterator[Mapping[str, Any]]:
    """The first events of a trace, enough to tell whose it is."""
    events = chrome_trace.trace_events(text, {})
    return islice(events, 100)


def _unknown(what: str) -> FormatError:
    return FormatError(
        f"not a file of a backend's tool that etscope reads: {what}",
        hint="it reads " + ", ".join(_READABLE),
    )


__all__ = ["BackendFile", "Basis", "ImportedRow", "ImportedSpans", "read_backend_file"]
