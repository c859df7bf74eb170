"""Read files that vendor tools write: traces, counters, compile-time estimates.

Many backends log little or nothing into the dump. `read_backend_file` reads the files of their own
tools, and finds the kind of a file by its content. `etscope.analysis.backend_files.placement`
matches them to the delegate calls of a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from etscope.backends import vulkan, xnnpack
from etscope.backends.arm import debug_json, ethos_u_pmu, vela
from etscope.backends.common import chrome_trace
from etscope.backends.common.imported import BackendFile, Basis, ImportedRow, ImportedSpans
from etscope.backends.qnn import optrace, qhas
from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.identify import describe

_HINT = (
    "etscope reads a Chrome trace (JSON), QNN's optrace and QHAS summary (JSON), Vela's per-layer "
    "and summary CSV, Arm's debug.json, the log of Ethos-U PMU counters, WebGPU's timestamp "
    "output, the log of XNNPACK's microkernels"
)
_FEW = 65_536  # characters to search for an optrace's header, which is at the start or at the end
_TEXTS: tuple[tuple[Callable[[str], bool], Callable[[str, str], BackendFile]], ...] = (
    (vela.is_layers, vela.read_layers),
    (vela.is_summary, vela.read_summary),
    (ethos_u_pmu.recognises, ethos_u_pmu.read),
    (vulkan.has_times, vulkan.read_times),
    (xnnpack.recognises_log, xnnpack.read_log),
)


def read_backend_file(path: PathLike) -> BackendFile:
    """Read a file of a vendor tool; the content decides the kind.

    Raises `FormatError` for an unknown kind, with a list of the known ones, and for a broken file;
    `MissingFileError` if the file does not exist.
    """
    source = open_source(path, "file of a backend's tool")
    name = source.name
    with reading("file of a backend's tool", name):
        try:
            text = str(source.buffer, "utf-8-sig")
        except UnicodeDecodeError:
            raise _unknown(describe(source.buffer)) from None
        if not text.strip():
            raise FormatError("this file is empty", hint=_HINT)
        start = text.lstrip()
        if start[0] in "{[":
            return _read_json(name, text)
        for recognises, read in _TEXTS:
            if recognises(start):
                return read(name, start)
        raise _unknown("its text does not match a known format")


def _read_json(name: str, text: str) -> BackendFile:
    """Read a JSON file. A trace is large and is read event by event: an object with traceEvents, or
    an array that starts with an event."""
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
        raise FormatError("not valid JSON: nested too deeply") from None
    if isinstance(document, Mapping) and qhas.recognises(document):
        return qhas.read(name, document)
    if debug_json.recognises(document):
        return debug_json.read(name, document)
    raise _unknown("this is JSON of another kind")


def _first_events(text: str) -> Iterator[Mapping[str, Any]]:
    """Return the first events of a trace: enough to recognize its tool."""
    events = chrome_trace.trace_events(text, {})
    return islice(events, 100)


def _unknown(what: str) -> FormatError:
    return FormatError(f"not a vendor tool's file that etscope reads: {what}", hint=_HINT)


__all__ = ["BackendFile", "Basis", "ImportedRow", "ImportedSpans", "read_backend_file"]
