"""Values of a run on the runtime: reading them, detecting overwritten ones, and setting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.program.program import InstructionRecord, unfolded
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.protocol.messages import ValueInfo
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.targets.remote_tensor import SENT_AT_ONCE, RemoteTensor, fetch_tensor
from etscope.etdb.targets.runtime_execution import Execution, Ints
from etscope.etdb.targets.runtime_method import RuntimeMethod
from etscope.formats.program.input_validation import broadcast_replacement
from etscope.formats.program.pte_schema import ListValue, Method, TensorValue

_VIEW = "executorch_prim::et_view"


@dataclass(frozen=True, slots=True)
class ValueAtStep:
    """A value of the program, unchanged since the step `since`. name: to display. element: index
    in a node with several values."""

    index: int
    since: int
    name: str
    element: int | None = None


class RuntimeValues:
    """The values of one run."""

    def __init__(self, execution: Execution, prepared: RuntimeMethod) -> None:
        self._execution, self._prepared = execution, prepared
        self._memory = MemoryPlan(prepared.method, prepared.records)
        self._generation = -1
        self._fetched: dict[int, Any] = {}

    # -- find

    def of_stop(self, position: int) -> list[ValueAtStep]:
        """Return the outputs of a stop. Raises `MissingDataError` for a stop that has not run."""
        stops = self._execution.stops
        stop = stops[position]
        number = stop.instruction or 0
        if position >= stops.known or stops.step_of(position) > self._execution.step:
            raise MissingDataError(f"{stop.name} has not run yet", hint=f"until id:{number}")
        since = stops.step_of(position)
        return [
            ValueAtStep(index, since, stop.path or f"a value of {stop.name}")
            for index in self._prepared.nodes.outputs_of(number)
        ]

    def of_node(self, node: str, until: int) -> list[ValueAtStep]:
        """Values of a node at a step: a single one, or each element."""
        nodes = self._prepared.nodes
        pairs = nodes.matching.by_node.get(node, ())
        if not pairs:
            index = nodes.placeholders.get(node)
            if index is None:
                raise MissingDataError(
                    f"no value of the program matches {node}", hint=nodes.why_unpaired(node)
                )
            return [ValueAtStep(index, self._last_write(index, until), node)]
        found: dict[int | None, ValueAtStep] = {}
        for pair in pairs:
            passes = self._execution.stops.passes_of(pair.instruction, until)
            if not len(passes):
                number = pair.instruction
                raise MissingDataError(
                    f"{node} has no value yet",
                    hint=f"instruction {number} computes the value; run on to it: until "
                    f"id:{number}",
                )
            index = nodes.index_of(pair)
            value = ValueAtStep(index, int(passes[-1]), pair.node, pair.element)
            found.setdefault(pair.element, value)
        if None in found:
            return [found[None]]
        return [found[element] for element in sorted(e for e in found if e is not None)]

    def of_index(self, index: int) -> ValueAtStep:
        """The current value by its index in the method."""
        values = self._prepared.method.values
        if not 0 <= index < len(values):
            raise UsageError(
                f"the method has no value {index}",
                hint=f"the method's values are numbered 0 to {len(values) - 1}",
            )
        nodes = self._prepared.nodes
        since = self._last_write(index, self._execution.step)
        is_set = index in self._prepared.method.inputs or nodes.has_content(index)
        if not since and not is_set:
            writers = nodes.writers_of(index)
            if not writers:
                raise MissingDataError(f"no instruction is known to compute value {index}")
            raise MissingDataError(
                f"value {index} has not been computed yet", hint=f"until id:{writers[0]}"
            )
        return ValueAtStep(index, since, f"value {index}")

    def _last_write(self, index: int, until: int) -> int:
        """The last step, up to `until`, that wrote a value; 0 if none did."""
        passes = (
            self._execution.stops.passes_of(number, until)
            for number in self._prepared.nodes.writers_of(index)
        )
        return max((int(steps[-1]) for steps in passes if len(steps)), default=0)

    def is_written_back(self, node: str, until: int) -> bool:
        """True for state of the graph that has been written back at a step."""
        index = self._prepared.nodes.placeholders.get(node)
        return index is not None and self._last_write(index, until) > 0

    # -- read

    def fetch(self, values: Sequence[ValueAtStep]) -> list[Any]:
        """Read values as arrays, `RemoteTensor`s, numbers or lists; overwritten ones are None.
        Raises `MissingDataError` if all are overwritten or empty tensors.
        """
        overwritten = [self._overwritten_by(value) is not None for value in values]
        static = [self._prepared.method.values[value.index] for value in values]
        empty = [isinstance(value, TensorValue) and value.nbytes == 0 for value in static]
        if all(gone or none for gone, none in zip(overwritten, empty, strict=True)):
            return [self._fetch(value) for value in self._valid(values)]
        return [
            None if gone else self._fetch(value)
            for value, gone in zip(values, overwritten, strict=True)
        ]

    def _valid(self, values: Iterable[ValueAtStep]) -> Iterator[ValueAtStep]:
        """Pass values on. Raises `MissingDataError` for one that is overwritten."""
        for value in values:
            number = self._overwritten_by(value)
            if number is None:
                yield value
                continue
            stop = self._execution.stops.of_instruction.get(number)
            label = self._prepared.records[number].label if stop is None else stop.path or stop.name
            if value.since:
                writer = int(self._execution.stops.ran[value.since - 1])
                hint = f"go back to where it was computed: tbreak id:{writer}, reverse-continue"
            else:
                hint = "it is there before the first operator: start"
            raise MissingDataError(
                f"{value.name} is gone: instruction {number} ({label}) has overwritten it",
                hint=hint,
            )

    def _overwritten_by(self, value: ValueAtStep) -> int | None:
        """The instruction that has overwritten a value; None if none has."""
        execution = self._execution
        return self._memory.overwritten(
            value.index, value.since, execution.step, execution.stops.ran
        )

    def _fetch(self, value: ValueAtStep) -> Any:
        weight = self._prepared.weight(value.index)
        if weight is not None:
            return weight
        if self._generation != self._execution.generation:
            self._fetched.clear()
        if value.index not in self._fetched:
            with self._execution.asking() as runner:
                # Connecting again changes the generation.
                self._generation = self._execution.generation
                self._fetched[value.index] = self._read(runner, value.index, lazy=True)
        return self._fetched[value.index]

    def _read(self, runner: Runner, index: int, lazy: bool = False) -> Any:
        info = runner.describe(index)
        if info.items is not None:
            static = self._prepared.method.values[index]
            indices = static.items if isinstance(static, ListValue) else ()
            return [
                item.scalar
                if item.tensor is None
                else self._read(runner, int(indices[at]), lazy=True)
                for at, item in enumerate(info.items)
            ]
        if info.tensor is None:
            return info.scalar
        if lazy and info.tensor.nbytes > SENT_AT_ONCE:
            return RemoteTensor(self._reader_of_step(), index, info.tensor)
        return fetch_tensor(runner, index, info.tensor)

    def _reader_of_step(self) -> Callable[[], Runner]:
        """Return the runner as long as the run is unchanged; then raise `UsageError`."""
        generation = self._execution.generation

        def reader() -> Runner:
            if self._execution.generation != generation:
                raise UsageError(
                    "this tensor is from another step: its memory may have been overwritten",
                    hint="ask for the value again",
                )
            return self._execution.runner()

        return reader

    # -- set

    def set(self, values: list[ValueAtStep], new: Any) -> None:
        """Replace values at the current step, all or none of them.

        new: for several values a list, where None leaves a value unchanged, or the only one that is
        not empty. Raises `UsageError` for one that does not fit."""
        for value in values:
            if self._prepared.nodes.is_constant(value.index):
                raise UsageError(f"{value.name} is a weight, which the program does not change")
        with self._execution.asking() as runner:
            infos = [runner.describe(value.index) for value in self._valid(values)]
        nonempty = [at for at, one in enumerate(infos) if one.tensor is None or one.tensor.nbytes]
        if len(values) == 1:
            given = {0: new}
        elif isinstance(new, (list, tuple)) and len(new) == len(values):
            given = {at: new[at] for at in nonempty if new[at] is not None}
        elif len(nonempty) == 1:
            given = {nonempty[0]: new}
        else:
            raise UsageError(f"{values[0].name} has {len(values)} values: give a list of as many")
        fitting = [
            (values[at].index, fit_value(values[at].name, infos[at], one))
            for at, one in given.items()
        ]
        with self._execution.asking() as runner:
            before = [(index, self._read(runner, index)) for index, _ in fitting[:-1]]
        written = 0
        try:
            for index, content in fitting:
                self._execution.write(index, content)
                written += 1
        except UsageError:
            for index, content in before[:written]:
                self._execution.write(index, content)
            raise


def fit_value(name: str, old: ValueInfo, new: Any) -> Any:
    """Convert a value to the shape and type of the value that it replaces.

    For a tensor, any value that numpy can broadcast to its shape, cast to its type; an integer or
    bool tensor accepts only numbers that its type can hold. Raises `UsageError` for everything
    else.
    """
    if old.items is not None:
        raise UsageError(f"{name} is a list: its elements are set one by one")
    if old.tensor is None and (old.scalar is None or isinstance(old.scalar, str)):
        raise UsageError(f"{name} is neither a tensor nor a number: it cannot be set")
    if isinstance(new, (list, tuple)) and any(getattr(one, "ndim", 0) for one in new):
        raise UsageError(
            f"{name} takes one value, and this is a list of {len(new)} outputs",
            hint="name one output: $0, or ref(NAME) for the reference's (print $ has the names)",
        )
    try:
        array = np.asarray(new)
    except ValueError:  # nested lists of different lengths
        array = np.empty(0, dtype=object)
    # The types of ml_dtypes are of numpy's kind V.
    if array.dtype.kind not in "biufV" or array.dtype.names is not None:
        kind = array.dtype if array.dtype.kind != "O" else f"type {type(new).__name__}"
        raise UsageError(f"{name} takes numbers, and the value is of {kind}")

    if old.tensor is not None:
        shape, dtype = old.tensor.shape, old.tensor.dtype
        broadcast = broadcast_replacement(name, array, shape)
        with np.errstate(all="ignore"):
            cast = np.ascontiguousarray(broadcast).astype(dtype).reshape(shape)
        if dtype.kind in "biu" and not np.array_equal(cast, broadcast):
            raise UsageError(
                f"{name} is of {dtype}, which cannot hold all numbers of the value ({array.dtype})",
                hint="round or clip them first",
            )
        return cast

    if array.size != 1:
        raise UsageError(f"{name} is a number, and the value has the shape {list(array.shape)}")
    number = array.reshape(()).item()
    if isinstance(old.scalar, bool) and number in (0, 1):
        return bool(number)
    if isinstance(old.scalar, float):
        return float(number)
    if not isinstance(old.scalar, bool) and np.isfinite(number) and int(number) == number:
        return int(number)
    raise UsageError(f"{name} is of {type(old.scalar).__name__}, which {number!r} is not")


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of a planned buffer."""

    memory_id: int
    first: int
    end: int


# Planned memory, or, as an index, memory of that value alone.
_Location = _Span | int


class MemoryPlan:
    """The memory of a method, and the instructions that write to it.

    The plan assigns the same memory to several values in turn. A value is lost as soon as an
    instruction has written to its bytes; creating a view of the same bytes writes nothing.
    """

    def __init__(self, method: Method, records: Sequence[InstructionRecord]) -> None:
        self._values, self._records = method.values, records
        self._masks: dict[tuple[_Location, int], npt.NDArray[np.bool_]] = {}

    def overwritten(self, value: int, since: int, now: int, ran: Ints) -> int | None:
        """The first instruction after the step `since` and up to the step `now` that wrote over a
        value; None if none did. ran: the instructions of the run, in order."""
        location = self._location(value, since, ran)
        hits = np.flatnonzero(self._writers(location, value)[ran[since:now]])
        return int(ran[since + hits[0]]) if len(hits) else None

    def _location(self, value: int, step: int, ran: Ints) -> _Location:
        """Return the location of a value at a step; a move replaces it by the moved value's."""
        moves = self._moves.get(value)
        if moves:
            moved = np.flatnonzero(np.isin(ran[:step], list(moves)))
            if len(moved):
                at = int(moved[-1])
                return self._location(moves[int(ran[at])], at, ran)
        return self._planned(value)

    def _planned(self, value: int) -> _Location:
        tensor = self._values[value]
        if isinstance(tensor, TensorValue) and tensor.allocation is not None:
            planned = tensor.allocation
            # A tensor of unbounded size has no memory in the plan.
            size = tensor.nbytes or 0
            return _Span(planned.memory_id, planned.offset, planned.offset + size)
        source = self._views.get(value)
        return value if source is None else self._planned(source)

    def _writers(self, location: _Location, value: int) -> npt.NDArray[np.bool_]:
        """bool [instructions]: those that write to a location, or move another value to `value`."""
        key = location, value
        if key not in self._masks:
            mask = np.zeros(len(self._records), dtype=np.bool_)
            if isinstance(location, _Span):
                number, memory, first, end = self._planned_writes
                overlap = (first < location.end) & (end > location.first)
                mask[number[(memory == location.memory_id) & overlap]] = True
            else:
                mask[[number for number, written in self._writes if written == location]] = True
            mask[list(self._moves.get(value, ()))] = True
            self._masks[key] = mask
        return self._masks[key]

    @cached_property
    def _moves(self) -> Mapping[int, Mapping[int, int]]:
        """For each value that others are moved to: the moved value, by instruction."""
        found: dict[int, dict[int, int]] = {}
        for record in self._records:
            if record.kind == "move":
                found.setdefault(record.outputs[0], {})[record.instruction_id] = record.inputs[0]
        return found

    @cached_property
    def _views(self) -> Mapping[int, int]:
        """Values that an instruction makes a view of another, with that other."""
        return {
            record.outputs[0]: record.inputs[0]
            for record in self._records
            if record.operator is not None
            and record.operator.startswith(_VIEW)
            and record.outputs[0] != record.inputs[0]
        }

    @cached_property
    def _writes(self) -> list[tuple[int, _Location]]:
        """Instructions and the locations that they write to."""
        found: list[tuple[int, _Location]] = []
        for record in self._records:
            if record.kind == "free":
                found.append((record.instruction_id, self._planned(record.inputs[0])))
                continue
            if record.kind == "move" or (record.outputs[:1] and record.outputs[0] in self._views):
                continue
            tensors = unfolded(self._values, record.outputs)
            found.extend(
                (record.instruction_id, self._planned(index))
                for index in dict.fromkeys((*tensors, *record.outputs))
            )
        return found

    @cached_property
    def _planned_writes(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Instruction, buffer, first byte and end of each write to planned memory."""
        rows = [
            (number, span.memory_id, span.first, span.end)
            for number, span in self._writes
            if isinstance(span, _Span)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3]
