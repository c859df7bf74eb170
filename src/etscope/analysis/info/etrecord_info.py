"""Summarise an ETRecord: graphs, methods, delegates, and the stored program; and shrink it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from etscope.analysis.graphs.linked_graph import graph_cells
from etscope.analysis.program.correlate import record_methods
from etscope.errors import UsageError
from etscope.formats.bytes.files import BytesLike, PathLike
from etscope.formats.bytes.zip_archive import NewMember, write_archive
from etscope.formats.etrecord.reader import (
    CONSTANTS,
    EDGE,
    EXPORT_GRAPH_ID,
    EXPORTED,
    NUM_OUTPUTS,
    OWN_PREFIX,
    PROGRAM_BUFFER,
    REFERENCE_OUTPUTS,
    REPRESENTATIVE_INPUTS,
    SIBLINGS,
    SLIMMED,
    RecordFile,
    read_etrecord,
    slimmed_to_json,
)
from etscope.formats.exported_program.exported_json import cut_payloads
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph
from etscope.model.report import Section, facts, rows
from etscope.model.table import Column, Kind, Table


def etrecord_sections(
    record: RecordFile, graphs: Mapping[str, Graph] | None = None
) -> tuple[Section, ...]:
    """The sections "file", "graphs", "methods", "delegates", "delegate_info" and "members"; a
    section without rows is left out. graphs: the record's graphs by name, if already known.
    """
    if graphs is None:
        graphs = {name: graph_from_record(record, name) for name in record.graph_names}
    fingerprints = record.fingerprints
    program = record.members.get(PROGRAM_BUFFER)
    head = facts(
        "file",
        f"{record.path}: ETRecord",
        (
            (Column("size", Kind.BYTES), len(record.archive.buffer)),
            (Column("written_by"), written_by(record)),
            (Column("members", Kind.COUNT), len(record.members)),
            (Column("graphs", Kind.COUNT), len(record.graph_names)),
            (Column("methods", Kind.LIST), list(record_methods(record))),
            (Column("slimmed", Kind.BOOL, title="slimmed (no weights)"), SLIMMED in record.members),
            (Column("holds_program", Kind.BOOL, title="holds the program"), program is not None),
            (Column("program_size", Kind.BYTES), fingerprints and fingerprints.program_bytes),
            (Column("program_sha256"), fingerprints and fingerprints.program_sha256),
            (Column("reference_outputs", Kind.BOOL), REFERENCE_OUTPUTS in record.members),
            (Column("representative_inputs", Kind.BOOL), REPRESENTATIVE_INPUTS in record.members),
            (Column("unknown_members", Kind.LIST), list(record.unknown_members)),
        ),
    )
    members = rows(
        "members",
        "Members of the zip",
        (
            Column("member", Kind.PATH),
            Column("size", Kind.BYTES),
            Column("stored", Kind.BYTES, title="in the file"),
        ),
        [(member.name, member.size, member.stored_size) for member in record.members.values()],
    )
    info = rows(
        "delegate_info",
        "What backends said of their delegates",
        (Column("delegate"), Column("key"), Column("value")),
        [(name, *said) for name, by_key in record.delegate_info.items() for said in by_key.items()],
    )
    found = (head, _graphs(record, graphs), *_methods(record), info, members)
    return tuple(section for section in found if len(section.table))


def written_by(record: RecordFile) -> str:
    """The tool that wrote the record (before slimming), by its layout: a record has no version."""
    members = record.members
    if any(name.startswith(OWN_PREFIX) and name != SLIMMED for name in members):
        return "etscope"
    if any(name.startswith(EDGE + "/") for name in members):
        minor = max((_schema_version(record, name)[1] for name in record.graph_names), default=0)
        return "ExecuTorch 1.3 or later" if minor >= 4 else "ExecuTorch 1.2"
    if not members.keys().isdisjoint({NUM_OUTPUTS, EXPORTED, EXPORT_GRAPH_ID}):
        return "ExecuTorch 1.0 or 1.1"
    if REPRESENTATIVE_INPUTS in members:
        return "ExecuTorch 0.7"
    if any(name.endswith(CONSTANTS) for name in members):
        return "ExecuTorch 0.4 to 0.7"
    return "ExecuTorch 0.3 or earlier"


def _schema_version(record: RecordFile, name: str) -> tuple[int, int]:
    """Major and minor version of a graph's JSON; (0, 0) without one."""
    version = record.program_json(name).get("schema_version")
    if not isinstance(version, dict):
        return (version if isinstance(version, int) else 0, 0)
    major, minor = version.get("major"), version.get("minor")
    return (major if isinstance(major, int) else 0, minor if isinstance(minor, int) else 0)


def _graphs(record: RecordFile, graphs: Mapping[str, Graph]) -> Section:
    def row(name: str, graph: Graph) -> Sequence[Any]:
        cells = graph_cells(graph)
        shown = ("graph", "dialect", "nodes", "calls", "operators", "weights", "delegates")
        major, minor = _schema_version(record, name)
        size = record.members[record.graph_members[name]].size
        return (*(cells[one] for one in shown), size, f"{major}.{minor}", name)

    return rows(
        "graphs",
        "Graphs",
        (
            Column("graph"),
            Column("dialect", priority=1),
            Column("nodes", Kind.COUNT),
            Column("calls", Kind.COUNT, priority=1),
            Column("operators", Kind.COUNT, title="distinct operators", priority=2),
            Column("parameters", Kind.COUNT, title="weights", priority=1),
            Column("delegates", Kind.COUNT, title="lowered modules", priority=2),
            Column("json_size", Kind.BYTES, title="JSON", priority=3),
            Column("schema", priority=4),
            Column("name", title="name in the file", priority=5),
        ),
        [row(name, graph) for name, graph in graphs.items()],
    )


def _methods(record: RecordFile) -> Iterator[Section]:
    """Yield the methods, then the delegates that they call."""
    known = {} if record.fingerprints is None else record.fingerprints.methods
    handles, delegates = record.debug_handle_map or {}, record.delegate_map or {}
    methods = dict.fromkeys((*record_methods(record), *known))
    yield rows(
        "methods",
        "Methods",
        (
            Column("method"),
            Column("instructions", Kind.COUNT),
            Column("attributed", Kind.COUNT, title="instructions with debug handles"),
            Column("delegate_calls", Kind.COUNT),
        ),
        [
            (
                method,
                len(known[method].instructions) if method in known else None,
                len(handles.get(method, {})),
                len(delegates.get(method, {})),
            )
            for method in methods
        ],
        notes=() if known else ("This record does not store the number of instructions.",),
    )
    content: dict[tuple[str, str], list[int]] = {}
    for method, entries in delegates.items():
        of_method = handles.get(method, {})
        for instruction, entry in entries.items():
            sums = content.setdefault((method, entry.name), [0, 0, 0])
            sums[0] += 1
            sums[1] += len(set(of_method.get(instruction, ())))
            sums[2] += len(entry.identifiers)
    yield rows(
        "delegates",
        "Delegates",
        (
            Column("method"),
            Column("backend"),
            Column("calls", Kind.COUNT),
            Column("debug_handles", Kind.COUNT),
            Column("identifiers", Kind.COUNT, title="delegate debug identifiers"),
        ),
        [(*key, *sums) for key, sums in content.items()],
    )


# -- Shrink an ETRecord to what attribution needs: a record of 900 MB becomes one of a few MB.
#
# Kept are the graphs with stack traces, module names, debug handles and origins, the maps, the
# fingerprints, and the reference outputs and representative inputs. Dropped are weights, example
# inputs, the blobs of delegates and the program. ExecuTorch opens the result too; it cannot run it.


@dataclass(frozen=True, slots=True)
class SlimMember:
    """A member of the record: its bytes in the old file and, unpacked, in the new one."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class SlimResult:
    """The sizes of the files in bytes, and of each member. `after` is 0 for a stream."""

    before: int
    after: int
    members: tuple[SlimMember, ...]

    def table(self) -> Table:
        """Return a table with one row for each member of the record that had weights, the largest
        first.
        """
        shrunk = sorted(
            (member for member in self.members if member.after < member.before),
            key=lambda member: member.after - member.before,
        )
        return Table.of(
            {
                Column("member"): [member.name for member in shrunk],
                Column("before", Kind.BYTES): [member.before for member in shrunk],
                Column("after", Kind.BYTES): [member.after for member in shrunk],
            },
            title="dropped from the record",
        )


def slim_etrecord(
    source: PathLike | BytesLike | IO[bytes], destination: PathLike | IO[bytes]
) -> SlimResult:
    """Write the record without weights to `destination`, and return what was dropped.

    Both may be the same path: the complete new file then replaces the old one. Only one member of
    the file is in memory at a time.

    Raises `FormatError` if the source is not a record, `UsageError` if the destination is the same
    stream.
    """
    is_path = isinstance(destination, (str, os.PathLike))
    if source is destination and not is_path:
        raise UsageError("the slim record cannot be written into the stream it is read from")
    record = read_etrecord(source)
    members: list[SlimMember] = []
    write_archive(_parts(record, members), destination)
    return SlimResult(
        before=len(record.archive.buffer),
        after=os.path.getsize(destination) if is_path else 0,  # type: ignore[arg-type]  # noqa: PTH202
        members=tuple(members),
    )


def _parts(record: RecordFile, members: list[SlimMember]) -> Iterator[NewMember]:
    graphs = set(record.graph_members.values())
    weights = {
        record.sibling_member(name, suffix) for name in record.graph_names for suffix in SIBLINGS
    }
    cuts = dict(record.cuts)
    for name, member in record.members.items():
        data: bytes | memoryview | None
        if name in (PROGRAM_BUFFER, SLIMMED):
            data = None
        elif name in weights:
            data = b""
        elif name in graphs and name not in cuts:
            data, cuts[name] = cut_payloads(record.archive.read(name))
        else:
            data = record.archive.read(name)
        members.append(SlimMember(name, member.size, 0 if data is None else len(data)))
        if data is not None:
            yield NewMember(name, data, deflate=True)
    yield NewMember(SLIMMED, json.dumps(slimmed_to_json(cuts)).encode(), deflate=True)
