"""The faults of a program outside of its kernels, as findings that need no run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.faults.layouts import mixed_layouts, order_of
from etscope.analysis.faults.operators import Difference, different_operators
from etscope.analysis.faults.overwritten import Overwritten, overwritten_values
from etscope.analysis.matching.export import Export
from etscope.analysis.program.program import InstructionRecord, instructions
from etscope.analysis.program.source_location import common_module, lines_of, short_lines
from etscope.errors import EtscopeError
from etscope.formats.program.pte_schema import DelegateCall, Method, TensorValue, Value
from etscope.formats.program.xnnpack import XnnNode, XnnTensor, read_xnnpack_graph
from etscope.model.finding import (
    Explanation,
    Finding,
    Place,
    Remedy,
    Severity,
    Site,
    Sureness,
    remedies_of,
)
from etscope.model.graph import SAME_VALUE, Graph, Node, stem
from etscope.model.report import Section, rows
from etscope.model.table import Column, Kind
from etscope.units import format_float, listed

if TYPE_CHECKING:
    from etscope.analysis.faults.state import OtherWeight
    from etscope.analysis.memory.stored import StoredTensor
    from etscope.analysis.program.correlate import Attribution

__all__ = ["program_faults"]

_XNNPACK = "XnnpackBackend"
OTHER_WEIGHTS = "other-weights"  # the kind of a fault
_ELEMENTWISE = frozenset({"add", "sub", "mul", "div"})
_WITH_WEIGHTS = frozenset({"FullyConnected", "Conv2d", "DepthwiseConv2d", "ConvTranspose2d"})
_LISTED = 3  # names in a sentence
OTHER, MIXED = "other-layout", "mixed-layouts"  # kinds of faults
FAILS = OTHER, MIXED  # with these a method may not run


def program_faults(export: Export) -> tuple[Finding, ...]:
    """Return the faults of a program: what makes its results differ from the model's, or makes it
    fail, for any inputs. Without a record, return only the faults that the program alone shows.

    `Explanation.sites` has the instructions whose results are the first wrong ones.
    """
    return tuple(one for one in possible_faults(export) if not _depends_on_values(one))


def possible_faults(export: Export) -> tuple[Finding, ...]:
    """Return `program_faults`, and the faults that appear only with some input values. A fault of
    the second kind is a cause only if the operator's results are wrong.
    """
    return export.once("program faults", lambda: tuple(_faults(export)))


def _depends_on_values(fault: Finding) -> bool:
    return fault.explanation is not None and fault.explanation.sureness is Sureness.POSSIBLE


def sites_of(fault: Finding) -> tuple[Site, ...]:
    """Return the instructions whose results a fault makes wrong."""
    return () if fault.explanation is None else fault.explanation.sites


def told(fault: Finding) -> str:
    """Return a fault and its fix, in sentences."""
    return f"{fault.sentence} To do: {' '.join(remedies_of([fault]))}"


def faults_section(export: Export) -> Section:
    """A section with one row for each fault of a program, and what to do."""
    found = program_faults(export)

    def row(fault: Finding) -> Sequence[Any]:
        for site in sites_of(fault)[:1]:
            return fault.method, fault.kind, site.name, site.instruction, site.module, site.line
        return fault.method, fault.kind, None, None, None, None

    return rows(
        "faults",
        "Faults of the program",
        (
            Column("method"),
            Column("kind"),
            Column("op"),
            Column("instruction", Kind.INT, title="#"),
            Column("module", Kind.PATH, priority=2),
            Column("source", Kind.PATH, priority=1),
        ),
        list(map(row, found)),
        tuple(map(told, found)),
    )


def _faults(export: Export) -> Iterator[Finding]:
    if export.recorded_program is None:
        return
    weights: Sequence[OtherWeight] = ()
    if export.record is not None:
        from etscope.analysis.faults.state import other_weights

        weights = other_weights(export)
    for method in export.recorded_program.methods:
        of_method = _MethodFaults(export, method)
        yield from of_method.found()
        yield from of_method.other_weights([w for w in weights if w.tensor.method == method.name])
    if export.record is not None or len(export.recorded_program.methods) > 1:
        yield from _undefined(export)
        yield from _unshared(export)


@dataclass
class _MethodFaults:
    """The faults of one method."""

    export: Export
    method: Method

    def __post_init__(self) -> None:
        record = self.export.record
        known = None if record is None else record.instruction_id_to_num_outs_map
        outputs = None if known is None else known.get(self.method.name)
        self._is_split_known = outputs is not None
        self._records: Sequence[InstructionRecord] = instructions(
            self.export.needed_program, self.method.name, delegate_outputs=outputs
        ).records

    # What only a fault, or only an export with a record needs.

    @cached_property
    def _attributions(self) -> Sequence[Attribution]:
        return self.export.attributions[self.method.name]

    @cached_property
    def _graph(self) -> Graph | None:
        """The edge graph; None without a record."""
        if self.export.record is None:
            return None
        return self.export.edge_nodes(self.method.name).symbols.graph

    @cached_property
    def _delegate_weights(self) -> Mapping[int | None, Sequence[StoredTensor]]:
        """The matrices among the weights of delegates, by the instruction that reads them."""
        from etscope.analysis.memory.stored import stored_tensors

        found: dict[int | None, list[StoredTensor]] = {}
        for one in stored_tensors(self.export.needed_program):
            if one.method == self.method.name and one.value is None and len(one.shape) > 1:
                found.setdefault(one.instruction, []).append(one)
        return found

    def found(self) -> Iterator[Finding]:
        """Yield the faults, by instruction."""
        for one in overwritten_values(
            self.method, self._records, is_split_known=self._is_split_known
        ):
            yield self._overwritten(one)
        for number, instruction in enumerate(self.method.instructions):
            if isinstance(instruction, DelegateCall):
                if self.method.delegates[instruction.delegate].backend_id == _XNNPACK:
                    yield from self._of_call(number, instruction)
            elif self._records[number].event == "native_call_convolution.out":
                yield from self._unknown_order(number)
        if self._graph is None:
            return
        places: dict[Difference, list[tuple[int, Node]]] = {}
        for number, node, difference in different_operators(self._graph, self._attributions):
            places.setdefault(difference, []).append((number, node))
        for difference, found in places.items():
            yield self._different(difference, found)

    def _different(self, difference: Difference, found: Sequence[tuple[int, Node]]) -> Finding:
        """The nodes that a backend computes by another definition."""
        numbers, nodes = tuple(dict.fromkeys(n for n, _ in found)), [node for _, node in found]
        line = short_lines(lines_of(nodes[:1])) or self._line(numbers[0])
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        at = ", ".join(filter(None, (f"instruction {numbers[0]}", line)))
        return self._finding(
            "different-operator",
            f"{stem(nodes[0].op)} ({at}{more}): {difference.backend or 'The portable kernel'} "
            f"{difference.how}.",
            (f"Its arguments in the graph: {_arguments(nodes[0])}.",),
            numbers,
            (Remedy(difference.remedy),),
            nodes,
            Sureness.POSSIBLE if difference.depends else Sureness.MEASURED,
            Severity.FACT if difference.is_small else Severity.PROBLEM,
        )

    def other_weights(self, weights: Sequence[OtherWeight]) -> Iterator[Finding]:
        """Find that weights are not the record's."""
        numbers = dict.fromkeys(one.tensor.instruction for one in weights)
        names = dict.fromkeys(
            one.name
            or one.tensor.label
            + ("" if one.tensor.instruction is None else f" of {self._at(one.tensor.instruction)}")
            for one in weights
        )
        if names:
            yield self._finding(
                OTHER_WEIGHTS,
                f"The program's weights are not the record's: {listed([*names], _LISTED)}.",
                ("The record holds the program of its export, and these bytes differ.",),
                tuple(number for number in numbers if number is not None),
                (
                    Remedy(
                        "Take the record of the same export. `etscope diff` of the record and the "
                        "program lists what changed."
                    ),
                ),
            )

    # -- places

    def _at(self, number: int) -> str:
        """Name an instruction: "add (instruction 3, model.py:7)"."""
        place = ", ".join(filter(None, (f"instruction {number}", self._line(number))))
        return f"{self._records[number].label.rpartition('.')[2]} ({place})"

    def _line(self, number: int) -> str:
        return short_lines(self._attributions[number].lines)

    def _finding(
        self,
        kind: str,
        sentence: str,
        evidence: tuple[str, ...],
        numbers: tuple[int, ...],
        remedies: tuple[Remedy, ...],
        nodes: Sequence[Node] = (),
        sureness: Sureness = Sureness.MEASURED,
        severity: Severity = Severity.PROBLEM,
    ) -> Finding:
        """Make a finding about instructions. nodes: the nodes of a call that it is about; all
        without."""
        sites = tuple(
            Site(
                stem(nodes[0].op) if nodes else self._records[number].label,
                number,
                module=(common_module(nodes) if nodes else self._attributions[number].module)
                or None,
                line=short_lines(lines_of(nodes)) or self._line(number) or None,
            )
            for number in numbers
        )
        return Finding(
            kind,
            severity,
            sentence,
            self.method.name,
            place=Place("events", f"id:{numbers[0]}", instruction=numbers[0]) if numbers else None,
            explanation=Explanation(sureness, evidence, sites, remedies),
        )

    # -- memory

    def _overwritten(self, one: Overwritten) -> Finding:
        value, over = self.method.values[one.value], self.method.values[one.written]
        if one.made_by < 0:
            is_input = one.value in self.method.inputs
            made = f"{'input' if is_input else 'state'} {value}"
        else:
            made = f"the result of {self._at(one.made_by)}"
        read = "the method ends" if one.reader is None else f"{self._at(one.reader)} reads it"
        writer = "an input" if one.writer < 0 else self._at(one.writer)
        shared = (
            f"The memory plan gives the same bytes to both: {_bytes(value)} and {_bytes(over)}."
        )
        remedy = Remedy(
            "This is a fault of the memory planner: report it to ExecuTorch, and export "
            "with another planner, "
            "`ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(memory_planning_algo=MemoryPlanningAlgorithmSuite([naive])))`."
        )
        if one.moved:
            shared = (
                "The runtime does not copy the result of a branch: it stays in the bytes of the "
                "branch, which the memory plan uses again (pytorch/executorch#21490)."
            )
            remedy = Remedy("Copy the result at once: `torch.cond(...).clone()`.")
        first = one.reader if one.reader is not None else max(one.writer, 0)
        return self._finding(
            "overwritten-value",
            f"{made[0].upper()}{made[1:]} is overwritten by {writer} before {read}.",
            (shared,),
            (first,),
            (remedy,),
        )

    # -- layout

    def _of_call(self, number: int, call: DelegateCall) -> Iterator[Finding]:
        """Compare the arguments of a call of XNNPACK with those that its data has."""
        try:
            blob = self.export.needed_program.delegate_blob(self.method.name, call.delegate)
            operators, known = read_xnnpack_graph(blob)
        except EtscopeError:  # of a version that etscope does not know
            return
        lost = [(n, v) for n, v in enumerate(call.args) if n not in known and known]
        if lost:
            yield self._lost_arguments(number, lost)
        else:
            made = {*self.method.inputs}.union(*(r.outputs for r in self._records[: number + 1]))
            constants = [self.method.values[value] for value in call.args if value not in made]
            yield from self._lost_parameters(number, constants, operators)
            yield from self._lost_scales(number)
        other = [
            fault
            for position, tensor in known.items()
            if position < len(call.args)
            for fault in self._other_layout(number, position, call.args[position], tensor)
        ]
        yield from other or self._mixed_layouts(number, call, operators, known)

    def _lost_arguments(self, number: int, lost: Sequence[tuple[int, int]]) -> Finding:
        """The call is given values that its data does not read."""
        told, users = [], []
        for position, value in lost:
            name, nodes = self._parameter(number, self.method.values[value])
            told.append(f"{name or f'argument {position}'} ({self.method.values[value]})")
            users += nodes
        return self._lost(
            number,
            f"the call of {self._at(number)} does not read {' and '.join(told)}",
            "The program gives these values to the call; the call's data has no input for them.",
            users,
        )

    def _lost_parameters(
        self, number: int, given: Sequence[Value], operators: Sequence[XnnNode]
    ) -> Iterator[Finding]:
        """Find sums and products with a parameter, of a size that neither a constant of the call
        has nor one of its constant arguments. given: these arguments."""
        graph = self._graph
        if graph is None:
            return
        held = {math.prod(value.sizes) for value in given if isinstance(value, TensorValue)}
        biases: set[int] = set()  # a sum after a product of matrices may have become its bias
        for operator in operators:
            with_weights = operator.kind in _WITH_WEIGHTS
            for position, tensor in enumerate(operator.inputs):
                if tensor.constants and not (with_weights and position == 1):
                    (biases if with_weights else held).add(math.prod(tensor.sizes))
        lost: dict[str, Node] = {}
        for node in self._attributions[number].nodes:
            if stem(node.op) in _ELEMENTWISE:
                for source in filter(None, map(graph.by_name.get, node.inputs)):
                    source = graph.seen_through(source)
                    spec = source.outputs[0].tensor if source.outputs else None
                    sizes = () if spec is None else spec.shape
                    known = [size for size in sizes if isinstance(size, int)]
                    count = math.prod(known) if len(known) == len(sizes) else 1
                    kept = held | biases if stem(node.op) == "add" else held
                    if source.name in graph.parameters and count > 1 and count not in kept:
                        lost[graph.parameters[source.name]] = node
        if lost:
            yield self._lost(
                number,
                f"the call of {self._at(number)} does not hold {listed([*lost], _LISTED, ' and ')}",
                "The call's data has no constant with the sizes of these parameters.",
                list(lost.values()),
            )

    def _lost_scales(self, number: int) -> Iterator[Finding]:
        """Find integers that the call has as float weights: their scales were lost. A backend may
        keep dequantized weights in float, but these have fractions."""
        graph = self._graph
        if graph is None:
            return
        nodes = [
            node
            for node in self._attributions[number].nodes
            if stem(node.op).startswith("dequantize")
            and graph.parameters.keys() & set(node.inputs[:1])
        ]
        if not nodes:
            return
        program = self.export.needed_program
        weights = self._delegate_weights.get(number, ())
        for weight in weights if all(one.dtype == "float32" for one in weights) else ():
            numbers = np.frombuffer(program.blob(weight.span), np.float32)
            if len(numbers) and (numbers == np.rint(numbers)).all() and np.ptp(numbers) > 1:
                names = " and ".join(graph.parameters[node.inputs[0]] for node in nodes)
                yield self._lost(
                    number,
                    f"the call of {self._at(number)} has the integers of {names} as float "
                    "weights, without their scales",
                    "The float weights in the call are whole numbers, as integer codes "
                    "without their scales are.",
                    nodes,
                )
                return

    def _lost(self, number: int, what: str, evidence: str, users: Sequence[Node]) -> Finding:
        names = [*dict.fromkeys(stem(node.op) for node in users)]
        are = "is" if len(names) == 1 else "are"
        by = (
            f"{' and '.join(names)} of the model {are} lost"
            if names
            else ("the operators that use them are lost")
        )
        return self._finding(
            "lost-operator",
            f"{what[0].upper()}{what[1:]}, so {by}.",
            (evidence,),
            (number,),
            (
                Remedy(
                    "XNNPACK has no kernel for weights that are quantized without their inputs "
                    "(weight-only): export with `--quantize 8da4w` or 8da8w, or with float weights."
                ),
            ),
            users,
        )

    def _parameter(self, number: int, value: object) -> tuple[str | None, list[Node]]:
        """Return the name of the only parameter of a call with the type of a value, and the nodes
        that compute with it; None and no nodes without a record or if several fit."""
        graph = self._graph
        if graph is None:
            return None, []
        nodes = self._attributions[number].nodes
        names = {name for node in nodes for name in node.inputs}
        fitting = [
            name
            for name in names & graph.parameters.keys()
            if str(graph.by_name[name].outputs[0].tensor) == str(value)
        ]
        if len(fitting) != 1:
            return None, []
        behind, found = [fitting[0]], []
        while behind:  # views of a parameter compute nothing
            for user in map(graph.by_name.__getitem__, graph.users[behind.pop()]):
                if stem(user.op) in SAME_VALUE:
                    behind.append(user.name)
                elif user in nodes:
                    found.append(user)
        return graph.parameters[fitting[0]], found

    def _other_layout(
        self, number: int, position: int, index: int, wanted: XnnTensor
    ) -> Iterator[Finding]:
        value = self.method.values[index]
        if not isinstance(value, TensorValue) or not value.sizes:
            return  # XNNPACK has a scalar as one element
        given = tuple(value.sizes[dim] for dim in value.dim_order)
        if given == wanted.sizes:
            return
        yield self._finding(
            OTHER,
            f"The call of {self._at(number)} takes argument {position} as {wanted}, and the "
            f"program has it as {_shape(given)}, so the call fails.",
            (_order(value),),
            (number,),
            (_CONTIGUOUS,),
        )

    def _mixed_layouts(
        self,
        number: int,
        call: DelegateCall,
        operators: Sequence[XnnNode],
        known: Mapping[int, XnnTensor],
    ) -> Iterator[Finding]:
        """Find the first operator of a call that reads a value in a wrong order."""
        arguments = {}
        for position, tensor in known.items():
            value = self.method.values[call.args[position]] if position < len(call.args) else None
            order = order_of(tensor, value.dim_order) if isinstance(value, TensorValue) else None
            if order is not None:
                arguments[id(tensor)] = order
        for operator, is_last in islice(mixed_layouts(operators, arguments), 1):
            nodes = [
                node
                for node in self._attributions[number].nodes
                if operator is not None and node.debug_handle == operator.debug_handle
            ][-1:]
            ends = ("first", "last")
            if operator is None:
                what = "returns a value in another order of dimensions than the program has"
            elif is_last is None:
                what = f"gives {operator.kind} inputs with the channels first and last"
            else:
                what = (
                    f"gives {operator.kind} a value with the channels {ends[not is_last]}, where "
                    f"it needs them {ends[is_last]}"
                )
            line = short_lines(lines_of(nodes))
            place = f" for {stem(nodes[0].op)} ({line})" if line else ""
            is_dynamic = any(value.is_dynamic for one in operators for value in one.outputs)
            by_hand = is_dynamic and operator is not None and operator.kind != "Softmax"
            yield self._finding(
                MIXED,
                f"The call of {self._at(number)} {what}{place}, so its results are wrong or it "
                "fails.",
                ("ExecuTorch's ChannelsLastTaggedReshapePass added the transposes of this call.",),
                (number,),
                (_STATIC if by_hand else _OWN_VIEW,),
                nodes,
            )

    def _unknown_order(self, number: int) -> Iterator[Finding]:
        """Find inputs of a convolution that are neither contiguous nor channels last: the portable
        kernel checks its inputs with `tensor_is_default_or_channels_last_dim_order`."""
        for tensor in self._records[number].read[:1]:
            rank = len(tensor.sizes)
            if tuple(tensor.dim_order) not in (
                tuple(range(rank)),
                (0, *range(2, rank), 1),
            ):
                yield self._finding(
                    OTHER,
                    f"The input of {self._at(number)} ({tensor}) is neither contiguous nor "
                    "channels last, so the kernel fails.",
                    (_order(tensor),),
                    (number,),
                    (_CONTIGUOUS,),
                )


_CONTIGUOUS = Remedy(
    "Export with an input that is contiguous in memory: `x.clone(memory_format="
    "torch.contiguous_format)`; `x.contiguous()` does not change the strides of such a shape."
)

_OWN_VIEW = Remedy(
    "Give the operator its own view of the value: "
    "`x.flatten(0, 1).unflatten(0, x.shape[:2])`, which ends the order of the channels."
)
_STATIC = Remedy(
    "Quantize the convolutions of this call statically, or leave them in float: the pass "
    "transposes the inputs of those that are quantized dynamically, for all their users."
)


def _order(tensor: TensorValue) -> str:
    order = ", ".join(map(str, tensor.dim_order))
    return (
        f"The order of its dimensions in memory is {order}. A dimension of size 1 does not show "
        "its place in the strides, so the export read a wrong order from them."
    )


def _arguments(node: Node) -> str:
    return ", ".join(f"{name}={text}" for name, text in node.arguments[1:])


def _shape(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _bytes(value: object) -> str:
    """Name the planned bytes of a tensor: "bytes 0 to 15 of memory 1"."""
    if not isinstance(value, TensorValue) or value.allocation is None or value.nbytes is None:
        return "bytes of another value"
    place = value.allocation
    last = place.offset + value.nbytes - 1
    return f"bytes {place.offset:,} to {last:,} of memory {place.memory_id}"


# -- state


def _undefined(export: Export) -> Iterator[Finding]:
    from etscope.analysis.faults.state import UndefinedState, undefined_state

    by_method: dict[str, list[UndefinedState]] = {}
    for one in undefined_state(export):
        by_method.setdefault(one.state.method, []).append(one)
    for method, (first, *others) in by_method.items():
        state, start = first.state, "other values than zeros"
        if first.value is not None:
            start = format_float(first.value)
        more = f" (and {len(others)} more buffers likewise)" if others else ""
        name = (state.name or "").rpartition(".")[2]
        yield Finding(
            "undefined-state",
            Severity.PROBLEM,
            f"{state.name} ({state.tensor}) starts as {start} in the model and undefined in the "
            f"program{more}: the first run reads what the memory holds.",
            method,
            explanation=Explanation(
                Sureness.MEASURED,
                ("The program stores no start value for it.",),
                _sites(export, method, [n for one in (first, *others) for n in one.read_by]),
                (
                    Remedy(
                        "Export with `etscope export`, which keeps the start value, or "
                        "with "
                        f'`ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["{name}"])])`.'
                    ),
                ),
            ),
        )


def _unshared(export: Export) -> Iterator[Finding]:
    from etscope.analysis.faults.state import unshared_state

    for one in unshared_state(export):
        writers = " and ".join(one.written_by)
        write = "writes" if len(one.written_by) == 1 else "write"
        yield Finding(
            "unshared-state",
            Severity.PROBLEM,
            f"{one.method} has its own copy of {one.name}: it does not see what {writers} "
            f"{write} there.",
            one.method,
            explanation=Explanation(
                Sureness.MEASURED,
                ("The memory plan of each method has its own bytes for it.",),
                _sites(export, one.method, one.read_by),
                (
                    Remedy(
                        "Plan it once: `ExecutorchBackendConfig(memory_planning_pass="
                        "MemoryPlanningPass(share_mutable_buffers=True))`."
                    ),
                ),
            ),
        )


def _sites(export: Export, method: str, numbers: Sequence[int]) -> tuple[Site, ...]:
    """Return the places of instructions."""
    attributions = export.attributions[method]
    records = instructions(export.needed_program, method).records
    return tuple(
        Site(
            records[number].label,
            number,
            module=attributions[number].module or None,
            line=attributions[number].source,
        )
        for number in numbers
    )
