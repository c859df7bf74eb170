"""Events of a dump grouped by instruction, and their signatures: names that upstream has in
`executorch.devtools.inspector._inspector`.

They are for scripts that walk the objects of `etscope.etdump`; etscope itself groups columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from etscope.etdump.schema_flatcc import DebugEvent, Event, ProfileEvent, Value

_ABSENT = -1


@dataclass(frozen=True, order=True)
class InstructionEventSignature:
    """An instruction of a chain, or an event that a delegate logged in it; ids as in the dump."""

    instruction_id: int
    chain_index: int
    delegate_id: int | None = None
    delegate_id_str: str | None = None


@dataclass
class InstructionEvent:
    """All events of one signature in a run; None where there are none of a kind."""

    signature: InstructionEventSignature
    profile_events: list[ProfileEvent] | None = None
    debug_events: list[DebugEvent] | None = None

    @staticmethod
    def gen_from_events(run_events: Sequence[Event]) -> list[InstructionEvent]:
        """Group the events of a run, in order of first occurrence.

        Values that are outputs of the program are left out, but not their signatures. Allocations
        belong to no instruction and are left out altogether.
        """
        found: dict[InstructionEventSignature, InstructionEvent] = {}
        for event in run_events:
            timed, value = event.profile_event, event.debug_event
            logged = value if timed is None else timed
            if logged is None:
                continue
            signature = InstructionEventSignature(
                logged.instruction_id,
                logged.chain_index,
                logged.delegate_debug_id_int,
                logged.delegate_debug_id_str,
            )
            group = found.setdefault(signature, InstructionEvent(signature))
            if timed is not None:
                group.profile_events = group.profile_events or []
                group.profile_events.append(timed)
            elif value is not None and not is_debug_output(value.debug_entry):
                group.debug_events = group.debug_events or []
                group.debug_events.append(value)
        return list(found.values())


@dataclass(frozen=True, order=True)
class ProfileEventSignature:
    """Name and ids that equal profile events share; an absent id is None."""

    name: str
    instruction_id: int | None
    delegate_id: int | None = None
    delegate_id_str: str | None = None


@dataclass(frozen=True, order=True)
class DebugEventSignature:
    """Name and ids that equal debug events share; an absent id is None."""

    name: str = ""
    instruction_id: int | None = _ABSENT
    delegate_id: int | None = None
    delegate_id_str: str | None = None


@dataclass(frozen=True, order=True)
class EventSignature:
    """A profile event, a debug event, or both, of one instruction."""

    instruction_id: int
    profile_event_signature: ProfileEventSignature | None = None
    debug_event_signature: DebugEventSignature | None = None

    @staticmethod
    def gen_from_instruction_event(
        instruction_event: InstructionEvent,
    ) -> list[tuple[EventSignature, InstructionEvent]]:
        """Split an instruction's events: one signature for each profile event, with the part of
        `instruction_event` that has only this one; a single signature if there is none."""
        instruction = instruction_event.signature.instruction_id
        values = instruction_event.debug_events
        debug = DebugEventSignature(*_key(values[0])) if values else None
        if instruction_event.profile_events is None:
            return [(EventSignature(instruction, None, debug), instruction_event)]
        return [
            (
                EventSignature(instruction, ProfileEventSignature(*_key(event)), debug),
                replace(instruction_event, profile_events=[event]),
            )
            for event in instruction_event.profile_events
        ]


@dataclass(frozen=True, order=True)
class RunSignature:
    """Name, events and test case that the runs of one block share."""

    name: str
    events: tuple[EventSignature, ...] | None = None
    bundled_input_index: int | None = None


def is_debug_output(value: Value) -> bool:
    """Return True for an output of the program."""
    return value.output is not None and value.output.bool_val


def _key(event: ProfileEvent | DebugEvent) -> tuple[str, int | None, int | None, str | None]:
    instruction, delegate = event.instruction_id, event.delegate_debug_id_int
    return (
        event.name or "",
        None if instruction == _ABSENT else instruction,
        None if delegate == _ABSENT else delegate,
        event.delegate_debug_id_str or None,
    )
