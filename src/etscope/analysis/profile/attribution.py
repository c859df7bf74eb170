"""What is behind the events of a method, from all that is known: its record and its program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from etscope.analysis.delegates.inner_events import InnerEvents, attributed
from etscope.analysis.profile.blocks import EventKey
from etscope.analysis.profile.correlate import Attribution, MethodSymbols, attribute
from etscope.analysis.program.branches import branch_nodes
from etscope.analysis.program.program import InstructionRecord
from etscope.model.graph import Node


def attribution_of(
    symbols: MethodSymbols,
    instructions: Sequence[InstructionRecord],
    labels: Sequence[str],
    inner: InnerEvents | None = None,
) -> Callable[[EventKey], Attribution]:
    """What tells the attribution of a method's events.

    instructions: of the program, empty without one; labels: of the instructions, by which those of
    branches are found; inner: the operators behind events inside of delegates.
    """
    branches = branch_nodes(labels, symbols)
    delegated = inner or {}

    def attribution(key: EventKey) -> Attribution:
        found = attribute(key, symbols)
        instruction = key.instruction
        if instruction is None:
            return found
        if key.delegate_id is not None:
            operator = delegated.get((instruction, key.delegate_id))
            return found if operator is None else attributed(found, operator, symbols)
        if instruction in branches:
            found = _with_node(found, branches[instruction])
        if 0 <= instruction < len(instructions):
            found = _with_instruction(found, instructions[instruction])
        return found

    return attribution


def _with_node(found: Attribution, node: Node) -> Attribution:
    return replace(found, nodes=(node,), debug_handles=node.debug_handle)


def _with_instruction(found: Attribution, instruction: InstructionRecord) -> Attribution:
    return replace(
        found,
        backend_id=found.backend_id or instruction.backend_id,
        operator=instruction.operator,
        outputs=tuple(map(str, instruction.written)),
        bytes_read=instruction.bytes_read,
        bytes_written=instruction.bytes_written,
        stack=instruction.stack,
    )
