"""Do a dump, a record and a program belong together? And which method did a run execute?

A dump names what each instruction ran ("native_call_add.out", "DELEGATE_CALL"). A program, and a
record that etscope wrote, list their instructions: the two must agree at every instruction that
ran. ExecuTorch's records have no such list; the check compares their maps and graphs with the dump.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etscope.analysis.program.correlate import MethodSymbols, graphs_after_passes, method_symbols
from etscope.analysis.program.program import InstructionRecord
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program import pte_schema as pte
from etscope.model.event_table import KERNEL_PREFIX, Block
from etscope.model.graph import stem

# The events that the runtime logs for each kind of instruction other than kernels.
_CALL_EVENTS = {"delegate": "DELEGATE_CALL", "move": "MOVE_CALL", "jump_false": "JF_CALL",
                "free": "FREE_CALL"}  # fmt: skip
_KERNEL_CALL = "OPERATOR_CALL"

# The share of kernels that may be unknown to a record. Measured: 0 on dumps with their record,
# except for kernels that a backend's passes rename; 0 or above a half on foreign dumps.
_TOLERATED = 0.25


@dataclass(frozen=True, slots=True)
class Observed:
    """The events that a block's runs logged: instruction id -> names of its events.

    An event inside a delegate has the name ""; `delegated` has the identifiers. ended: False if the
    runs seem to have stopped before the end of the method: they logged outputs of instructions, but
    not of the program. Operators built into the runtime log neither names nor outputs, so more
    instructions may have followed them.
    """

    events: Mapping[int, frozenset[str]]
    delegated: Mapping[int, frozenset[int | str]]
    has_jumps: bool
    ended: bool = True

    @classmethod
    def of(cls, block: Block) -> Observed:
        events: dict[int, set[str]] = {}
        delegated: dict[int, set[int | str]] = {}
        for key in block.keys:
            if key.instruction is not None and key.profile is not None:
                name = "" if key.delegate_id is not None else key.name
                events.setdefault(key.instruction, set()).add(name)
                if key.delegate_id is not None:
                    delegated.setdefault(key.instruction, set()).add(key.delegate_id)
        return cls(
            events={i: frozenset(names) for i, names in sorted(events.items())},
            delegated={i: frozenset(ids) for i, ids in delegated.items()},
            has_jumps=any("JF_CALL" in names for names in events.values()),
            ended=bool(block.outputs)
            or not (
                any(key.debug and key.instruction is not None for key in block.keys)
                or all(names == {_KERNEL_CALL} for names in events.values())
            ),
        )

    @classmethod
    def foreseen(cls, records: Sequence[InstructionRecord]) -> Observed:
        """Return the events of a run of a program's instructions through all branches."""
        events = {r.instruction_id: frozenset({r.event, r.call}) for r in records}
        return cls(events, {}, any(record.kind == "jump" for record in records))

    def missing(self, instructions: Iterable[int]) -> list[int]:
        """The instructions that did not run although the runs got past them."""
        last = max(self.events, default=-1)
        return [i for i in instructions if i not in self.events and (self.ended or i < last)]

    def kernel(self, instruction: int) -> str | None:
        """Return the logged kernel of the instruction ("add.out"), None without one."""
        for name in self.events[instruction]:
            if name.startswith(KERNEL_PREFIX):
                return name[len(KERNEL_PREFIX) :]
        return None

    def joined(self, other: Observed) -> Observed | None:
        """Return the union of both logs; None if they differ at an instruction, as in two
        methods."""
        events = dict(self.events)
        for instruction, names in other.events.items():
            known = events.get(instruction, names)
            if not (known - {""} <= names or names - {""} <= known):
                return None
            events[instruction] = known | names
        return replace(self, events=events)


def instruction_labels(method: pte.Method) -> tuple[str, ...]:
    """The instructions of a program's method as labels: "aten::add.out", "delegate:<backend>",
    "move", "jump_false" or "free"."""
    labels = []
    for instruction in method.instructions:
        match instruction:
            case pte.KernelCall(operator):
                labels.append(method.operators[operator].full_name)
            case pte.DelegateCall(delegate):
                labels.append(f"delegate:{method.delegates[delegate].backend_id}")
            case pte.MoveCall():
                labels.append("move")
            case pte.JumpFalseCall():
                labels.append("jump_false")
            case _:
                labels.append("free")
    return tuple(labels)


def differs_from_labels(observed: Observed, labels: Sequence[str]) -> str | None:
    """Describe the first instruction of the dump that differs in the program; None if all agree."""
    for instruction, names in observed.events.items():
        if not 0 <= instruction < len(labels):
            return f"instruction {instruction} ran, but the method has only {len(labels)}"
        label = labels[instruction]
        expected = None if "::" in label else _CALL_EVENTS.get(label.partition(":")[0])
        ran = _ran(names)
        if expected is not None and names.isdisjoint({expected, ""}):
            return f"instruction {instruction} ran {ran}, but is a {label} in the method"
        if expected is None and not names.isdisjoint(_CALL_EVENTS.values()):
            return f"instruction {instruction} ran {ran}, but is {label} in the method"
        kernel = observed.kernel(instruction)
        namespace, _, operator = label.rpartition("::")
        if kernel is not None and namespace in _NAMED_KERNELS and operator != kernel:
            return f"instruction {instruction} ran {ran}, but is {label} in the method"
    if not observed.has_jumps and not any(label == "jump_false" for label in labels):
        missing = observed.missing(range(len(labels)))
        if missing and observed.events:
            return f"instruction {missing[0]} ({labels[missing[0]]}) never ran"
    return None


# Namespaces with kernels that log the operator's name. A custom operator's kernel may log the name
# of any function.
_NAMED_KERNELS = frozenset({"aten", "dim_order_ops", "quantized_decomposed"})

# Kernels that passes insert without a node, by `stem`: the write-back of a buffer, casts, changes
# of layout.
_INSERTED = frozenset({"copy", "clone", "to", "to_dim_order", "clone_dim_order"})


def differs_from_symbols(observed: Observed, symbols: MethodSymbols) -> str | None:
    """Describe the first instruction that contradicts a record's maps and graph; None without one.

    Passes rename and insert operators: up to the share `_TOLERATED` of the kernels may be another
    operator than their nodes, and as many may have no handle. Branches of control flow have no
    handles at all, and `_INSERTED` operators do not count. A record without maps contradicts
    nothing.
    """
    if not symbols.has_maps:
        return None
    recorded = sorted({*symbols.handles, *symbols.delegates})
    for instruction in observed.events:
        names = observed.events[instruction]
        delegate = symbols.delegates.get(instruction)
        recorded_delegate = delegate is not None or isinstance(
            symbols.handles.get(instruction), Sequence
        )
        if names.isdisjoint({"DELEGATE_CALL", ""}):
            if recorded_delegate:
                backend = "a" if delegate is None else f"a {delegate.backend_id}"
                return (
                    f"instruction {instruction} ran {_ran(names)}, but is {backend} delegate in "
                    "the record"
                )
        # A delegate in a branch has no handles, like all instructions there.
        elif not recorded_delegate and (not observed.has_jumps or instruction in symbols.handles):
            return f"instruction {instruction} ran a delegate, but the record has none there"
    kernels = [i for i in observed.events if stem(observed.kernel(i) or "") not in ("", *_INSERTED)]
    unknown = [i for i in kernels if i not in symbols.handles]
    if not observed.has_jumps and len(unknown) > _TOLERATED * len(kernels):
        kernel = observed.kernel(unknown[0])
        return f"instruction {unknown[0]} ran {kernel}, but the record has no handle for it"
    recorded_kernels = [i for i in kernels if i in symbols.handles]
    strangers = []
    for i in recorded_kernels:
        kernel, nodes = observed.kernel(i), symbols.nodes_of(symbols.handles[i])
        if kernel and nodes and stem(kernel) not in {stem(node.op) for node in nodes}:
            shown = ", ".join(dict.fromkeys(node.op for node in nodes))
            strangers.append(f"instruction {i} ran {kernel}, but is {shown} in the record")
    if len(strangers) > _TOLERATED * len(recorded_kernels):
        return strangers[0]
    missing = observed.missing(recorded)
    if missing and observed.events and not observed.has_jumps:
        return f"instruction {missing[0]} is in the record, but never ran"
    if observed.events and recorded and len(missing) == len(recorded):
        return "none of the record's instructions ran"
    return None


def differs_from_record(
    observed: Observed, symbols: MethodSymbols, record: RecordView | None, method: str
) -> str | None:
    """Return a contradiction to the record's maps and graphs of a method, if any."""
    difference = differs_from_symbols(observed, symbols)
    if difference is None or record is None:
        return difference
    # Passes before lowering may replace operators: a record has the graph after them.
    for name in graphs_after_passes(record, method):
        if differs_from_symbols(observed, method_symbols(record, method, name)) is None:
            return None
    return difference


def doubt(observed: Observed, symbols: MethodSymbols) -> str | None:
    """Describe why these runs are unlikely to be of that method; this is not a proof.

    If the program is one XNNPACK delegate, a dump only shows how many "Convolution (…) #k" events
    there are. Each convolution of the record should appear, perhaps as "Deconvolution" or (if
    pointwise) as "Fully Connected".
    """
    for instruction, names in observed.delegated.items():
        delegate = symbols.delegates.get(instruction)
        handles = symbols.handles.get(instruction)
        nodes = symbols.nodes_of(handles) if isinstance(handles, Sequence) else ()
        if delegate is None or not delegate.backend_id.startswith("Xnnpack") or not nodes:
            continue
        logged = [str(name) for name in names]
        ran = sum(name.startswith(("Convolution", "Deconvolution")) for name in logged)
        connected = sum(name.startswith("Fully Connected") for name in logged)
        known = sum(stem(node.op).startswith("conv") for node in nodes)
        if not ran <= known <= ran + connected:
            return (
                f"instruction {instruction}: its {delegate.backend_id} delegate ran {ran} "
                f"convolutions, but has {known} in the record"
            )
    return None


def _ran(names: frozenset[str]) -> str:
    kernels = sorted(name[len(KERNEL_PREFIX) :] for name in names if name.startswith(KERNEL_PREFIX))
    return ", ".join(kernels) or ", ".join(sorted(name for name in names if name)) or "a delegate"
