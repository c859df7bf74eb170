"""Do a dump, a record and a program belong together? And which method did a run execute?

A dump names what each instruction ran ("native_call_add.out", "DELEGATE_CALL"). A program, and a
record that etscope wrote, list their instructions: the two must agree at every instruction that
ran. A record of ExecuTorch has no such list; its maps and graphs are held against the dump.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.blocks import Block
from etscope.analysis.correlate import MethodSymbols
from etscope.analysis.profile import KERNEL_PREFIX
from etscope.formats import pte_schema as pte

# What the runtime logs around an instruction of each kind, but kernels.
_CALL_EVENTS = {"delegate": "DELEGATE_CALL", "move": "MOVE_CALL", "jump_false": "JF_CALL",
                "free": "FREE_CALL"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Observed:
    """What a block's runs logged for each instruction: instruction id -> names of its events."""

    events: Mapping[int, frozenset[str]]
    has_jumps: bool

    @classmethod
    def of(cls, block: Block) -> Observed:
        events: dict[int, set[str]] = {}
        for key in block.keys:
            if key.instruction_id is not None and not key.is_framework and key.profile is not None:
                name = "" if key.delegate_id is not None else key.name
                events.setdefault(key.instruction_id, set()).add(name)
        return cls(
            events={i: frozenset(names) for i, names in sorted(events.items())},
            has_jumps=any("JF_CALL" in names for names in events.values()),
        )

    def kernel(self, instruction: int) -> str | None:
        """The kernel that ran for the instruction ("add.out"), None when none was logged."""
        for name in self.events[instruction]:
            if name.startswith(KERNEL_PREFIX):
                return name[len(KERNEL_PREFIX) :]
        return None


def instruction_labels(method: pte.Method) -> tuple[str, ...]:
    """The instructions of a program's method as labels: "aten::add.out", "delegate:<backend>",
    "move", "jump_false" or "free"."""
    return tuple(_label(method, instruction) for instruction in method.instructions)


def _label(method: pte.Method, instruction: pte.Instruction) -> str:
    if isinstance(instruction, pte.KernelCall):
        return method.operators[instruction.operator].full_name
    if isinstance(instruction, pte.DelegateCall):
        return f"delegate:{method.delegates[instruction.delegate].backend_id}"
    if isinstance(instruction, pte.MoveCall):
        return "move"
    return "jump_false" if isinstance(instruction, pte.JumpFalseCall) else "free"


def differs_from_labels(observed: Observed, labels: Sequence[str]) -> str | None:
    """The first instruction of the dump that is another one in the program, as a sentence."""
    for instruction, names in observed.events.items():
        if instruction >= len(labels):
            return f"instruction {instruction} ran, but the method has only {len(labels)}"
        label = labels[instruction]
        expected = _CALL_EVENTS.get(label.partition(":")[0])
        ran = _ran(names)
        if expected is not None and names.isdisjoint({expected, ""}):
            return f"instruction {instruction} ran {ran}, but is a {label} in the method"
        if expected is None and not names.isdisjoint(_CALL_EVENTS.values()):
            return f"instruction {instruction} ran {ran}, but is {label} in the method"
        kernel = observed.kernel(instruction)
        # A kernel is logged by its function's name, which for other namespaces is not the op's.
        if kernel is not None and label.startswith("aten::") and label[6:] != kernel:
            return f"instruction {instruction} ran {ran}, but is {label} in the method"
    if not observed.has_jumps and not any(label == "jump_false" for label in labels):
        missing = [i for i in range(len(labels)) if i not in observed.events]
        if missing and observed.events:
            return f"instruction {missing[0]} ({labels[missing[0]]}) never ran"
    return None


def differs_from_symbols(observed: Observed, symbols: MethodSymbols) -> str | None:
    """The first instruction that contradicts a record's maps and graph, as a sentence.

    A kernel contradicts its nodes only when most kernels do: passes rename operators.
    """
    strangers: list[str] = []
    known = 0
    for instruction, names in observed.events.items():
        ran = _ran(names)
        delegated = not names.isdisjoint({"DELEGATE_CALL", ""})
        delegate = symbols.delegates.get(instruction)
        is_list = isinstance(symbols.handles.get(instruction), Sequence)
        if delegated and symbols.delegates and delegate is None:
            return f"instruction {instruction} ran a delegate, which the record does not have there"
        if not delegated and (delegate is not None or is_list):
            backend = "a" if delegate is None else f"a {delegate.backend_id}"
            return f"instruction {instruction} ran {ran}, but is {backend} delegate in the record"
        kernel = observed.kernel(instruction)
        handles = symbols.handles.get(instruction)
        if kernel is None or handles is None:
            continue
        nodes = symbols.nodes_of((handles,) if isinstance(handles, int) else handles)
        ops = {_stem(node.op) for node in nodes}
        if not nodes:
            continue
        known += 1
        if _stem(kernel) not in ops:
            shown = ", ".join(dict.fromkeys(node.op for node in nodes))
            strangers.append(f"instruction {instruction} ran {kernel}, but is {shown} in the record")
    if strangers and 2 * len(strangers) > known:
        return strangers[0]
    recorded = sorted({*symbols.handles, *symbols.delegates})
    missing = [i for i in recorded if i not in observed.events]
    if missing and observed.events and not observed.has_jumps:
        return f"instruction {missing[0]} is in the record, but never ran"
    return None


def _ran(names: frozenset[str]) -> str:
    kernels = sorted(name[len(KERNEL_PREFIX) :] for name in names if name.startswith(KERNEL_PREFIX))
    return ", ".join(kernels) or ", ".join(sorted(name for name in names if name)) or "a delegate"


def _stem(op: str) -> str:
    """An operator's name without namespace, overload and the marks of its variants."""
    parts = op.rpartition("::")[2].split(".")
    name = parts[1] if len(parts) > 2 else parts[0]
    return name.strip("_").removesuffix("_copy")
