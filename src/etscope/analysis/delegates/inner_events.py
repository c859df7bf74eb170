"""What the events inside a delegate call compute, where the record has no map of them.

This is known for XNNPACK, whose data in the .pte names the debug handles of its operators (see
`etscope.analysis.delegates.xnnpack`); other backends have maps of their own in the record.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from etscope.analysis.delegates.xnnpack import BACKEND, Pairing, computed, pair
from etscope.analysis.profile.blocks import Block
from etscope.analysis.profile.correlate import Attribution, MethodSymbols, handle_list
from etscope.analysis.program.program import InstructionRecord
from etscope.errors import EtscopeWarning, FormatError
from etscope.formats.program.pte import Program
from etscope.formats.program.xnnpack import XnnNode, is_xnnpack, read_xnnpack

# By instruction, and by what the delegate calls the event.
InnerEvents = Mapping[tuple[int, int | str], Pairing]


def inner_events(
    blocks: Iterable[Block],
    program: Program,
    symbols: MethodSymbols,
    instructions: Sequence[InstructionRecord],
) -> InnerEvents:
    """The operators of the events inside the delegate calls of a method, from `blocks`, its runs.

    An event that two runs put at different operators is left out.
    """
    operators = {
        record.instruction_id: operators
        for record in instructions
        if (operators := _operators(program, symbols, record))
    }
    calls = {call for block in blocks for call in _calls(block, operators)}
    found: dict[tuple[int, int | str], set[Pairing | None]] = {}
    for instruction, names in calls:
        for name, pairing in zip(names, pair(names, operators[instruction]), strict=True):
            found.setdefault((instruction, name), set()).add(pairing)
    return {
        key: pairing
        for key, pairings in found.items()
        if len(pairings) == 1 and (pairing := next(iter(pairings))) is not None
    }


def attributed(found: Attribution, pairing: Pairing, symbols: MethodSymbols) -> Attribution:
    """The attribution of an event of that operator."""
    nodes = computed(pairing, symbols.nodes_of(pairing.node.debug_handle), symbols.users_of)
    if pairing.activation:
        handles = list(dict.fromkeys(n.debug_handle for n in nodes if n.debug_handle is not None))
    else:
        handles = handle_list(pairing.node.debug_handle)
    return replace(found, debug_handles=handles or None, nodes=nodes)


def _operators(
    program: Program, symbols: MethodSymbols, record: InstructionRecord
) -> tuple[XnnNode, ...]:
    """The operators of a delegate call, () where they are not known or not of this record."""
    if record.delegate is None or record.backend_id != BACKEND:
        return ()
    delegate = symbols.delegates.get(record.instruction_id)
    if delegate is not None and delegate.handles:
        return ()  # it has a map
    handles = handle_list(symbols.handles.get(record.instruction_id))
    data = program.delegate_blob(symbols.method, record.delegate)
    if not handles or not is_xnnpack(data):
        return ()
    try:
        nodes = read_xnnpack(data)
    except FormatError as error:
        warnings.warn(
            f"what XNNPACK runs for instruction {record.instruction_id} cannot be read: {error}",
            EtscopeWarning,
            stacklevel=2,
        )
        return ()
    return nodes if all(n.debug_handle in (None, *handles) for n in nodes) else ()


def _calls(block: Block, instructions: Mapping[int, object]) -> set[tuple[int, tuple[str, ...]]]:
    """The instructions, each with the names of the events that a call of it logged."""
    calls: dict[tuple[int, int], list[str]] = {}
    for index in block.profiled:
        key = block.keys[index]
        number, name = key.instruction, key.delegate_id
        if number is not None and number in instructions and isinstance(name, str):
            calls.setdefault((number, key.occurrence), []).append(name)
    return {(instruction, tuple(names)) for (instruction, _), names in calls.items()}
