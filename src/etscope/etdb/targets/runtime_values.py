"""The values of a run on the runtime: what is there, what is gone, and what a person sets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.matching.matching import Pair
from etscope.analysis.program.program import InstructionRecord, unfolded
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.protocol.messages import Statistics, TensorInfo, ValueInfo
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.targets.remote_tensor import SENT_AT_ONCE, RemoteTensor, fetched
from etscope.etdb.targets.runtime_execution import Execution, Ints
from etscope.etdb.targets.runtime_method import RuntimeMethod
from etscope.formats.program.input_validation import broadcast_replacement
from etscope.formats.program.pte_schema import ListValue, Method, TensorValue

__all__ = ["Memory", "RuntimeValues", "ValueAtStep", "fitted"]


# Whether a value that a person sets can take the place of one of the program's.


def fitted(name: str, old: ValueInfo, value: Any) -> Any:
    """The value in the shape and type of the one that it takes the place of.

    A tensor takes whatever numpy broadcasts to its shape, cast to its type; one of integers or
    bools only what it can hold. Raises `UsageError` for all else.
    """
    if old.tensor is not None:
        return _tensor(name, old.tensor, value)
    if old.items is not None:
        raise UsageError(f"{name} is a list: its elements are set one by one")
    if old.scalar is None or isinstance(old.scalar, str):
        raise UsageError(f"{name} is no tensor and no number: it cannot be set")
    return _number(name, old.scalar, value)


def _tensor(name: str, facts: TensorInfo, value: Any) -> npt.NDArray[Any]:
    array = _numbers(name, value)
    fitting = broadcast_replacement(name, array, facts.shape)
    with np.errstate(all="ignore"):
        cast = np.ascontiguousarray(fitting).astype(facts.dtype).reshape(facts.shape)
    if facts.dtype.kind in "biu" and not np.array_equal(cast, fitting):
        raise UsageError(
            f"{name} is of {facts.dtype}, which cannot hold all numbers of the value "
            f"({array.dtype})",
            hint="round or clip them first",
        )
    return cast


def _number(name: str, old: bool | int | float, value: Any) -> bool | int | float:
    array = _numbers(name, value)
    if array.size != 1:
        raise UsageError(f"{name} is a number, and the value has the shape {list(array.shape)}")
    number = array.reshape(()).item()
    if isinstance(old, bool) and number in (0, 1):
        return bool(number)
    if isinstance(old, float):
        return float(number)
    if not isinstance(old, bool) and np.isfinite(number) and int(number) == number:
        return int(number)
    raise UsageError(f"{name} is of {type(old).__name__}, which {number!r} is not")


def _numbers(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:  # lists that are no tensor
        array = np.empty(0, dtype=object)
    # The types of ml_dtypes are of numpy's kind V.
    if array.dtype.kind not in "biufV" or array.dtype.names is not None:
        raise UsageError(f"{name} takes numbers, and the value is {_shown(value, array)}")
    return array


def _shown(value: Any, array: npt.NDArray[Any]) -> str:
    return f"of {array.dtype}" if array.dtype.kind != "O" else f"of type {type(value).__name__}"


# Where a value is in the runtime's memory, and what has been written over it since.
#
# The program's plan gives a piece of memory to several values, one after the other. A value is gone
# as soon as an instruction has written to its bytes; a view of the same bytes writes nothing.


_VIEW = "executorch_prim::et_view"


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of a planned buffer."""

    memory_id: int
    first: int
    end: int


# Where a value is: in planned memory, or in what belongs to the value of that index alone.
_Where = _Span | int


class Memory:
    """The memory of a method."""

    def __init__(self, method: Method, records: Sequence[InstructionRecord]) -> None:
        self._values, self._records = method.values, records
        self._masks: dict[tuple[_Where, int], npt.NDArray[np.bool_]] = {}

    def overwritten(self, value: int, since: int, now: int, ran: Ints) -> int | None:
        """The first instruction after the step `since` and up to the step `now` that wrote over
        what the value was; None while it is there. ran: the instructions of the run, in order."""
        where = self._where(value, since, ran)
        hits = np.flatnonzero(self._writers(where, value)[ran[since:now]])
        return int(ran[since + hits[0]]) if len(hits) else None

    def _where(self, value: int, step: int, ran: Ints) -> _Where:
        """Where a value is after so many instructions."""
        moves = self._moves.get(value)
        if moves:
            took = np.flatnonzero(np.isin(ran[:step], list(moves)))
            if len(took):
                at = int(took[-1])
                return self._where(moves[int(ran[at])], at, ran)
        return self._planned(value)

    def _planned(self, value: int) -> _Where:
        tensor = self._values[value]
        if isinstance(tensor, TensorValue) and tensor.allocation is not None:
            place = tensor.allocation
            # A tensor that grows as it likes has no memory in the plan.
            size = tensor.nbytes or 0
            return _Span(place.memory_id, place.offset, place.offset + size)
        source = self._views.get(value)
        return value if source is None else self._planned(source)

    def _writers(self, where: _Where, value: int) -> npt.NDArray[np.bool_]:
        """bool [instructions]: those that write to a place, or let the value be another."""
        key = where, value
        if key not in self._masks:
            mask = np.zeros(len(self._records), dtype=np.bool_)
            if isinstance(where, _Span):
                number, memory, first, end = self._written
                over = (memory == where.memory_id) & (first < where.end) & (end > where.first)
                mask[number[over]] = True
            else:
                mask[[number for number, index in self._own_writes if index == where]] = True
            mask[list(self._moves.get(value, ()))] = True
            self._masks[key] = mask
        return self._masks[key]

    @cached_property
    def _moves(self) -> Mapping[int, Mapping[int, int]]:
        """Of each value that others are moved to: by instruction, the value that is."""
        found: dict[int, dict[int, int]] = {}
        for record in self._records:
            if record.kind == "move":
                found.setdefault(record.outputs[0], {})[record.instruction_id] = record.inputs[0]
        return found

    @cached_property
    def _views(self) -> Mapping[int, int]:
        """The values that an instruction makes a view of another, with that."""
        return {
            record.outputs[0]: record.inputs[0]
            for record in self._records
            if record.operator is not None
            and record.operator.startswith(_VIEW)
            and record.outputs[0] != record.inputs[0]
        }

    @cached_property
    def _writes(self) -> list[tuple[int, _Where]]:
        """The places that instructions write to."""
        found: list[tuple[int, _Where]] = []
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
    def _written(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Instruction, buffer, first byte and end of each write to planned memory."""
        rows = [
            (number, where.memory_id, where.first, where.end)
            for number, where in self._writes
            if isinstance(where, _Span)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3]

    @cached_property
    def _own_writes(self) -> list[tuple[int, int]]:
        return [(number, where) for number, where in self._writes if isinstance(where, int)]


@dataclass(frozen=True, slots=True)
class ValueAtStep:
    """A value of the program, which has been what it is since the step `since`. what: for people.
    element: of a node with several values."""

    index: int
    since: int
    what: str
    element: int | None = None


class RuntimeValues:
    """The values of one run."""

    def __init__(self, execution: Execution, prepared: RuntimeMethod) -> None:
        self._execution, self._prepared = execution, prepared
        self._memory = Memory(prepared.method, prepared.records)
        self._generation = -1
        self._held: dict[int, Any] = {}

    # -- which value

    def of_stop(self, position: int) -> list[ValueAtStep]:
        """What a stop gave. Raises `MissingDataError` for one that has not run."""
        line = self._execution.line
        stop = line[position]
        number = stop.instruction or 0
        if position >= line.known or line.step_of(position) > self._execution.step:
            raise MissingDataError(f"{stop.name} has not run yet", hint=_until(number))
        since = line.step_of(position)
        return [
            ValueAtStep(index, since, stop.path or f"a value of {stop.name}")
            for index in self._prepared.nodes.outputs_of(number)
        ]

    def of_node(self, node: str, until: int) -> list[ValueAtStep]:
        """The values that a node has at a step: of one value, or of each element."""
        nodes = self._prepared.nodes
        pairs = nodes.matching.by_node.get(node, ())
        if not pairs:
            index = nodes.placeholders.get(node)
            if index is None:
                raise MissingDataError(
                    f"no value of the program is {node}", hint=nodes.why_unpaired(node)
                )
            return [ValueAtStep(index, 0, node)]
        found: dict[int | None, ValueAtStep] = {}
        for pair in pairs:
            found.setdefault(pair.element, self._of_pair(pair, until))
        if None in found:
            return [found[None]]
        return [found[element] for element in sorted(e for e in found if e is not None)]

    def in_pass(self, node: str, loop_pass: int) -> int:
        """The step at which a node has its value of a pass of its loop."""
        line, last = self._execution.line, 0
        for pair in self._prepared.nodes.matching.by_node.get(node, ()):
            passes = line.passes_of(pair.instruction, self._execution.step)
            if loop_pass >= len(passes):
                raise MissingDataError(
                    f"{node} has no value in pass {loop_pass} yet", hint=_until(pair.instruction)
                )
            last = max(last, int(passes[loop_pass]))
        return last

    def of_index(self, index: int) -> ValueAtStep:
        """The value of that index, as it is now."""
        values = self._prepared.method.values
        if not 0 <= index < len(values):
            raise UsageError(
                f"the method has no value {index}", hint=f"they are 0 to {len(values) - 1}"
            )
        line, step, nodes = self._execution.line, self._execution.step, self._prepared.nodes
        writers = nodes.writers_of(index)
        steps = [int(passes[-1]) for n in writers if len(passes := line.passes_of(n, step))]
        is_there = index in self._prepared.method.inputs or nodes.has_content(index)
        if not steps and not is_there:
            if not writers:
                raise MissingDataError(f"no instruction is known to compute value {index}")
            raise MissingDataError(
                f"value {index} has not been computed yet", hint=_until(writers[0])
            )
        return ValueAtStep(index, max(steps, default=0), f"value {index}")

    # -- what is there

    def fetch(self, held: Iterable[ValueAtStep]) -> list[Any]:
        """The values as arrays, `RemoteTensor`s, numbers, None or lists. Raises `MissingDataError`
        for what is gone."""
        return [self._fetched(one) for one in self._there(held)]

    def fetch_left(self, held: Sequence[ValueAtStep]) -> list[Any]:
        """As `fetch`, but None for what is gone as long as something else than empty tensors is
        there."""
        gone = [self._overwritten_by(one) is not None for one in held]
        values = [self._prepared.method.values[one.index] for one in held]
        empty = [isinstance(value, TensorValue) and value.nbytes == 0 for value in values]
        if all(map(operator.or_, gone, empty)):
            return self.fetch(held)
        return [
            None if is_gone else self._fetched(one) for one, is_gone in zip(held, gone, strict=True)
        ]

    def describe(self, held: Iterable[ValueAtStep]) -> list[ValueInfo]:
        """What kind of values they are."""
        with self._execution.asking() as runner:
            return [runner.describe(one.index) for one in self._there(held)]

    def statistics(self, held: Iterable[ValueAtStep]) -> list[Statistics | None]:
        """The numbers of tensors; None of what is none."""
        found: list[Statistics | None] = []
        with self._execution.asking() as runner:
            for one in self._there(held):
                is_tensor = runner.describe(one.index).tensor is not None
                found.append(runner.statistics(one.index) if is_tensor else None)
        return found

    def set(self, held: list[ValueAtStep], value: Any) -> None:
        """Put other values in the place of these, where the run stands: of several a list, in which
        None leaves a value as it is, or the one that is not empty. All or none are set. Raises
        `UsageError` for what does not fit."""
        for one in held:
            if self._prepared.nodes.is_constant(one.index):
                raise UsageError(f"{one.what} is a weight: the program keeps it as it is")
        described = self.describe(held)
        new = _each(held, described, value)
        with self._execution.asking() as runner:
            before = [self._content(runner, one.index) for one, _ in new[:-1]]
        done: list[ValueAtStep] = []
        try:
            for one, content in new:
                self._execution.write(one.index, content)
                done.append(one)
        except UsageError:
            for one, content in zip(done, before, strict=False):
                self._execution.write(one.index, content)
            raise

    # -- how

    def _of_pair(self, pair: Pair, until: int) -> ValueAtStep:
        passes = self._execution.line.passes_of(pair.instruction, until)
        if not len(passes):
            number = pair.instruction
            raise MissingDataError(
                f"{pair.node} has no value yet",
                hint=f"it is computed by instruction {number}: {_until(number)}",
            )
        index = self._prepared.nodes.index_of(pair)
        return ValueAtStep(index, int(passes[-1]), pair.node, pair.element)

    def _there(self, held: Iterable[ValueAtStep]) -> Iterable[ValueAtStep]:
        for one in held:
            by = self._overwritten_by(one)
            if by is not None:
                raise MissingDataError(
                    f"{one.what} is gone: instruction {by} ({self._name(by)}) has overwritten it",
                    hint=self._how_back(one),
                )
            yield one

    def _overwritten_by(self, held: ValueAtStep) -> int | None:
        """The instruction that has overwritten a value; None while it is there."""
        line, step = self._execution.line, self._execution.step
        return self._memory.overwritten(held.index, held.since, step, line.ran)

    def _name(self, instruction: int) -> str:
        stop = self._execution.line.of_instruction.get(instruction)
        if stop is None:
            return self._prepared.records[instruction].label
        return stop.path or stop.name

    def _how_back(self, held: ValueAtStep) -> str:
        if not held.since:
            return "it is there before the first operator: start"
        number = int(self._execution.line.ran[held.since - 1])
        return f"go back to where it was computed: tbreak id:{number}, reverse-continue"

    def _fetched(self, held: ValueAtStep) -> Any:
        weight = self._prepared.weight(held.index)
        if weight is not None:
            return weight
        if self._generation != self._execution.generation:
            self._held.clear()
        if held.index not in self._held:
            with self._execution.asking() as runner:
                # To connect again is to come to another generation.
                self._generation = self._execution.generation
                self._held[held.index] = self._content(runner, held.index, lazy=True)
        return self._held[held.index]

    def _content(self, runner: Runner, index: int, lazy: bool = False) -> Any:
        described = runner.describe(index)
        if described.items is not None:
            return self._list(runner, index, described.items)
        if described.tensor is None:
            return described.scalar
        if lazy and described.tensor.nbytes > SENT_AT_ONCE:
            return RemoteTensor(self._reader(), index, described.tensor)
        return fetched(runner, index, described.tensor)

    def _list(self, runner: Runner, index: int, items: list[ValueInfo]) -> list[Any]:
        static = self._prepared.method.values[index]
        indices = static.items if isinstance(static, ListValue) else ()
        return [
            item.scalar
            if item.tensor is None
            else self._content(runner, int(indices[at]), lazy=True)
            for at, item in enumerate(items)
        ]

    def _reader(self) -> Callable[[], Runner]:
        made = self._execution.generation

        def reader() -> Runner:
            if self._execution.generation != made:
                raise UsageError(
                    "this tensor was of another step: its memory may have been overwritten",
                    hint="ask for the value again",
                )
            return self._execution.runner()

        return reader


def _each(
    held: list[ValueAtStep], described: list[ValueInfo], value: Any
) -> list[tuple[ValueAtStep, Any]]:
    """The values to set, with what each is set to."""
    if len(held) == 1:
        return [(held[0], fitted(held[0].what, described[0], value))]
    full = [at for at, one in enumerate(described) if one.tensor is None or one.tensor.nbytes]
    if isinstance(value, (list, tuple)) and len(value) == len(held):
        given = {at: value[at] for at in full if value[at] is not None}
    elif len(full) == 1:
        given = {full[0]: value}
    else:
        raise UsageError(f"{held[0].what} has {len(held)} values: give a list of as many")
    return [(held[at], fitted(held[at].what, described[at], new)) for at, new in given.items()]


def _until(instruction: int) -> str:
    return f"until id:{instruction}"
