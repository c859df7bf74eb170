"""The files of a session, like gdb's binary and core."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from etscope.analysis.graphs.linked_graph import LinkedGraph, linked_graph
from etscope.analysis.graphs.node_costs import NodeTimes, node_times
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import graph_name, record_methods
from etscope.capture.files import BUFFER_SUFFIXES, run_of_files
from etscope.errors import FormatError, MissingDataError, UsageError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import ETDump, read_etdump
from etscope.formats.etrecord.reader import EDGE, RecordView, read_etrecord
from etscope.formats.identify import PTD, identify
from etscope.formats.program.bpte import BundledFile, read_program_file
from etscope.formats.program.pte import Program
from etscope.formats.run_json import dump_with_values

NO_RECORD = "no ETRecord is loaded"
NO_RECORD_HINT = "load one: file MODEL.etrecord"

_DEBUG_BUFFER = "debug buffer"


@dataclass(frozen=True)
class Files:
    """Loaded files; None for those that were not given. Replaced when one of them changes."""

    record: RecordView | None = None
    dump: ETDump | None = None
    debug_buffer: DebugBuffer | None = None
    program: Program | None = None
    bundle: BundledFile | None = None
    forced: bool = False
    paths: tuple[tuple[str, str], ...] = ()  # (what, path)

    @cached_property
    def trace(self) -> Trace | None:
        """The dump with its record and program; None without a dump.

        Raises `MismatchError` when the files do not belong together.
        """
        if self.dump is None:
            return None
        trace = Trace(
            dump=self.dump,
            record=self.record,
            debug_buffer=self.debug_buffer,
            program=self.program,
            forced=self.forced,
        )
        trace.check_debug_buffer()
        if not self.forced:
            trace.verify()
        return trace

    @cached_property
    def export(self) -> Export:
        """The record and the program, without a run."""
        return Export(self.program, self.record)

    @property
    def any_program(self) -> Program | None:
        """The program that was given, or the one in the record."""
        return self.export.recorded_program

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the record or the program."""
        names = dict.fromkeys(() if self.record is None else record_methods(self.record))
        if self.any_program is not None:
            names.update(dict.fromkeys(method.name for method in self.any_program.methods))
        return tuple(names)

    @property
    def main_method(self) -> str:
        """The default method."""
        methods = self.methods
        return "forward" if "forward" in methods or not methods else methods[0]

    @cached_property
    def profiles(self) -> dict[str | None, MethodProfile]:
        """The times of each method that ran, of several phases in the one that took most time;
        empty without a dump or without times."""
        try:
            found = [] if self.trace is None else self.trace.profiles()
        except MissingDataError:
            found = []
        return {p.method: p for p in sorted(found, key=lambda profile: int(profile.total.sum()))}

    def linked(self, name: str) -> LinkedGraph:
        """A graph of the record with instructions. Raises `MissingDataError` without a record."""
        if self.record is None:
            raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
        if name not in self._linked:
            self._linked[name] = linked_graph(self.trace or self.export, name)
        return self._linked[name]

    def edge(self, method: str) -> LinkedGraph:
        """The edge graph of a method; the debugger uses names of its nodes."""
        if self.record is None:
            raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
        return self.linked(graph_name(self.record, EDGE, method))

    def times_of(self, linked: LinkedGraph) -> NodeTimes | None:
        """The times of a graph's nodes; None if its method has none."""
        profile = self.profiles.get(linked.method)
        if profile is None:
            return None
        if linked.name not in self._times:
            self._times[linked.name] = node_times(linked, profile)
        return self._times[linked.name]

    @cached_property
    def _times(self) -> dict[str, NodeTimes]:
        return {}

    @cached_property
    def _linked(self) -> dict[str, LinkedGraph]:
        return {}

    @classmethod
    def of_trace(cls, trace: Trace) -> Files:
        """The files of an open trace."""
        files = cls(
            record=trace.record,
            dump=trace.dump,
            debug_buffer=trace.debug_buffer,
            program=trace.program,
            forced=trace.forced,
        )
        parts = (
            ("ETRecord", getattr(trace.record, "path", None)),
            ("ETDump", trace.dump.path),
            (_DEBUG_BUFFER, getattr(trace.debug_buffer, "path", None)),
        )
        return replace(files, paths=tuple((what, str(path)) for what, path in parts if path))

    def opened(self, *paths: str, debug_buffer: str | None = None) -> Files:
        """Open further files, identified by content; each replaces a file of the same kind.
        debug_buffer: a debug buffer with any name.

        A folder is the files of its run, of two dumps the one with values. Given with a debug
        buffer, run.etdp of such a folder is its values.etdp."""
        files = self
        named = [one for path in paths for one in _files_of(path)]
        kinds = {path: _kind_of(path) for path in named}
        with_values = debug_buffer is not None or _DEBUG_BUFFER in kinds.values()
        for path, kind in kinds.items():
            is_dump = kind == "etdump" and with_values
            files = files._with(dump_with_values(path) if is_dump else path, kind)
        return files if debug_buffer is None else files._with(debug_buffer, _DEBUG_BUFFER)

    def _with(self, path: str, kind: str) -> Files:
        found: dict[str, Any]
        replaced = {_DEBUG_BUFFER}
        if kind == "etrecord":
            what, found = "ETRecord", {"record": read_etrecord(path)}
            replaced = {what}
        elif kind == "etdump":
            what, found = "ETDump", {"dump": read_etdump(path), "debug_buffer": None}
            replaced.add(what)
        elif kind in ("pte", "bpte"):
            program, bundle = read_program_file(path)
            what, found = "program", {"program": program, "bundle": bundle}
            replaced = {what}
        else:
            what, found = _DEBUG_BUFFER, {"debug_buffer": DebugBuffer.open(path)}
        kept = tuple(entry for entry in self.paths if entry[0] not in replaced)
        return replace(self, **found, paths=(*kept, (what, os.fspath(path))))


def _files_of(path: str) -> list[str]:
    """Return the path, or the files of the run in a folder."""
    if not os.path.isdir(path):  # noqa: PTH112 (a path as the user typed it)
        return [path]
    run = run_of_files([path])
    found = (run.record, run.program, *run.logged)
    return [str(file) for file in found if file is not None]


def _kind_of(path: str) -> str:
    """Identify a file. A debug buffer has no signature: its name must say so."""
    try:
        kind = identify(path)
    except FormatError as error:
        if path.lower().endswith(BUFFER_SUFFIXES):
            return _DEBUG_BUFFER
        raise UsageError(
            f"{path} is not an ETRecord, ETDump or program",
            hint="a debug buffer is given after its dump, by a name that ends in .bin "
            "(core RUN.etdp BUFFER.bin), or by any name with the option -b",
        ) from error
    if kind == PTD:
        raise UsageError(
            f"{path} holds external tensors (.ptd), not a run or a program",
            hint="target runtime --data FILE.ptd runs a program with them",
        )
    return kind
