"""The bytes of a program: its weights by module and element type, and everything else.

A weight belongs to the innermost module that holds all operators that read it in the record's
graph. Without a record, or with unknown readers, its module is unknown. Each byte counts once, so
the parts sum to the program's size.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from etscope.analysis.memory.stored import (
    STATE,
    WEIGHTS,
    NodesOf,
    OwnedBytes,
    StoredTensor,
    parameter_name,
    parameters_of,
    stored_tensors,
)
from etscope.analysis.program.source_location import (
    common_module,
    lines_of,
    module_path,
    short_lines,
)
from etscope.formats.bytes.files import scattered_reads
from etscope.formats.bytes.flatbuffer import IntArray, Span
from etscope.formats.program.delegate_data import delegate_parts
from etscope.formats.program.pte import INSTRUCTIONS, Program, table_extents
from etscope.formats.program.pte_schema import Delegate
from etscope.formats.program.xnnpack import is_xnnpack
from etscope.model.graph import Graph, Node
from etscope.model.report import Section, rows
from etscope.model.table import Column, Kind
from etscope.units import listed

if TYPE_CHECKING:
    from etscope.formats.program.ptd import ExternalData

DELEGATES = "delegates' data"
NAMED = "named data"
TABLES = "tables"
PADDING = "padding"
UNREFERENCED = "unreferenced"
# If several kinds claim a byte, the first of these wins: it says most.
_KINDS = (WEIGHTS, STATE, DELEGATES, NAMED, TABLES)

_SHOWN_NAMES = 4  # in a cell: more do not fit, and are counted
_LARGEST_PADDING = 1 << 14  # bytes: exporters align segments to pages of 16 KiB at most


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart(OwnedBytes):
    """A part of a file, in bytes. Its owner is the parameters, else the tensor or backend, else the
    kind.

    kind: for a program: "weights", "initial state", "delegates' data" (without the weights in it),
    "named data" (with unknown use), "tables" (the program itself), "padding" (zeros between the
    other parts) or "unreferenced" (bytes that nothing points to). module: "" is the root, None
    unknown. offset: where the first byte is, None for a part in several places. size: in bytes,
    without the bytes of other parts. label: the tensor, the backend or the key.

    names: the parameters with these bytes, as the model calls them. detail: which part of a
    delegate's data ("cmd_data"; "opaque" if its layout is not known). shape: the shape of a weight
    with elements of type `dtype`. line: the source line that reads it ("net.py:12"). shared_by: if
    several modules or methods read it, their names. unpacked: for a member of a zip file, its
    unpacked size. operator: the operator or backend that tables describe. calls: the number of
    instructions, if the part holds instructions. is_unread: True if no instruction reads the
    weight, and no method returns it. is_packed: True if a delegate reads it.
    """

    kind: str
    module: str | None
    dtype: str | None
    label: str | None
    offset: int | None
    size: int
    names: tuple[str, ...] = ()
    detail: str | None = None
    shape: tuple[int, ...] = ()
    line: str | None = None
    shared_by: tuple[str, ...] = ()
    unpacked: int | None = None
    operator: str | None = None
    calls: int | None = None
    is_unread: bool = False
    is_packed: bool = False

    @property
    def name(self) -> str | None:
        """The first name; None if unknown."""
        return self.names[0] if self.names else None

    @property
    def named(self) -> str | None:
        """The first names as text, "a, b, c, d and 3 more"; None if unknown."""
        return listed(self.names, _SHOWN_NAMES) or None


@dataclass(slots=True)
class Claim:
    """A claim that some bytes of a file are a certain weight or kind of data, with the nodes that
    read them. names: the parameters stored there, if the nodes show them. nodes: the nodes that
    read the bytes. candidates: all parameters that these nodes read, by name, with their shapes and
    readers. is_unread: True if nothing reads the bytes. The other fields are as in `FilePart`.
    """

    kind: str
    dtype: str | None = None
    label: str | None = None
    detail: str | None = None
    shape: tuple[int, ...] = ()
    names: list[str] = field(default_factory=list)
    unpacked: int | None = None
    is_unread: bool = False
    is_packed: bool = False
    operator: str | None = None
    calls: int | None = None
    nodes: list[Node] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    candidates: dict[str, tuple[tuple[int, ...], list[Node]]] = field(default_factory=dict)

    @classmethod
    def of(cls, tensor: StoredTensor, graph: Graph | None) -> Claim:
        """Return what is known about a tensor's bytes. graph: the graph with its nodes."""
        name = parameter_name(tensor, graph)
        if name is None and tensor.value is not None:
            name = tensor.value.name
        claim = cls(
            kind=tensor.kind,
            dtype=tensor.dtype,
            label=tensor.label,
            shape=tensor.shape,
            names=[] if name is None else [name],
            is_unread=tensor.is_unread and tensor.kind == WEIGHTS,
            is_packed=tensor.value is None,
            nodes=list(tensor.nodes),
            methods=[tensor.method],
        )
        for node in tensor.nodes:
            shapes = {} if graph is None else parameters_of(node, graph)
            claim.read({name: (shape, [node]) for name, shape in shapes.items()})
        return claim

    def part(self, offset: int | None, size: int) -> FilePart:
        """Return the part of the file for this claim."""
        is_tensor = self.kind in (WEIGHTS, STATE)
        names = list(dict.fromkeys(self.names)) or self._fitting()
        name = names[0] if len(names) == 1 else None
        shape = self.shape
        nodes = self.nodes
        if name is not None and name in self.candidates:
            known, nodes = self.candidates[name]
            shape = known if len(shape) == 1 else shape  # Core ML's data stores no shapes
        modules = {path or "(root)" for node in nodes if (path := module_path(node)) is not None}
        readers = sorted(modules) if len(modules) > 1 else sorted(set(self.methods))
        module = common_module(nodes) if is_tensor else None
        owner = listed(names, _SHOWN_NAMES) or self.label or self.kind
        if module and not owner.startswith(module):
            owner = f"{module}: {owner}"
        return FilePart(
            owner=owner if self.detail is None else f"{owner}: {self.detail}",
            kind=self.kind,
            module=module,
            dtype=self.dtype,
            label=self.label,
            offset=offset,
            size=size,
            names=tuple(names),
            detail=self.detail,
            shape=shape,
            line=(short_lines(lines_of(nodes)) or None) if is_tensor else None,
            shared_by=tuple(readers) if is_tensor and len(readers) > 1 else (),
            unpacked=self.unpacked,
            operator=self.operator,
            calls=self.calls,
            is_unread=self.is_unread,
            is_packed=self.is_packed,
        )

    def join(self, other: Claim) -> None:
        """Add the readers of a claim about the same bytes."""
        if other is not self:
            self.is_unread &= other.is_unread
            self.is_packed |= other.is_packed
            self.names += other.names
            self.nodes += other.nodes
            self.methods += other.methods
            self.read(other.candidates)

    def read(self, candidates: Mapping[str, tuple[tuple[int, ...], list[Node]]]) -> None:
        """Add parameters that the readers read."""
        for name, (shape, nodes) in candidates.items():
            self.candidates.setdefault(name, (shape, []))[1].extend(nodes)

    def _fitting(self) -> list[str]:
        """Return the only parameter with this shape, or with its sizes in another order: backends
        permute weights. Empty if several fit."""
        if self.kind != WEIGHTS or not self.shape:
            return []

        def without_ones(sizes: Sequence[int]) -> list[int]:
            return sorted(size for size in sizes if size != 1)

        for same in (tuple, without_ones, math.prod):
            wanted = same(self.shape)
            fitting = [n for n, (shape, _) in self.candidates.items() if same(shape) == wanted]
            if fitting:
                return fitting if len(fitting) == 1 else []
        return []


class Claims:
    """All claims about one file, by span. If two claim one span, the more specific kind wins."""

    def __init__(self, kinds: Sequence[str] = _KINDS) -> None:
        self.kinds = kinds
        self.by_span: dict[Span, Claim] = {}

    def add(self, span: Span, claim: Claim) -> None:
        """Claim a span; if it is claimed already, add the readers to that claim."""
        known = self.by_span.get(span)
        if known is None:
            self.by_span[span] = claim
            return
        first, other = sorted((known, claim), key=lambda one: self.kinds.index(one.kind))
        self.by_span[span] = first
        first.join(other)

    def parts(self, data: memoryview) -> tuple[FilePart, ...]:
        """The parts of the file in file order, unclaimed bytes last. Their sizes sum to the
        file's."""
        return self.parts_of(data, self.pieces(len(data)))

    def parts_of(self, data: memoryview, pieces: Sequence[Piece]) -> tuple[FilePart, ...]:
        """Return `parts`, computed from the pieces of the file."""
        sizes: dict[Span, int] = {}
        places: dict[Span, tuple[int, int]] = {}  # the first byte, and the end of the last piece
        scattered: set[Span] = set()
        padding, unreferenced = 0, []
        for span, start, end in pieces:
            if span is not None:
                sizes[span] = sizes.get(span, 0) + end - start
                first, last = places.get(span, (start, start))
                places[span] = first, end
                if last != start:
                    scattered.add(span)
            elif is_padding(data, start, end):
                padding += end - start
            else:
                unreferenced.append(Claim(UNREFERENCED).part(start, end - start))
        parts = [
            claim.part(None if span in scattered else places[span][0], sizes[span])
            for span, claim in sorted(self.by_span.items(), key=lambda item: item[0].offset)
            if sizes.get(span)
        ]
        parts += unreferenced
        return (*parts, Claim(PADDING).part(None, padding)) if padding else tuple(parts)

    def overlapping(self) -> int:
        """Count the tensors that overlap another tensor."""
        tensors = sorted(
            (span.offset, span.offset + span.size)
            for span, claim in self.by_span.items()
            if span.size and claim.kind in (WEIGHTS, STATE) and claim.detail is None
        )
        common: set[tuple[int, int]] = set()
        furthest = (0, 0)
        for start, end in tensors:
            if start < furthest[1]:
                common |= {furthest, (start, end)}
            furthest = max(furthest, (start, end), key=lambda one: one[1])
        return len(common)

    def pieces(self, whole: int) -> list[Piece]:
        """Cut the file where a span begins or ends. Each piece has the span that owns it, None for
        a gap. Where spans overlap, the most specific kind owns the bytes, then the smallest span.
        """
        begins = sorted(
            (span.offset, self.kinds.index(claim.kind), span.size, span)
            for span, claim in self.by_span.items()
            if span.size
        )
        inside = (edge for at, _, size, _ in begins for edge in (at, at + size))
        edges = sorted({0, whole, *(min(edge, whole) for edge in inside)})
        found: list[Piece] = []
        active: list[tuple[int, int, int, Span]] = []  # heap by kind, size and offset
        position = 0
        for start, end in pairwise(edges):
            while position < len(begins) and begins[position][0] <= start:
                at, rank, size, span = begins[position]
                heappush(active, (rank, size, at, span))
                position += 1
            while active and active[0][2] + active[0][1] <= start:
                heappop(active)
            found.append((active[0][3] if active else None, start, end))
        return found


Piece = tuple[Span | None, int, int]  # its owner, first byte and end


def is_padding(data: memoryview, start: int, end: int) -> bool:
    """Return True for a gap of zeros, at most as long as an alignment."""
    return end - start < _LARGEST_PADDING and not any(data[start:end])


def external_parts(data: ExternalData, programs: Sequence[ProgramClaims]) -> tuple[FilePart, ...]:
    """The parts of a .ptd file in file order, padding last. Their sizes sum to the file's.

    programs: the programs that read the file. They name the reader of each key.
    """
    claims = Claims()
    claims.add(data.tables, Claim(TABLES))
    for key, entry in data.entries.items():
        asked = [one.external[key] for one in programs if key in one.external]
        if asked:
            for claim in asked:
                claims.add(entry.blob, claim)
        elif entry.scalar_type is not None:
            dtype = entry.scalar_type.torch_name
            claims.add(entry.blob, Claim(WEIGHTS, dtype, str(entry), None, entry.sizes, [key]))
        else:
            claims.add(entry.blob, Claim(NAMED, label=key))
    return claims.parts(data.source.buffer)


class ProgramClaims:
    """Knowledge about the bytes of a program; `external`: the same for data in .ptd files, by
    key."""

    def __init__(
        self,
        program: Program,
        nodes_of: NodesOf | None = None,
        stored: Sequence[StoredTensor] | None = None,
    ) -> None:
        self.claims = Claims()
        self.external: dict[str, Claim] = {}
        self.program = program
        self.claims.add(Span(0, program.tables_size), Claim(TABLES))
        for entry in program.named_data:
            self.claims.add(entry.blob, Claim(NAMED, label=entry.key))
        # Nodes are compared by identity, so each method's graph is made once.
        runs = {} if nodes_of is None else {one.name: nodes_of(one.name) for one in program.methods}
        if stored is None:
            stored = stored_tensors(program, runs.__getitem__ if runs else None)
        for tensor in stored:
            run = runs.get(tensor.method)
            claim = Claim.of(tensor, None if run is None else run.symbols.graph)
            if tensor.key is None:
                self.claims.add(tensor.span, claim)
            else:
                self.external.setdefault(tensor.key, claim).join(claim)
        for method in program.methods:
            for delegate in method.delegates:
                self._add_delegate(program.blob(delegate.blob), delegate)

    def parts(self) -> tuple[FilePart, ...]:
        """The parts of the file in file order, padding and the parts of tables last. Their sizes
        sum to the file's."""
        data, tables = self.program.source.buffer, Span(0, self.program.tables_size)
        pieces = self.claims.pieces(len(data))
        parts = self.claims.parts_of(data, pieces)
        if self.claims.by_span[tables].kind != TABLES:
            return parts
        own = [(start, end) for span, start, end in pieces if span == tables]
        others = (part for part in parts if part.kind != TABLES)
        return (*others, *(self._parts_of_tables(np.array(own, np.int64)) if own else ()))

    def _parts_of_tables(self, own: IntArray) -> Iterator[FilePart]:
        """Yield the parts of the tables by content, method and operator. own: the first byte and
        end of each piece, in order, without the weights that older files keep inside the tables."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(own[:, 1] - own[:, 0])])

        def below(positions: IntArray) -> IntArray:
            """Count the bytes of own pieces before each position."""
            # The pieces that begin at or before each position.
            number = np.searchsorted(own[:, 0], positions, "right")
            last = np.maximum(number - 1, 0)
            unfinished = np.where(number > 0, np.maximum(own[last, 1] - positions, 0), 0)
            return before[number] - unfinished

        program = self.program
        sizes, starts, ends = table_extents(program).sizes(program.tables_size, below)
        calls: Counter[tuple[str | None, str | None]] = Counter(
            (method.name, name)
            for method in program.methods
            for name in map(method.operator_of, method.instructions)
        )
        for kind, size in sizes.items():
            if size:
                claim = Claim(
                    TABLES, label=kind.method, detail=kind.content, operator=kind.operator
                )
                if kind.content == INSTRUCTIONS:
                    claim.calls = calls[kind.method, kind.operator]
                yield claim.part(None, size)
        gaps = below(ends) - below(starts)
        data, padding, unreferenced = program.source.buffer, 0, 0
        for position in np.flatnonzero(gaps):
            if is_padding(data, int(starts[position]), int(ends[position])):
                padding += int(gaps[position])
            else:
                unreferenced += int(gaps[position])
        if padding:
            yield Claim(TABLES, detail="alignment").part(None, padding)
        if unreferenced:
            yield Claim(UNREFERENCED, detail="in the tables").part(None, unreferenced)

    def _add_delegate(self, data: memoryview, delegate: Delegate) -> None:
        """Claim a delegate's data, and its parts other than a `StoredTensor`."""
        backend, parts = delegate.backend_id, delegate_parts(delegate.backend_id, data)
        detail = None if parts or is_xnnpack(data) else "opaque"
        self.claims.add(delegate.blob, Claim(DELEGATES, label=backend, detail=detail))
        named = {entry.key: entry.blob for entry in self.program.named_data}
        for part in parts:
            if part.is_tensor:
                continue
            kind = WEIGHTS if part.is_weight else DELEGATES
            claim = Claim(kind, dtype=part.dtype, label=backend, detail=part.name)
            if part.key is None:
                self.claims.add(Span(delegate.blob.offset + part.offset, part.size), claim)
            elif part.key in named:
                self.claims.add(named[part.key], claim)
            else:
                self.external.setdefault(part.key, claim).join(claim)


# -- equal content

_SAMPLE = 4096  # bytes at the start, middle and end: one read of a page separates most weights
_PLACES = 16  # places compared in blobs beyond the limit below
# bytes read in full at most: hashing more would take longer than the whole report
_HASHED = 64 << 20


def equal_content(blobs: Sequence[memoryview]) -> tuple[list[list[int]], int]:
    """Find blobs of the same bytes: groups of indices, and the number of uncertain bytes.

    Blobs of one size with equal samples are read in full, up to 64 MiB together. Beyond that, blobs
    are compared at 16 places of 4 KiB only and count as uncertain.
    """
    sizes: dict[int, list[int]] = {}
    for index, blob in enumerate(blobs):
        if len(blob):
            sizes.setdefault(len(blob), []).append(index)
    alike = list(sizes.values())
    with scattered_reads(blobs[0]) if blobs else nullcontext():
        for place in (0.0, 0.5, 1.0):  # the next place reads only blobs that are still alike
            alike = _split(alike, partial(_sample, blobs, place))
        left = _HASHED
        small: list[list[int]] = []
        large: list[list[int]] = []
        for indices in (group for group in alike if len(group) > 1):
            size = sum(len(blobs[index]) for index in indices)
            (small if size <= left else large).append(indices)
            left -= size if size <= left else 0
        for place in np.linspace(0, 1, _PLACES).tolist():
            large = _split(large, partial(_sample, blobs, place))
    large = [group for group in large if len(group) > 1]
    uncertain = sum(len(blobs[index]) for group in large for index in group)
    hashed = _split(small, lambda index: hashlib.blake2b(blobs[index]).digest())
    return large + [group for group in hashed if len(group) > 1], uncertain


def _sample(blobs: Sequence[memoryview], at: float, index: int) -> bytes:
    blob = blobs[index]
    start = int(max(len(blob) - _SAMPLE, 0) * at)
    return bytes(blob[start : start + _SAMPLE])


def _split(groups: Sequence[list[int]], key: Callable[[int], bytes]) -> list[list[int]]:
    """Split groups of more than one by a key of their members."""
    found: list[list[int]] = []
    for group in groups:
        if len(group) > 1:
            by_key: dict[bytes, list[int]] = {}
            for index in group:
                by_key.setdefault(key(index), []).append(index)
            found += by_key.values()
    return found


# -- as tables


def by_module(parts: Sequence[FilePart]) -> Section:
    """A section with one row for each kind, module and type, the largest first. A module's row
    excludes the weights of the modules inside it."""
    grouped: dict[tuple[str, str | None, str | None], list[int]] = {}
    for part in parts:
        grouped.setdefault((part.kind, part.module, part.dtype), []).append(part.size)
    total = sum(part.size for part in parts)
    ordered = sorted(grouped.items(), key=lambda item: -sum(item[1]))
    unknown = sum(part.size for part in parts if part.kind == WEIGHTS and part.module is None)
    notes = [f"{total:,} bytes in all."]
    if unknown:
        notes.append(f"The module of {unknown:,} bytes of weights is unknown.")
    return rows(
        "weights",
        "Weights by module",
        (
            Column("kind"),
            Column("module", Kind.PATH),
            Column("dtype"),
            Column("count", Kind.COUNT, title="parts", priority=1),
            Column("size", Kind.BYTES),
            Column("share", Kind.SHARE, title="of the file"),
        ),
        [
            (kind, shown_module(module), dtype, len(sizes), sum(sizes), sum(sizes) / total)
            for (kind, module, dtype), sizes in ordered
        ],
        tuple(notes),
    )


def shown_module(module: str | None) -> str | None:
    """The module for a table: "(root)" for the model itself, None if unknown."""
    return "(root)" if module == "" else module
