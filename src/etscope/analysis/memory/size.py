"""Owners of the bytes of files, one for each byte, and estimates of what could be saved.

A program has the parts of `file_parts`; a bundle adds its cases, a record the members of its zip, a
dump its tables by kind. A debug buffer needs its dump. Programs and their .ptd files give each
other's parts their names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.file_parts import (
    PADDING,
    TABLES,
    Claim,
    Claims,
    FilePart,
    ProgramClaims,
    by_module,
    equal_content,
    external_parts,
    shown_module,
)
from etscope.analysis.memory.stored import SCALES, WEIGHTS, NodesOf
from etscope.errors import FormatError, MismatchError, reading
from etscope.formats.bytes.files import PathLike, Source, open_source
from etscope.formats.bytes.flatbuffer import Span, own_sizes
from etscope.formats.etdump.reader import ETDump, bytes_by_kind, logged_values, read_etdump
from etscope.formats.etrecord import reader as etrecord
from etscope.formats.etrecord.reader import RecordView, read_etrecord
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTD, PTE, PTN, identify, is_ptn
from etscope.formats.program import native
from etscope.formats.program.bpte import BundledFile, read_bundled
from etscope.formats.program.ptd import check_external, read_ptd
from etscope.formats.program.pte import STACK_TRACES, UNREAD, Program, read_program, read_pte
from etscope.formats.program.scalar_type import ScalarType
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown
from etscope.units import format_bytes

__all__ = ["size_files"]

SCHEMA = "etscope.size/1"
DEBUG_BUFFER = "debug_buffer"

_CASES = "test cases"
_HEADERS, _DIRECTORY = "zip headers", "zip directory"
# The kind of a record's member by the end of its name.
_MEMBERS = {
    etrecord.STATE_DICT: "weights of a graph",
    etrecord.CONSTANTS: "weights of a graph",
    etrecord.EXAMPLE_INPUTS: "example inputs",
}
_MAPS = (etrecord.DEBUG_HANDLES, etrecord.DELEGATES, etrecord.NUM_OUTPUTS, etrecord.EXPORT_GRAPH_ID)
_VALUES = (etrecord.REFERENCE_OUTPUTS, etrecord.REPRESENTATIVE_INPUTS)
_GRAPHS, _PROGRAM, _OTHER = "graphs", "program", "other members"
_RECORD_KINDS = (
    *(_PROGRAM, _GRAPHS, *sorted(set(_MEMBERS.values())), "maps", "values", _OTHER),
    *(_HEADERS, _DIRECTORY),
)


@dataclass(frozen=True)
class SizedFile(Shown):
    """A file and its parts, which sum to its size. kind: from `identify`, or "debug_buffer". notes:
    what is unknown. data: the file's bytes, memory-mapped.
    """

    file: str
    kind: str
    parts: tuple[FilePart, ...]
    data: memoryview
    notes: tuple[str, ...] = ()

    @cached_property
    def saved(self) -> Savings:
        """Bytes that each change of each weight would save."""
        return Savings.of(self.parts, self.data)

    @classmethod
    def of_record(cls, path: str) -> SizedFile:
        """Size the stored members of a record's zip; an uncompressed program by its parts."""
        record = read_etrecord(path)
        archive, data = record.archive, record.archive.buffer
        claims = Claims(_RECORD_KINDS)
        kinds = {
            **dict.fromkeys(record.graph_members.values(), _GRAPHS),
            **dict.fromkeys(_VALUES, "values"),
            **dict.fromkeys(_MAPS, "maps"),
            etrecord.PROGRAM_BUFFER: _PROGRAM,
        }
        nested: Span | None = None
        for member in archive.members.values():
            with reading("ETRecord", path, member=member.name):
                span = archive.stored_span(member)
            end = span.offset + span.size
            claims.add(Span(member.offset, span.offset - member.offset), Claim(_HEADERS))
            claims.add(Span(end, member.limit - end), Claim(_HEADERS, detail="descriptors"))
            of_end = (kind for end, kind in _MEMBERS.items() if member.name.endswith(end))
            kind = kinds.get(member.name) or next(of_end, _OTHER)
            if kind == _PROGRAM and not member.deflated:
                nested = span
            unpacked = member.size if member.deflated else None
            claims.add(span, Claim(kind, label=member.name, unpacked=unpacked))
        directory = max((member.limit for member in archive.members.values()), default=0)
        claims.add(Span(directory, len(data) - directory), Claim(_DIRECTORY))
        found = claims.parts(data)
        parts = [part for part in found if part.kind != _HEADERS]
        headers = sum(part.size for part in found if part.kind == _HEADERS)
        parts += [Claim(_HEADERS).part(None, headers)] if headers else []
        if nested is not None:
            inside = Source(data[nested.offset : nested.offset + nested.size], path)
            program = read_program(inside, member=etrecord.PROGRAM_BUFFER)
            inner = ProgramClaims(program, Export(program, record).edge_nodes).parts()
            parts = [part for part in parts if part.kind != _PROGRAM]
            parts += [_shifted(part, nested.offset) for part in inner]
        return cls(path, ETRECORD, tuple(parts), data)

    @classmethod
    def of_native(cls, path: str) -> SizedFile:
        """Size a package of the native backend: its graphs, each constant, and the zip itself."""
        package = native.read_ptn(path)
        archive, data = package.archive, package.archive.buffer
        claims = Claims((WEIGHTS, _GRAPHS, _OTHER, _HEADERS))
        claims.add(Span(0, len(data)), Claim(_HEADERS))
        for member in archive.members.values():
            kind = _GRAPHS if member.name == native.GRAPHS else _OTHER
            claims.add(archive.stored_span(member), Claim(kind, label=member.name))
        types = {one.key: one.type for method in package.methods for one in method.constants}
        for key, span in package.tensors.items():
            known = types.get(key, native.NativeType(None, ()))
            shape = tuple(size for size in known.shape if isinstance(size, int))
            names = [key, *(alias for alias, owner in package.aliases.items() if owner == key)]
            claims.add(span, Claim(WEIGHTS, known.dtype, str(known), None, shape, names))
        return cls(path, PTN, claims.parts(data), data)

    @classmethod
    def of_debug_buffer(cls, path: str, dumps: Sequence[ETDump]) -> SizedFile:
        """Size the tensors that a dump has in its debug buffer, by type; the rest is unused."""
        data = open_source(path, "debug buffer").buffer
        logged = [logged_values(dump) for dump in dumps]
        if len(logged) > 1:  # a saved run also has a dump of times, without values
            logged = [values for values in logged if values.buffer_size]
        if len(logged) != 1 or logged[0].buffer_size > len(data):
            raise MismatchError(
                f"{path} is not the debug buffer of any dump among the files",
                hint="pass the debug buffer with its dump, and without other dumps",
            )
        (values,) = logged
        here = (values.offset >= 0) & (values.nbytes > 0)
        types = values.scalar_type[here]
        own, gaps = own_sizes(values.offset[here], values.nbytes[here], len(data))
        found: dict[tuple[str, str | None], int] = {
            ("logged values", ScalarType(number).torch_name): int(own[types == number].sum())
            for number in np.unique(types).tolist()
        }
        found[PADDING, None] = int(gaps[:-1].sum())
        found["unused", None] = int(gaps[-1])
        parts = [Claim(kind, dtype).part(None, size) for (kind, dtype), size in found.items()]
        return cls(path, DEBUG_BUFFER, tuple(part for part in parts if part.size), data)


def size_files(
    paths: Sequence[PathLike], record: RecordView | None = None, *, force: bool = False
) -> list[SizedFile]:
    """Find the owner of each byte of files. record: the record of the programs among them.

    Raises `MismatchError` if the record belongs to another program, unless `force` is given; and
    for a .ptd file that no given program reads, or that lacks a key that one of them needs. Raises
    `FormatError` for a damaged file, an unknown kind of file or a folder; `MissingFileError` for a
    missing file.
    """
    names = [os.fspath(path) for path in paths]
    kinds = _kinds_of(names)
    dumps = [read_etdump(name) for name, kind in kinds.items() if kind == ETDUMP]
    opened = {name: _Opened.of(name, record) for name, kind in kinds.items() if kind in (PTE, BPTE)}
    if not force:
        for name, one in opened.items():
            Export(one.program, record).check_record(name)
    external = {name: read_ptd(name) for name, kind in kinds.items() if kind == PTD}
    wanted = [one.claims.external.keys() for one in opened.values()]
    for name, data in external.items():
        if wanted and not any(data.entries.keys() & keys for keys in wanted):
            raise MismatchError(
                f"{name} is not the .ptd of {' or '.join(opened)}, which uses none of its "
                f"{len(data.entries):,} keys",
                hint="pass the .ptd of the same export, or only the .ptd",
            )
    for one in opened.values() if external else ():
        check_external(one.program, list(external.values()))
    sized: list[SizedFile] = []
    for name in names:
        kind = kinds[name]
        if name in opened:
            sized.append(opened[name].sized(kind, has_external=bool(external)))
        elif kind == PTD:
            parts = external_parts(external[name], [one.claims for one in opened.values()])
            sized.append(SizedFile(name, kind, parts, external[name].source.buffer))
        elif kind == ETRECORD:
            sized.append(SizedFile.of_record(name))
        elif kind == PTN:
            sized.append(SizedFile.of_native(name))
        elif kind == ETDUMP:
            dump = next(dump for dump in dumps if dump.path == name)
            sizes = bytes_by_kind(dump)
            parts = tuple(Claim(what).part(None, size) for what, size in sizes.items() if size)
            sized.append(SizedFile(name, kind, parts, dump.source.buffer))
        else:
            sized.append(SizedFile.of_debug_buffer(name, dumps))
    return sized


def sized_program(export: Export, nodes_of: NodesOf | None = None) -> tuple[SizedFile, ...]:
    """Find the owner of each byte of an open program, and of its .ptd files."""
    claims = ProgramClaims(export.needed_program, nodes_of)
    source = export.needed_program.source
    external = (
        SizedFile(one.source.name, PTD, external_parts(one, [claims]), one.source.buffer)
        for one in export.data
    )
    return (SizedFile(source.name, PTE, claims.parts(), source.buffer), *external)


def _kinds_of(names: Sequence[str]) -> dict[str, str]:
    """The kind of each file, as `identify` has it. A debug buffer has no magic number: with a dump
    any file may be one."""

    def kind_of(path: PathLike) -> str | None:
        try:
            return identify(path)
        except FormatError:
            return None

    kinds: dict[str, str] = {}
    for name in names:
        if (folder := Path(name)).is_dir():
            files = (one for one in sorted(folder.iterdir()) if one.is_file())
            found = [one.name for one in files if kind_of(one)]
            raise FormatError(
                "this is a folder, but --size needs ExecuTorch files",
                path=folder,
                hint=f"name files in it: {', '.join(found)}" if found else "it holds none",
            )
        try:
            kinds[name] = PTN if is_ptn(name) else identify(name)
        except FormatError:
            if not any(kind_of(one) == ETDUMP for one in names):
                raise
            kinds[name] = DEBUG_BUFFER
    return kinds


# -- programs


@dataclass(frozen=True, slots=True)
class _Opened:
    """A program, alone or in a bundle, and the claims about its bytes."""

    file: str
    program: Program
    bundle: BundledFile | None
    claims: ProgramClaims

    @classmethod
    def of(cls, file: str, record: RecordView | None) -> _Opened:
        bundle = None
        if identify(file) == BPTE:
            bundle = read_bundled(file)
            program = bundle.program()
        else:
            program = read_pte(file)
        with reading("ExecuTorch program", file):
            nodes_of = None if record is None else Export(program, record).edge_nodes
            return cls(file, program, bundle, ProgramClaims(program, nodes_of))

    def sized(self, kind: str, *, has_external: bool) -> SizedFile:
        """The file with its parts. has_external: its .ptd was given."""
        notes = []
        if self.claims.external and not has_external:
            count = len(self.claims.external)
            notes.append(f"{count:,} weights are in a .ptd file: name that as a FILE, too.")
        if overlapping := self.claims.claims.overlapping():
            notes.append(
                f"{overlapping:,} constants overlap: each byte counts for the smallest of them."
            )
        data = self.program.source.buffer
        parts = self.claims.parts()
        if self.bundle is not None:
            data = self.bundle.source.buffer
            around = self._parts_of_bundle(self.bundle)
            parts = (*around, *(_shifted(part, self.bundle.program_span.offset) for part in parts))
        return SizedFile(self.file, kind, parts, data, tuple(notes))

    @staticmethod
    def _parts_of_bundle(bundle: BundledFile) -> list[FilePart]:
        """The parts of a bundle around its program: the tensors of its cases, and its tables."""
        data = bundle.source.buffer
        first = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        claims = Claims((PADDING, _CASES, TABLES))
        claims.add(bundle.program_span, Claim(PADDING))  # replaced by the program's parts
        for suite in bundle.suites:
            for number, case in enumerate(suite.cases):
                for value in (*case.inputs, *case.expected_outputs):
                    if isinstance(value, np.ndarray) and value.size:
                        low = value.__array_interface__["data"][0] - first
                        label = f"{suite.method}, case {number}"
                        claims.add(Span(low, value.nbytes), Claim(_CASES, str(value.dtype), label))
        claims.add(Span(0, len(data)), Claim(TABLES, label="bundle"))
        return [part for part in claims.parts(data) if part.kind != PADDING]


def _shifted(part: FilePart, by: int) -> FilePart:
    return part if part.offset is None else replace(part, offset=part.offset + by)


# -- what could be saved

_UNREAD_NOTE = "Weights and values that no instruction names and no method returns are dead."
_FLOATS = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of an element
_QUANTIZABLE = 2  # dimensions: backends keep vectors in float


SAVINGS = (
    Column("saved_by_float16", Kind.BYTES, title="float16 saves", priority=2),
    Column("saved_by_int8", Kind.BYTES, title="int8 saves", priority=2),
    Column("saved_by_sharing", Kind.BYTES, title="sharing saves", priority=2),
)


@dataclass(frozen=True, slots=True)
class Savings:
    """Bytes that a change of each weight would save, by index among the parts of a file.

    float16, int8: if stored as float16, or as int8 with a float32 scale for each channel; only
    weights that get smaller. sharing: all but the first of equal weights. groups: the equal
    weights. uncertain: bytes of weights that were not compared in full.
    """

    float16: Mapping[int, int]
    int8: Mapping[int, int]
    sharing: Mapping[int, int]
    groups: Sequence[Sequence[int]]
    uncertain: int

    @classmethod
    def of(cls, parts: Sequence[FilePart], data: memoryview) -> Savings:
        """The savings of a file's weights. data: the bytes of the file."""

        def saved_by_int8(part: FilePart) -> int:
            """Return the bytes that int8 would save; 0 for weights that quantizers skip: integers,
            and vectors, also with further dimensions of size 1.
            """
            itemsize = _FLOATS.get(part.dtype or "")
            if itemsize is None or sum(size > 1 for size in part.shape) < _QUANTIZABLE:
                return 0
            # A scale for each channel: the first dimension, or XNNPACK's depthwise filters' last.
            channels = part.shape[0] if part.shape[0] > 1 else part.shape[-1]
            return part.size - part.size // itemsize - 4 * channels

        weights = [index for index, part in enumerate(parts) if part.kind == WEIGHTS]
        int8 = {index: saved_by_int8(parts[index]) for index in weights}
        placed: dict[int, memoryview] = {}
        for index in weights:
            if (at := parts[index].offset) is not None:
                placed[index] = data[at : at + parts[index].size]
        found, uncertain = equal_content([*placed.values()])
        groups = [[[*placed][position] for position in group] for group in found]
        return cls(
            # The kernels of backends need the scales of quantized weights as float32.
            float16={
                index: parts[index].size // 2
                for index in weights
                if parts[index].dtype == "float32" and parts[index].label != SCALES
            },
            int8={index: saved for index, saved in int8.items() if saved > 0},
            sharing={index: parts[index].size for group in groups for index in group[1:]},
            groups=groups,
            uncertain=uncertain,
        )


def why_repeated(alike: Sequence[FilePart]) -> str:
    """Say why equal weights are stored more than once, and what to do, with a space in front; ""
    if it is not known."""
    if len({part.is_packed for part in alike}) < 2:
        return ""
    return (
        " A delegate has a copy of its own, as kernels outside of it read the other. Smaller "
        "copies: `etscope export -X quantize_embeddings=8` for a tied embedding, or `--quantize "
        "8da4w` for the linear layer."
    )


def exact_halves(parts: Sequence[FilePart], data: memoryview) -> list[int]:
    """The indices of the float32 weights whose numbers are all exact in float16."""
    found = []
    for index, part in enumerate(parts):
        if part.kind != WEIGHTS or part.dtype != "float32" or part.offset is None:
            continue
        values = np.frombuffer(data, "<f4", part.size // 4, part.offset)
        # Block by block: most weights show in the first.
        blocks = (values[at : at + _BLOCK] for at in range(0, len(values), _BLOCK))
        with np.errstate(over="ignore"):
            if len(values) and all((one.astype("<f2") == one).all() for one in blocks):
                found.append(index)
    return found


_BLOCK = 1 << 16


def told_exact(exact: Sequence[int], parts: Sequence[FilePart]) -> str:
    """Say which weights are exact in float16, and how to store them so."""
    floats = [part for part in parts if part.kind == WEIGHTS and part.dtype == "float32"]
    size = sum(parts[index].size for index in exact)
    which = (
        "All float32 weights" if len(exact) == len(floats) else f"{len(exact):,} float32 weights"
    )
    return (
        f"{which} ({format_bytes(size)}) are exact in float16: half of their bytes without loss, "
        "by `model.half()`. Values are computed in float16 then."
    )


def savings(sized: SizedFile) -> Section:
    """A section with one row for each way to make the file smaller: estimates, each alone."""
    parts, saved = sized.parts, sized.saved
    notes = ["Estimates, each on its own. They ignore accuracy and the limits of backends."]
    changes = [("float32 to float16", saved.float16)]
    for dtype in _FLOATS:
        of_type = {index: size for index, size in saved.int8.items() if parts[index].dtype == dtype}
        changes.append((f"{dtype} to int8 by channel", of_type))
    content: list[tuple[str, int | None, int, int]] = [
        (name, len(sizes), sum(parts[index].size for index in sizes), sum(sizes.values()))
        for name, sizes in changes
        if sizes
    ]
    if saved.groups:
        equal = [index for group in saved.groups for index in group]
        held = sum(parts[index].size for index in equal)
        content.append(("one copy of equal weights", len(equal), held, sum(saved.sharing.values())))
    unread = [part for part in parts if part.kind == WEIGHTS and part.is_unread]
    values = sum(part.size for part in parts if part.detail == UNREAD)
    if unread or values:
        held = sum(part.size for part in unread) + values
        content.append(("without unread weights and values", len(unread) or None, held, held))
        notes.append(_UNREAD_NOTE)
    if traced := sum(part.size for part in parts if part.detail == STACK_TRACES):
        content.append(("no stack traces (emit_stacktrace=False)", None, traced, traced))
    for group in saved.groups[:3]:
        alike = [parts[index] for index in group]
        names = ", ".join(dict.fromkeys(part.owner for part in alike[:4]))
        notes.append(
            f"{len(group):,} weights of {alike[0].size:,} bytes are equal: {names}."
            f"{why_repeated(alike)}"
        )
    if exact := exact_halves(parts, sized.data):
        notes.append(told_exact(exact, parts))
    if saved.uncertain:
        notes.append(
            f"{saved.uncertain:,} bytes of equal weights are uncertain: compared at 16 places "
            "of each weight."
        )
    return rows(
        "savings",
        "What could be saved (estimates)",
        (
            Column("change"),
            Column("weights", Kind.COUNT),
            Column("now", Kind.BYTES),
            Column("then", Kind.BYTES),
            Column("saves", Kind.BYTES),
        ),
        [(name, count, now, now - saves, saves) for name, count, now, saves in content],
        tuple(notes),
    )


# -- as reports


def size_reports(files: Sequence[SizedFile], by: str = "kind") -> list[Report]:
    """Build a report of each file with the sections "size" (bytes by kind, module, dtype or owner),
    "tables" and "operators" (of a program's tables), "parts" (each part, the largest first) and
    "savings"; and one of the total for several files.
    """
    reports = []
    for sized in files:
        sections = [_grouped(sized, by), *_of_tables(sized), _largest(sized), savings(sized)]
        about = {"file": sized.file, "kind": sized.kind}
        reports.append(Report(about, tuple(one for one in sections if len(one.table))))
    if len(files) > 1:
        listed = [(sized.file, sized.kind, len(sized.data)) for sized in files]
        columns = (Column("file", Kind.PATH), Column("kind"), Column("size", Kind.BYTES))
        total = ("total", None, sum(size for _, _, size in listed))
        section = rows("total", "All files", columns, [*listed, total])
        reports.append(Report({"file": "total", "kind": "total"}, (section,)))
    return reports


def flat_sizes(sized: SizedFile, by: str | None = None, limit: int | None = None) -> Table:
    """Build one table for programs, with the file in each row: a row for each part, the largest
    first, or for each group of `by`; the first `limit` of them."""
    table = (_largest(sized) if by is None else _grouped(sized, by)).table
    table = table if limit is None else table.take(range(min(limit, len(table))))
    return Table.of(
        {
            Column("file", Kind.PATH): [sized.file] * len(table),
            **{column: table.values[column.name] for column in table.columns},
        }
    )


def _grouped(sized: SizedFile, by: str) -> Section:
    whole = len(sized.data)
    title = f"{sized.file}: bytes by {by}"
    if by == "module":
        table = by_module(sized.parts).table
        return Section("size", replace(table, title=title, notes=(*table.notes, *sized.notes)))
    keys = {"kind": ("kind",), "dtype": ("kind", "dtype"), "owner": ("owner", "kind")}[by]
    grouped: dict[tuple[Any, ...], list[int]] = {}
    for part in sized.parts:
        key = tuple(getattr(part, name) for name in keys)
        grouped.setdefault(key, []).append(part.size)
    ordered = sorted(grouped.items(), key=lambda item: -sum(item[1]))
    return rows(
        "size",
        title,
        (
            *(Column(name) for name in keys),
            Column("count", Kind.COUNT, title="parts", priority=1),
            Column("size", Kind.BYTES),
            Column("share", Kind.SHARE, title="of the file"),
        ),
        [(*key, len(sizes), sum(sizes), sum(sizes) / whole) for key, sizes in ordered],
        (f"{whole:,} bytes in all.", *sized.notes),
    )


def _of_tables(sized: SizedFile) -> Iterator[Section]:
    """The bytes of a program's tables by content, then by operator or backend: its instructions and
    values."""
    calls: Counter[str] = Counter()
    by_content: Counter[str] = Counter()
    by_operator: Counter[str] = Counter()
    for part in sized.parts:
        if part.kind == TABLES and part.detail is not None:
            by_content[part.detail] += part.size
        if part.operator is not None:
            by_operator[part.operator] += part.size
            calls[part.operator] += part.calls or 0
    size, share = Column("size", Kind.BYTES), Column("share", Kind.SHARE, title="of the file")
    whole = len(sized.data)
    yield rows(
        "tables",
        "Tables: the program itself",
        (Column("content"), size, share),
        [(content, bytes_, bytes_ / whole) for content, bytes_ in by_content.most_common()],
    )
    yield rows(
        "operators",
        "Tables by operator: its instructions, and the values that it names first",
        (
            Column("operator"),
            Column("calls", Kind.COUNT),
            Column("each", Kind.BYTES, title="per call", priority=1),
            size,
            share,
        ),
        [
            (name, calls[name], bytes_ / max(calls[name], 1), bytes_, bytes_ / whole)
            for name, bytes_ in by_operator.most_common()
        ],
    )


def part_by_part(files: Sequence[SizedFile]) -> Section:
    """A section with one row for each part, in file order; `file` is a column if there are
    several."""
    several = len(files) > 1
    names = [Path(sized.file).name for sized in files]
    if len(set(names)) < len(names):
        names = [sized.file for sized in files]
    named = (Column("file", Kind.PATH, priority=1),) if several else ()
    return rows(
        "file_parts",
        "Parts of the files" if several else "Parts of the file",
        (
            Column("kind"),
            *named,
            Column("module", Kind.PATH),
            Column("name"),
            Column("dtype", priority=1),
            Column("content"),
            Column("operator", priority=2),
            Column("offset", Kind.INT, priority=2),
            Column("size", Kind.BYTES),
            *SAVINGS,
        ),
        [
            (
                part.kind,
                *([name] if several else []),
                shown_module(part.module),
                part.named,
                part.dtype,
                ": ".join(filter(None, (part.label, part.detail))) or None,
                part.operator,
                part.offset,
                part.size,
                *_saved(sized, index),
            )
            for name, sized in zip(names, files, strict=True)
            for index, part in enumerate(sized.parts)
        ],
    )


def _largest(sized: SizedFile) -> Section:
    columns: dict[Column, Callable[[FilePart], Any]] = {
        Column("owner"): lambda part: part.owner,
        Column("kind", priority=1): lambda part: part.kind,
        Column("names", Kind.LIST, priority=5): lambda part: list(part.names),
        Column("operator", priority=4): lambda part: part.operator,
        Column("module", Kind.PATH, priority=4): lambda part: shown_module(part.module),
        Column("line", Kind.PATH, priority=3): lambda part: part.line,
        Column("dtype", priority=2): lambda part: part.dtype,
        Column("shape", Kind.LIST, priority=5): lambda part: list(part.shape),
        Column("shared_by", Kind.LIST, priority=4): lambda part: list(part.shared_by),
        Column("offset", Kind.INT, priority=6): lambda part: part.offset,
        Column("unpacked", Kind.BYTES, priority=3): lambda part: part.unpacked,
        Column("size", Kind.BYTES): lambda part: part.size,
    }
    ordered = sorted(range(len(sized.parts)), key=lambda index: -sized.parts[index].size)
    return rows(
        "parts",
        "Parts, the largest first",
        (*columns, *SAVINGS),
        [
            [*(value(sized.parts[index]) for value in columns.values()), *_saved(sized, index)]
            for index in ordered
        ],
    )


def _saved(sized: SizedFile, index: int) -> list[int | None]:
    """The cells of `SAVINGS` of a part: empty unless it is a weight."""
    if sized.parts[index].kind != WEIGHTS:
        return [None] * len(SAVINGS)
    saved = sized.saved
    return [sizes.get(index, 0) for sizes in (saved.float16, saved.int8, saved.sharing)]
