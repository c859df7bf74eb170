"""Pieces of an exported program: cut out as separate programs, with eager PyTorch's values at
their borders."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from etscope.analysis.matching.graph_alignment import align_graphs
from etscope.backends import chosen
from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.failures import innermost
from etscope.bridge.fx import as_graph_node, is_operation, owner_of
from etscope.bridge.lowering.export import (
    Inputs,
    export_method,
    flat_inputs,
    inputs_of,
    lowered,
)
from etscope.bridge.programs import program_buffer, program_json
from etscope.bridge.reference.float_runs import run_with
from etscope.bridge.reference.local_reference import replaced
from etscope.bridge.reference.reference import (
    NamedProgram,
    keeps_state,
    plain_tensors,
    run_reference,
    writes_in_place,
)
from etscope.bridge.tensors import numpy_from_tensor, numpy_value
from etscope.errors import ExportFailure, UsageError
from etscope.model.exported_graph import graph_from_program_json
from etscope.model.graph import Graph as OperatorGraph
from etscope.model.graph import NodeValue


class Subject(NamedTuple):
    """A functional program with static shapes that can be cut, and samples of its flat inputs as
    torch values.

    floats: for each sample the values of the float graph that a quantized program was made of, by
    node, as (element or None, array); empty to take the program's own.
    """

    program: ExportedProgram
    samples: tuple[tuple[Any, ...], ...]
    floats: tuple[Mapping[str, Sequence[tuple[int | None, Any]]], ...] = ()

    def known(self, sample: int) -> Mapping[str, Sequence[tuple[int | None, Any]]]:
        """Return the values that replace the program's own in a sample."""
        return self.floats[sample] if self.floats else {}


class Cut(NamedTuple):
    """A piece as a program; the names of the values it takes and gives, in order."""

    program: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def subject_of(
    model: Any,
    samples: Sequence[Any],
    options: ExportOptions,
    method: str | None,
    calibration: Sequence[Any] = (),
) -> tuple[Subject, ExportedProgram | None]:
    """Export one method of a model in a form that can be cut into pieces; return it with the
    program before quantization, or None if it was not quantized.

    samples: one or more sets of inputs; the first is used for the export. calibration: inputs that
    set the ranges of a quantized model, by default all samples.
    """
    rounds = list(calibration) or (list(samples) if len(samples) > 1 else None)
    lowering = replace(options, calibration=rounds if options.quantize else None)
    _, found = export_method(model, samples[0], lowering, method)
    given = [found.inputs, *(one for one in map(inputs_of, samples[1:]) if one is not None)]
    program = found.program
    try:
        if program.range_constraints:  # pieces have static shapes
            args, kwargs = found.inputs.args, found.inputs.kwargs
            program = torch.export.export(program.module(), args, kwargs, strict=False)
        has_parts = any(next(plain_tensors(one)) is not one for one in program.state_dict.values())
        if writes_in_place(program.graph_module) or keeps_state(program) or has_parts:
            # In this form values are not written to, and the parts of a tensor subclass are
            # weights of their own.
            program = program.run_decompositions({})
    except Exception as error:
        raise ExportFailure(f"the model cannot be made ready to cut: {innermost(error)}") from error
    flat = tuple(flat_inputs(found.program, one) for one in given)
    return Subject(program, flat), found.unquantized


def with_floats(subject: Subject, floats: ExportedProgram) -> Subject:
    """Take the float graph's values at the borders of pieces of a quantized program."""
    quantized, before = (
        graph_from_program_json(program_json(program, name), name, graph_id)
        for program, name, graph_id in (
            (subject.program, "quantized", None),
            (floats, "float", id(floats.graph)),
        )
    )
    pairs = align_graphs(before, quantized)
    wanted: dict[str, list[tuple[NodeValue, NodeValue]]] = {}
    for value, other in pairs.of.items():
        wanted.setdefault(other.path, []).append((value, other))
    found: list[Mapping[str, Sequence[tuple[int | None, Any]]]] = []
    for sample in subject.samples:
        known: dict[str, list[tuple[int | None, Any]]] = {}
        for name, result in run_with(NamedProgram(floats, {}), list(sample), {}, wanted):
            for value, other in wanted[name]:
                one = result if other.element is None else result[other.element]
                known.setdefault(value.path, []).append((value.element, one.copy()))
        found.append(known)
    return subject._replace(floats=tuple(found))


def nested(program: ExportedProgram, flat: Sequence[Any]) -> Inputs:
    """Nest flat inputs as the program takes them, by position and by keyword."""
    spec = program.call_spec.in_spec
    if len(flat) != spec.num_leaves:
        raise UsageError(f"the program takes {spec.num_leaves} inputs, and there are {len(flat)}")
    return Inputs(*pytree.tree_unflatten(list(flat), spec))


# -- nodes


def operator_graph(program: ExportedProgram) -> OperatorGraph:
    """Return the program's calls as a graph; `cut` takes its nodes by name."""
    units = [node for node in program.graph.nodes if _is_unit(node)]
    names = {node.name for node in units}
    return OperatorGraph(
        name="",
        nodes=tuple(
            as_graph_node(
                node, [one.name for one in map(owner_of, node.all_input_nodes) if one.name in names]
            )
            for node in units
        ),
    )


def _is_unit(node: Node) -> bool:
    """True for a call with a value; assertions have none."""
    return is_operation(node) and node.meta.get("val") is not None


# -- cutting


def cut(program: ExportedProgram, names: Collection[str]) -> Cut:
    """Make a program of the nodes of these names. Values from outside become its inputs, those used
    outside its outputs; parameters and buffers stay what they are.

    Raises `ExportFailure` where anything but a tensor of a known shape crosses the border.
    """
    wanted = set(names)
    inside = {node for node in program.graph.nodes if owner_of(node).name in wanted}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = dict(zip(placeholders, program.graph_signature.input_specs, strict=True))
    used = {one for node in inside for one in node.all_input_nodes} - inside
    attributes = {node for node in used if node.op == "get_attr"}  # sub-graphs
    lifted = [  # parameters and the like
        node
        for node in placeholders
        if node in used and specs[node].kind is not InputKind.USER_INPUT
    ]
    values = used.difference(attributes, lifted)
    outside = [node for node in program.graph.nodes if node in values]
    outputs = _outputs(program, inside)

    graph = Graph()
    copies = {node: graph.node_copy(node) for node in lifted}
    for node in outside:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta["val"] = _plain_strides(_border(node))
    for node in program.graph.nodes:
        if node in inside or node in attributes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    module = GraphModule(program.graph_module, graph)

    lifted_specs = [
        replace(specs[node], arg=type(specs[node].arg)(name=copies[node].name)) for node in lifted
    ]
    input_specs = [
        InputSpec(InputKind.USER_INPUT, TensorArgument(copies[node].name), None) for node in outside
    ]
    output_specs = [
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(copies[node].name), None)
        for node in outputs
    ]
    signature = ModuleCallSignature(
        inputs=[],  # torch leaves them out, too: passes rename values
        outputs=[],
        in_spec=pytree.tree_flatten(((0,) * len(outside), {}))[1],
        out_spec=pytree.tree_flatten((0,) * len(outputs))[1],
    )
    targets = {spec.target for spec in lifted_specs}
    piece = ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature([*lifted_specs, *input_specs], output_specs),
        state_dict={k: v for k, v in program.state_dict.items() if k in targets},
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", signature)],
        constants={k: v for k, v in program.constants.items() if k in targets},
        verifiers=list(program.verifiers),
    )
    return Cut(piece, tuple(n.name for n in outside), tuple(n.name for n in outputs))


def _outputs(program: ExportedProgram, inside: set[Node]) -> list[Node]:
    """Return the values that are used outside; where there are none, those that nothing uses."""
    order = [node for node in program.graph.nodes if node in inside]
    found = [
        node
        for node in order
        if any(
            user not in inside and (user.op == "output" or _is_unit(owner_of(user)))
            for user in node.users
        )
    ]
    found = found or [node for node in order if not node.users]
    for node in found:
        _border(node)
    return found


def _border(node: Node) -> torch.Tensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise ExportFailure(
            f"{node.name} is not a tensor, and a piece takes and returns tensors only"
        )
    if any(not isinstance(size, int) for size in value.shape):
        raise ExportFailure(f"the shape of {node.name} depends on values")
    return value


def _plain_strides(value: torch.Tensor) -> torch.Tensor:
    """Make a value contiguous unless it is channels-last: the runtime takes no other strides."""
    if value.is_contiguous():
        return value
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return value
    return value.contiguous()


# -- values


def capture(
    program: ExportedProgram,
    sample: Sequence[Any],
    names: Iterable[str],
    known: Mapping[str, Sequence[tuple[int | None, Any]]] = MappingProxyType({}),
) -> dict[str, torch.Tensor]:
    """Return copies of the values of these nodes in an eager run. `known` has values by node that
    are used instead of computed ones.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    found: dict[str, torch.Tensor] = {}
    waiting: dict[str, list[Node]] = {}
    specs = program.graph_signature.input_specs
    users = [one.arg.name for one in specs if one.kind is InputKind.USER_INPUT]
    given = dict(zip(users, sample, strict=True))
    for name in names:
        owner = owner_of(nodes[name])
        if owner.op == "placeholder":
            found[name] = _copied(given[owner.name])
        else:
            waiting.setdefault(owner.name, []).append(nodes[name])
    if not waiting:
        return found
    run = run_reference(program, list(sample))
    instead: Any = None
    while waiting:
        name, value = run.send(instead)
        instead = replaced(value, known[name], None) if name in known else None
        for node in waiting.pop(name, ()):
            found[node.name] = _copied(_element(node, value if instead is None else instead))
    return found


def _element(node: Node, value: Any) -> Any:
    if node.target is not operator.getitem:
        return value
    return _element(node.args[0], value)[node.args[1]]


def _copied(value: torch.Tensor) -> torch.Tensor:
    return _plain_strides(value.detach()).clone()


def arrays(values: Mapping[str, torch.Tensor], names: Iterable[str]) -> list[Any]:
    """Return the values of these names as numpy arrays."""
    return [numpy_value(values[name]) for name in names]


# -- lowering, saving, identifying


def lower(
    program: ExportedProgram,
    backend: str,
    new_record: Callable[[], Any],
    method: str = "forward",
) -> bytes:
    """Return the .pte file of one method. `new_record` makes an empty `ETRecord`.

    Raises `ExportFailure`, its message beginning with the name of ExecuTorch's own error.
    """
    try:
        return program_buffer(lowered({method: program}, chosen(backend), new_record))
    except ExportFailure as error:
        raise ExportFailure(innermost(error)) from error


def save_piece(piece: ExportedProgram, path: Path) -> None:
    """Write a .pt2 file. Raises `ExportFailure` for a piece that torch cannot save."""
    try:
        torch.export.save(piece, path)
    except Exception as error:
        path.unlink(missing_ok=True)
        raise ExportFailure(f"torch cannot save the piece: {innermost(error)}") from error


def fingerprint(subject: Subject) -> str:
    """Return a hash of the graph, the weights and the inputs."""
    program, samples = subject.program, subject.samples
    digest = hashlib.sha256()
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            digest.update(str(module.graph).encode())
    for held in (program.state_dict, program.constants):
        for name in sorted(held):
            digest.update(name.encode())
            _feed(digest, held[name])
    for sample in samples:
        for value in sample:
            _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        digest.update(repr(value).encode())
        return
    for part in plain_tensors(value):
        digest.update(f"{part.dtype}{list(part.shape)}".encode())
        plain = part.detach().cpu().contiguous().reshape(-1)
        if plain.numel():
            digest.update(numpy_from_tensor(plain.view(torch.uint8)).data)


def check_samples(subject: Subject) -> None:
    """Raise `UsageError` unless all samples have the shapes and types of the first."""
    first = [_form(value) for value in subject.samples[0]]
    for number, sample in enumerate(subject.samples[1:], start=2):
        if [_form(value) for value in sample] != first:
            raise UsageError(
                f"sample {number} of the inputs has other shapes or types than the first",
                hint="pieces have static shapes: bisect with samples of one shape",
            )


def _form(value: Any) -> object:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape)
    return ConstantArgument(name="", value=value) if isinstance(value, str) else type(value)
