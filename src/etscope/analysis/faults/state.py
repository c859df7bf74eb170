"""State and weights with another content than the model's, and state that methods do not share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.state import KV_CACHE, StateTensor, program_state
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.errors import MissingDataError
from etscope.formats.bytes.files import BytesLike
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.scalar_type import as_numpy
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.units import listed

if TYPE_CHECKING:  # `etscope info` reads state alone, and is quicker without the rest
    from etscope.analysis.memory.stored import StoredTensor

STATE_NOTE = "unknown-state"  # the kind of `state_notes`


@dataclass(frozen=True, slots=True)
class UndefinedState:
    """A buffer with a start value in the model and none in the program.

    value: the number that all its elements have; None if they differ. read_by: the instructions
    that read it.
    """

    state: StateTensor
    value: float | None
    read_by: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnsharedState:
    """A method's own copy of a buffer that other methods change in theirs.

    read_by: the instructions of the method that read it.
    """

    method: str
    name: str
    read_by: tuple[int, ...]
    written_by: tuple[str, ...]


def undefined_state(export: Export) -> Iterator[UndefinedState]:
    """Yield the buffers with a start value that the program lost. Needs a record with weights.

    A program stores no start value of mutable buffers, unless `InitializedMutableBufferPass` marked
    them. Buffers of zeros and KV caches are not reported: what they hold is masked until it is
    written.
    """
    if export.record is None:
        return
    for method, state in program_state(export).methods.items():
        for one in state:
            if one.name is None or one.tensor.has_data or one.kind == KV_CACHE:
                continue
            start = _start_value(export.record, method, one.name)
            if start is not None and start.any():
                numbers = start.reshape(-1)
                is_constant = bool((numbers == numbers[0]).all())
                value = float(numbers[0]) if is_constant else None
                yield UndefinedState(one, value, _read_by(export.needed_program, one))


def _start_value(record: RecordView, method: str, name: str) -> npt.NDArray[Any] | None:
    """Return the content of a buffer in the edge program; None of a record without weights."""
    try:
        tensors = record.tensors(f"{EDGE}/{method}")
    except MissingDataError:
        return None
    return as_numpy(tensors[name]) if name in tensors else None


def unshared_state(export: Export) -> Iterator[UnsharedState]:
    """Yield the copies of buffers that another method changes in its own copy.

    In a method that changes no copy, the buffer is a constant. Names come from the program or the
    record. `MemoryPlanningPass(share_mutable_buffers=True)` gives all methods the same bytes.
    """
    state = program_state(export)
    shared = {method: group for group in state.groups for method in group}
    copies: dict[tuple[str, str], list[StateTensor]] = defaultdict(list)
    for tensors in state.methods.values():
        for one in tensors:
            if one.name is not None:
                copies[one.name, str(one.tensor)].append(one)
    program = export.needed_program
    constants = _constants(export) if copies and len(program.methods) > 1 else {}
    for (name, _), held in copies.items():
        readers = dict(constants.get(name, {}))
        if len({shared.get(one.method, (one.method,)) for one in held}) > 1:
            readers |= {one.method: _read_by(program, one) for one in held}
        writers = [one.method for one in held if _instructions_at(program, one, _written)]
        for method, read_by in readers.items():
            if others := tuple(writer for writer in writers if writer != method):
                yield UnsharedState(method, name, read_by, others)


def state_notes(export: Export) -> Iterator[Finding]:
    """Yield what a program alone shows of its state: start values that it does not store, and
    writes that no method reads. Whether they are faults depends on the model: with a record there
    are no notes, as `undefined_state` and `unshared_state` decide.
    """
    if export.record is not None or export.program is None:
        return
    program, state = export.program, program_state(export)

    def note(method: str | None, sentence: str, remedy: str) -> Finding:
        reason = Explanation(Sureness.POSSIBLE, (), remedies=(Remedy(remedy),))
        return Finding(STATE_NOTE, Severity.UNKNOWN, sentence, method, explanation=reason)

    for method, tensors in state.methods.items():
        group = next(group for group in state.groups if method in group)
        alike = [one for name in group for one in state.methods[name]]
        places = {one.place for one in alike if _read_by(program, one)}
        own = [one for one in tensors if one.kind != KV_CACHE]
        started = [one for one in own if not one.tensor.has_data and _read_by(program, one)]
        if started:
            yield note(
                method,
                f"The program stores no start value for the state of {method} ({_listed(started)}):"
                " start values of the model other than zeros are lost.",
                "Open the program with its ETRecord (`-r`), which has the start values.",
            )
        unread = [one for one in own if one.place not in places]
        if unread and len(program.methods) > 1:
            yield note(
                None,  # said of a run of any method: the one that should read it is unknown
                f"No method reads what {method} writes to its state ({_listed(unread)}).",
                "To share it with other methods, export with "
                "`MemoryPlanningPass(share_mutable_buffers=True)`.",
            )


def _listed(state: Sequence[StateTensor]) -> str:
    return listed([one.name or f"value {one.value}, {one.tensor}" for one in state], 3)


def _constants(export: Export) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """Return the instructions that read each constant, by name and method. Needs a record."""
    from etscope.analysis.memory.stored import STATE, parameter_name, stored_tensors

    found: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    if export.record is not None:
        for one in stored_tensors(export.needed_program, export.edge_nodes):
            name = parameter_name(one, export.edge_nodes(one.method).symbols.graph)
            if name is not None and one.kind != STATE and one.instruction is not None:
                found[name][one.method] = (one.instruction,)
    return found


def _written(record: InstructionRecord) -> tuple[int, ...]:
    """The values that an instruction changes. Operators of caches change inputs."""
    return (*record.outputs, *(record.inputs if "update_cache" in record.label else ()))


def _read_by(program: Program, state: StateTensor) -> tuple[int, ...]:
    """The instructions that read a buffer."""
    return _instructions_at(program, state, lambda record: record.inputs)


def _instructions_at(
    program: Program, state: StateTensor, of: Callable[[InstructionRecord], Iterable[int]]
) -> tuple[int, ...]:
    """Return the instructions that use a buffer. of: which values to check: the ones that an
    instruction reads, or the ones that it changes.
    """
    values = program.method(state.method).values
    return tuple(
        record.instruction_id
        for record in instructions(program, state.method).records
        if any(
            getattr(values[index], "allocation", None) == state.place
            for index in unfolded(values, of(record))
        )
    )


# -- weights that differ from the record's


@dataclass(frozen=True, slots=True)
class OtherWeight:
    """A weight with other content than in the record's program. name: its name in the model, None
    if unknown."""

    tensor: StoredTensor
    name: str | None


def other_weights(export: Export) -> tuple[OtherWeight, ...]:
    """Compare the weights of a program with its record's program, byte by byte.

    Returns nothing if only the record has a program. Weights of .ptd files are not compared, nor
    programs of different exports, which have other lists of weights.
    """
    from etscope.analysis.memory.stored import parameter_name, stored_tensors

    given, record = export.program, export.record
    view = None if record is None or given is None else record.program_view()
    if given is None or view is None:
        return ()
    if _equal(given.source.buffer, view):
        return ()
    recorded = read_pte(view)
    stored = stored_tensors(given, export.edge_nodes)
    expected = stored_tensors(recorded)
    if [(one.method, one.label) for one in stored] != [(one.method, one.label) for one in expected]:
        return ()
    return tuple(
        OtherWeight(one, parameter_name(one, export.edge_nodes(one.method).symbols.graph))
        for one, other in zip(stored, expected, strict=True)
        if not _equal(given.blob(one.span), recorded.blob(other.span))
    )


def _equal(one: BytesLike, other: BytesLike) -> bool:
    return np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))
