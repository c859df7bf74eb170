"""Compare two programs: operators, instructions, signatures, weights, memory, delegates and bytes.

Instructions are aligned method by method as sequences, so an added one does not move the others: by
operator, module and results if both sides have a record, else by operator and results; then, in the
gaps, by the operator alone. One without a partner that is elsewhere on the other side has moved. A
pair has *changed* if its operator reads or writes tensors of another type or shape, has another
option (a stride, a number), or reads the result of another instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import zip_longest

from etscope.analysis.comparison.align import Status
from etscope.analysis.comparison.program_weights import (
    Weight,
    WeightChange,
    compare_weights,
    same_bytes,
    weights_of,
)
from etscope.analysis.matching.export import Export
from etscope.analysis.memory.file_parts import FilePart, ProgramClaims, external_parts
from etscope.analysis.memory.plan import MemoryPlan, memory_plans
from etscope.analysis.memory.stored import StoredTensor, stored_tensors
from etscope.analysis.program.program import InstructionRecord, is_prim, unfolded
from etscope.analysis.program.source_location import common_module, short_lines
from etscope.errors import FormatError
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.ptd import ExternalData, external_keys
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import (
    CompileSpec,
    Delegate,
    KernelCall,
    ListValue,
    Method,
    ScalarValue,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.xnnpack import is_xnnpack, read_xnnpack
from etscope.model.common_subsequence import matched_anywhere, matched_in_turn, with_gaps
from etscope.support.shown import Shown
from etscope.units import listed

__all__ = ["Side", "diff_programs"]

NAMES_SHOWN = 3  # in a sentence, so that it stays one; new kernels are listed in full


@dataclass(frozen=True)
class Side(Shown):
    """A program to compare.

    name: the name in sentences. record: the program's record, if there is one. data: its .ptd
    files; if they are not given, weights in .ptd files are compared only by key.
    """

    name: str
    program: Program
    record: RecordView | None = None
    data: tuple[ExternalData, ...] = ()

    def check_record(self) -> None:
        """Raise `MismatchError` if the record belongs to another program."""
        self.export.check_record(self.name)

    @cached_property
    def export(self) -> Export:
        return Export(self.program, self.record, self.data)

    @property
    def size(self) -> int:
        """Bytes of the file, and of its .ptd files."""
        return self.program.source.size + sum(one.source.size for one in self.data)

    @cached_property
    def methods(self) -> Mapping[str, Method]:
        return {method.name: method for method in self.program.methods}

    @cached_property
    def stored(self) -> tuple[StoredTensor, ...]:
        return stored_tensors(self.program, self.export.edge_nodes)

    @cached_property
    def parts(self) -> tuple[FilePart, ...]:
        """The parts of the file, then the parts of its .ptd files, marked by their kind."""
        claims = ProgramClaims(self.program, stored=self.stored)
        external = (part for data in self.data for part in external_parts(data, [claims]))
        return (
            *claims.claims.parts(self.program.source.buffer),
            *(replace(part, kind=f"{part.kind} in .ptd files") for part in external),
        )

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        return weights_of(self.export, self.stored)

    @cached_property
    def plans(self) -> Mapping[str, MemoryPlan]:
        return memory_plans(self.export)

    def alive_at_peak(
        self, method: str, *, with_modules: bool
    ) -> Iterator[tuple[str, str, str, str, int]]:
        """Yield the tensors alive at the peak of a method: each as text, its role, the operator
        that makes it, its module and its bytes."""
        plan = self.plans[method]
        places = plan.places(self.export.attributions[method]) if with_modules else {}
        for instruction in plan.peak_instructions[:1]:
            for value in plan.live_at(instruction):
                module = places.get(value.value, (None, None))[0] or ""
                yield str(value.tensor), value.role, value.op or "", module, value.nbytes

    @cached_property
    def kernels(self) -> frozenset[str]:
        """The kernels that an app must register: "aten::add.out"; not the runtime's operators."""
        return frozenset(
            operator.full_name
            for method in self.program.methods
            for operator in method.operators
            if not is_prim(operator)
        )

    @cached_property
    def backends(self) -> frozenset[str]:
        return frozenset(
            delegate.backend_id for method in self.program.methods for delegate in method.delegates
        )

    @cached_property
    def external(self) -> frozenset[str]:
        """The keys of weights that are in a .ptd file."""
        return frozenset(external_keys(self.program))

    @cached_property
    def delegates(self) -> Mapping[str, Sequence[ComparedDelegate]]:
        return {
            method.name: [self._compared(delegate) for delegate in method.delegates]
            for method in self.program.methods
        }

    def _compared(self, delegate: Delegate) -> ComparedDelegate:
        blob = self.program.blob(delegate.blob)
        data: bytes | memoryview = blob
        operators: Counter[str] = Counter()
        if is_xnnpack(blob):
            with suppress(FormatError):
                operators.update(node.kind or "unknown" for node in read_xnnpack(blob))
            # XNNPACK's names of weights are hashes of the weights, which are compared on their own.
            for entry in self.program.named_data:
                key = entry.key.encode()
                data = bytes(data).replace(key, bytes(len(key)))
        return ComparedDelegate(
            backend_id=delegate.backend_id,
            options=delegate.compile_specs,
            digest=sha256(data).digest(),
            size=delegate.blob.size,
            operators=operators,
        )

    def calls(self) -> Iterator[tuple[tuple[str, str, str | None], int]]:
        """Yield the number of calls by method, operator, and the backend around it."""
        for method in self.program.methods:
            counts: Counter[tuple[str, str, str | None]] = Counter()
            for instruction in method.instructions:
                if isinstance(instruction, KernelCall):
                    counts[method.name, method.operators[instruction.operator].full_name, None] += 1
            for delegate in self.delegates[method.name]:
                for operator, count in delegate.operators.items():
                    counts[method.name, operator, delegate.backend_id] += count
            yield from counts.items()

    def signature(self, method: str, what: str) -> list[str]:
        """The inputs or outputs of a method as text. what: "input" or "output"."""
        found = self.methods[method]
        indices = found.inputs if what == "input" else found.outputs
        return [value_text(found.values[index], found.values) for index in indices]

    def facts(self) -> dict[str, str | frozenset[str]]:
        """Return facts about the whole program by name; several keys as a set."""
        program = self.program
        unclaimed = [part for part in self.parts if part.kind == "named data"]
        return {
            "schema version": str(program.version),
            "constants": "inside the tables" if program.constants is None else "in a segment",
            "mutable data segments": str(len(program.mutable_data)),
            "named data": frozenset(part.label or "" for part in unclaimed),
            "weights in a .ptd file": self.external,
            "stack traces": "stored"
            if any(chain.traces_at for method in program.methods for chain in method.chains)
            else "not stored",
        }


@dataclass(frozen=True, slots=True)
class SizeChange:
    """The bytes of one owner on both sides.

    owner: a module if both sides have a record; else an element type, a backend or a key; None for
    bytes without an owner. dtypes: the types of its weights on each side.
    """

    kind: str
    owner: str | None
    before: int
    after: int
    dtypes: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def change(self) -> int:
        return self.after - self.before

    @property
    def dtype(self) -> str | None:
        """The element types as text: "float32 → int8", "float32" for both sides or the only one."""
        one, other = (", ".join(sorted(side)) for side in self.dtypes)
        if one == other or not one or not other:
            return one or other or None
        return f"{one} → {other}"


def size_changes(
    sides: Sequence[Sequence[FilePart]], owner_of: Callable[[FilePart], str | None]
) -> tuple[SizeChange, ...]:
    """Sum the parts of two sides by kind and owner, the largest change first. If `owner_of` returns
    None, the owner is the element type, else the backend or key."""
    sums: dict[tuple[str, str | None], list[int]] = {}
    dtypes: dict[tuple[str, str | None], tuple[dict[str, None], dict[str, None]]] = {}
    for number, parts in enumerate(sides):
        for part in parts:
            owner = owner_of(part)
            key = part.kind, owner if owner is not None else part.dtype or part.label
            sums.setdefault(key, [0, 0])[number] += part.size
            known = dtypes.setdefault(key, ({}, {}))[number]
            if part.dtype is not None:
                known[part.dtype] = None
    changes = [
        SizeChange(*key, sizes[0], sizes[1], (tuple(dtypes[key][0]), tuple(dtypes[key][1])))
        for key, sizes in sums.items()
    ]
    return tuple(sorted(changes, key=lambda one: (-abs(one.change), -one.after)))


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """Calls of an operator in a method. inside: the backend around it, None for a kernel."""

    method: str
    operator: str
    inside: str | None
    before: int
    after: int

    @property
    def status(self) -> Status:
        return change_status(bool(self.before), bool(self.after), self.before == self.after)


@dataclass(frozen=True, slots=True)
class InstructionChange:
    """An instruction on both sides, None where it is missing; module and line of the shown side."""

    method: str
    status: Status
    before: InstructionRecord | None
    after: InstructionRecord | None
    module: str | None
    source: str | None
    what: tuple[str, ...] = ()

    @property
    def shown(self) -> InstructionRecord:
        """The later side, or the earlier one if it was removed."""
        shown = self.after or self.before
        assert shown is not None
        return shown


@dataclass(frozen=True, slots=True)
class ValueChange:
    """An input or output of a method, or a fact about the program, as text on each side; None where
    it is missing.
    """

    method: str
    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ComparedDelegate:
    """A delegate's content: compile options, a hash of its data, its bytes, and the operators in
    data of a known format (XNNPACK)."""

    backend_id: str
    options: tuple[CompileSpec, ...]
    digest: bytes
    size: int
    operators: Counter[str]


@dataclass(frozen=True, slots=True)
class DelegateChange:
    """A delegate on both sides and its number in the method, None where it is missing."""

    method: str
    status: Status
    numbers: tuple[int | None, int | None]
    before: ComparedDelegate | None
    after: ComparedDelegate | None


@dataclass(frozen=True)
class ProgramDiff(Shown):
    """The differences of two programs, in the order of the later side."""

    before: Side
    after: Side

    @cached_property
    def identical(self) -> bool:
        """True if the programs have the same bytes, and their .ptd files, if both are given."""
        one, other = self.sides
        files: list[tuple[Program | ExternalData, Program | ExternalData]]
        files = [(one.program, other.program)]
        if one.data and other.data:
            if len(one.data) != len(other.data):
                return False
            files += zip(one.data, other.data, strict=True)
        return all(same_bytes(one.source.buffer, other.source.buffer) for one, other in files)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.before, self.after

    @property
    def shared(self) -> tuple[str, ...]:
        """The methods that both have."""
        return tuple(name for name in self.after.methods if name in self.before.methods)

    @property
    def added_methods(self) -> tuple[str, ...]:
        return tuple(name for name in self.after.methods if name not in self.before.methods)

    @property
    def removed_methods(self) -> tuple[str, ...]:
        return tuple(name for name in self.before.methods if name not in self.after.methods)

    @property
    def has_modules(self) -> bool:
        """True if both sides have a record."""
        return all(side.record is not None for side in self.sides)

    @cached_property
    def sizes(self) -> tuple[SizeChange, ...]:
        """The bytes by owner, the largest change first; they sum to the file's on each side."""
        return size_changes(
            [side.parts for side in self.sides],
            lambda part: part.module if self.has_modules else None,
        )

    @cached_property
    def weights(self) -> tuple[WeightChange, ...]:
        """All weights, changed or not."""
        return tuple(compare_weights(self.before.weights, self.after.weights))

    @cached_property
    def operators(self) -> tuple[OperatorChange, ...]:
        """The operators of all methods, changed or not: kernels, and those inside delegates."""
        counts = [dict(side.calls()) for side in self.sides]
        return tuple(
            OperatorChange(*key, counts[0].get(key, 0), counts[1].get(key, 0))
            for key in sorted(
                {**counts[0], **counts[1]}, key=lambda key: (key[0], key[2] or "", key[1])
            )
        )

    @cached_property
    def instructions(self) -> tuple[InstructionChange, ...]:
        """The instructions of the methods that both have, changed or not."""
        return tuple(
            change for method in self.shared for change in _Instructions(self, method).changes()
        )

    @cached_property
    def signatures(self) -> tuple[ValueChange, ...]:
        """The inputs and outputs that differ, of the methods that both have."""
        return tuple(
            ValueChange(name, f"{what} {position}", one, other)
            for name in self.shared
            for what in ("input", "output")
            for position, (one, other) in enumerate(
                zip_longest(*(side.signature(name, what) for side in self.sides))
            )
            if one != other
        )

    @cached_property
    def delegates(self) -> tuple[DelegateChange, ...]:
        names = dict.fromkeys([*self.after.methods, *self.before.methods])
        return tuple(change for name in names for change in self._delegates_of(name))

    def _delegates_of(self, method: str) -> Iterator[DelegateChange]:
        """Yield the pairs of a method's delegates: by content, then operators, then backend."""
        mine, theirs = (side.delegates.get(method, ()) for side in self.sides)
        turns: list[Callable[[ComparedDelegate], Hashable]] = [
            lambda one: (one.backend_id, one.options, one.digest),
            lambda one: (one.backend_id, frozenset(one.operators.items())),
            lambda one: one.backend_id,
        ]
        pairs = matched_in_turn(mine, theirs, turns)
        for i, j in with_gaps(pairs, len(mine), len(theirs)):
            one = None if i is None else mine[i]
            other = None if j is None else theirs[j]
            status = change_status(one is not None, other is not None, one == other)
            yield DelegateChange(method, status, (i, j), one, other)

    @cached_property
    def facts(self) -> tuple[ValueChange, ...]:
        """Facts about the whole programs that differ."""
        found = [side.facts() for side in self.sides]
        return tuple(
            ValueChange("", name, _fact(one, other), _fact(other, one))
            for (name, one), other in zip(found[0].items(), found[1].values(), strict=True)
            if one != other
        )

    @property
    def differs(self) -> bool:
        """True if any compared content differs, apart from its order in the file."""
        parts = (self.weights, self.operators, self.instructions, self.delegates)
        return bool(
            self.added_methods
            or self.removed_methods
            or self.signatures
            or self.facts
            or any(one.status not in ("same", "unchanged") for part in parts for one in part)
            or any(
                self.before.plans[name].arenas != self.after.plans[name].arenas
                for name in self.shared
            )
        )


def diff_programs(before: Side, after: Side, *, force: bool = False) -> ProgramDiff:
    """Compare two programs. Each part of the comparison is computed on first use. A record of one
    side only is not used.

    Raises `MismatchError` for a side with the record of another program, unless `force` is given.
    """
    if not force:
        before.check_record()
        after.check_record()
    if before.record is None or after.record is None:
        before, after = replace(before, record=None), replace(after, record=None)
    return ProgramDiff(before, after)


def _fact(own: str | frozenset[str], other: str | frozenset[str]) -> str:
    """A fact as text; for keys their number, and the first ones that the other side lacks."""
    if isinstance(own, str) or isinstance(other, str):
        return str(own)
    only = sorted(own - other)
    return f"{len(own):,}" + (f", only here: {listed(only, NAMES_SHOWN)}" if only else "")


def change_status(before: bool, after: bool, same: bool) -> Status:
    if before and after:
        return "same" if same else "changed"
    return "added" if after else "removed"


def value_text(value: Value, values: Sequence[Value]) -> str:
    """A value as text: "float32[1, 3]", "2", "[1, 1]", "[float32[2], None]"."""
    match value:
        case TensorValue():
            return str(value)
        case ScalarValue(ValueKind.NULL):
            return "None"
        case ScalarValue(kind, number):
            return repr(number) if kind is not ValueKind.STRING else str(number)
        case ListValue(ValueKind.DOUBLE_LIST | ValueKind.BOOL_LIST, items):
            return str(list(items))
        case ListValue(_, items):
            listed = [None if item < 0 else values[int(item)] for item in items]
            # ExecuTorch never nests lists; in a hostile program a list may contain itself.
            texts = (
                "[…]" if isinstance(one, ListValue) else value_text(one, values) if one else "None"
                for one in listed
            )
            return f"[{', '.join(texts)}]"


class _Instructions:
    def __init__(self, diff: ProgramDiff, method: str) -> None:
        self._method = method
        self._with_modules = diff.has_modules
        self._values = [side.methods[method].values for side in diff.sides]
        self._inputs = [side.methods[method].inputs for side in diff.sides]
        self._listed = [side.export.edge_nodes(method).records for side in diff.sides]
        self._places = [side.export.attributions[method] for side in diff.sides]

    def changes(self) -> Iterator[InstructionChange]:
        tokens = [
            [self._tokens(side, record) for record in records]
            for side, records in enumerate(self._listed)
        ]
        turns: list[Callable[[tuple[Hashable, ...]], Hashable]] = [
            lambda token: token,
            lambda token: token[:2],
            lambda token: (token[0], token[2]),
            lambda token: token[0],
        ]
        if self._with_modules:  # with modules, equal operators of other modules do not match
            turns.pop()
        pairs = matched_in_turn(tokens[0], tokens[1], turns)
        origins = self._origins(pairs)
        paired = {i for i, _ in pairs}, {j for _, j in pairs}
        left = [
            {number: token for number, token in enumerate(side) if number not in taken}
            for side, taken in zip(tokens, paired, strict=True)
        ]
        moved = {j: i for i, j in matched_anywhere(left[0], left[1])}
        gone = set(moved.values())
        for i, j in with_gaps(pairs, *map(len, self._listed)):
            if j is None and i in gone:
                continue
            if i is None and j is not None and j in moved:
                yield self._change("moved", moved[j], j)
            elif i is None or j is None:
                yield self._change("removed" if j is None else "added", i, j)
            else:
                what = tuple(self._differences(i, j, origins))
                yield self._change("changed" if what else "same", i, j, what)

    def _tokens(self, side: int, record: InstructionRecord) -> tuple[Hashable, ...]:
        module = None
        if self._with_modules:
            module = common_module(self._places[side][record.instruction_id].located)
        written = tuple(map(str, record.written))
        operator = record.operator or record.backend_id or record.kind
        return operator, module, written

    def _origins(self, pairs: Sequence[tuple[int, int]]) -> list[dict[int, Hashable]]:
        """On each side, the origin of each value by its index: an input of the method, or a result
        of a pair. Values of other instructions are excluded."""
        found: list[dict[int, Hashable]] = []
        for side in (0, 1):
            own: dict[int, Hashable] = {
                index: ("input", position) for position, index in enumerate(self._inputs[side])
            }
            for pair in pairs:
                record = self._listed[side][pair[side]]
                outputs = unfolded(self._values[side], record.outputs)
                own.update((index, (pair, position)) for position, index in enumerate(outputs))
            found.append(own)
        return found

    def _differences(
        self, i: int, j: int, origins: Sequence[Mapping[int, Hashable]]
    ) -> Iterator[str]:
        records = self._listed[0][i], self._listed[1][j]
        for what in ("inputs", "outputs"):
            texts = [
                [value_text(values[index], values) for index in getattr(record, what)]
                for values, record in zip(self._values, records, strict=True)
            ]
            for position, (one, other) in enumerate(zip_longest(*texts)):
                if one != other:
                    name = "argument" if what == "inputs" else "result"
                    yield f"{name} {position}: {one or 'none'} → {other or 'none'}"
        if records[0].destination is not None and records[1].destination is not None:
            jumps = [record.destination or 0 for record in records]
            if jumps[0] - i != jumps[1] - j:
                yield f"jump to {jumps[0]} → {jumps[1]}"
        read = [
            unfolded(values, record.inputs)
            for values, record in zip(self._values, records, strict=True)
        ]
        for position, (one, other) in enumerate(zip(*read, strict=False)):
            sources = origins[0].get(one), origins[1].get(other)
            if None not in sources and sources[0] != sources[1]:
                yield f"tensor {position}: read from another instruction"

    def _change(
        self, status: Status, i: int | None, j: int | None, what: tuple[str, ...] = ()
    ) -> InstructionChange:
        place = self._places[1][j] if j is not None else self._places[0][i or 0]
        return InstructionChange(
            method=self._method,
            status=status,
            before=None if i is None else self._listed[0][i],
            after=None if j is None else self._listed[1][j],
            module=common_module(place.located),
            source=short_lines(place.lines) or None,
            what=what,
        )
