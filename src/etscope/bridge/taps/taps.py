"""Taps: intermediate values of an exported program made outputs of it, after its own ones.

A value that is an output leaves each delegate that computes it, and can be looked at on every
backend. What else a tap changes: an operator whose value is needed is not fused into the next one.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from etscope.analysis.profile.source_location import user_line
from etscope.bridge.failures import innermost
from etscope.bridge.reference.reference import writes_in_place
from etscope.errors import EtscopeWarning, ExportFailure, MissingDataError, UsageError
from etscope.formats.etrecord.own_members import MethodTaps, Tap
from etscope.model.selector import Fields, Selector

# The nodes of exported programs that selectors pick to be tapped.


_NAMES_SHOWN = 5
_ROOT = "_export_root"  # of what torch traces as a module of its own


def picked_nodes(
    programs: Mapping[str, ExportedProgram], selectors: Sequence[str]
) -> dict[str, set[str]]:
    """For each method, the names of the nodes to tap. Each selector picks some."""
    nodes = {method: list(_top(program)) for method, program in programs.items()}
    inside = [node for program in programs.values() for node in _inside(program)]
    picked: dict[str, set[str]] = {method: set() for method in programs}
    for text in selectors:
        matches = Selector(text).matches
        matched = False
        useless: list[Node] = []
        for method, candidates in nodes.items():
            for node in candidates:
                if not matches(fields_of(node)):
                    continue
                if tensors_of(node):
                    picked[method].add(node.name)
                    matched = True
                else:
                    useless.append(node)
        hidden = [node for node in inside if tensors_of(node) and matches(fields_of(node))]
        if hidden:
            _say_hidden(text, hidden, refuse=not matched)
        if not matched:
            raise _nothing(text, useless, [n for found in nodes.values() for n in found])
    return picked


def _say_hidden(selector: str, hidden: Sequence[Node], *, refuse: bool) -> None:
    names = _listed([node.name for node in hidden])
    text = (
        f"the tap {selector!r} picks values inside of control flow ({names}), which cannot be "
        "outputs: a branch may not run, and a loop's body runs more than once"
    )
    if refuse:
        raise UsageError(text, hint="tap what the branch or loop gives, outside of it")
    warnings.warn(f"{text}; the others are tapped", EtscopeWarning, stacklevel=2)


def _nothing(selector: str, useless: Sequence[Node], nodes: Sequence[Node]) -> Exception:
    if useless:
        return UsageError(
            f"the tap {selector!r} picks only nodes that compute no tensor of their own: "
            + _listed([node.name for node in useless])
        )
    tappable = [node for node in nodes if tensors_of(node)]
    key, colon, word = selector.rpartition(":")
    key = key.rpartition(" ")[2].strip("(") if colon else "name"
    known = dict.fromkeys(text for node in tappable for text in fields_of(node).get(key, ()))
    word = word.strip("*? \"'()")
    near = get_close_matches(word, known, n=_NAMES_SHOWN, cutoff=0.4)
    near = near or [text for text in known if word and word in text]
    return MissingDataError(
        f"the tap {selector!r} picks no node of the exported program",
        hint="near it are: " + _listed(near)
        if near
        else "its nodes are: " + _listed([node.name for node in tappable]),
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def fields_of(node: Node) -> Fields:
    """What a node of a program offers to a `Selector`, in the words of `analysis.select`."""
    line = user_line(node.meta.get("stack_trace"))
    frames = list((node.meta.get("nn_module_stack") or {}).values())
    last = frames[-1] if frames else None
    return {
        "name": [node.name],
        "op": [op_name(node)],
        "module": [] if last is None or not module_of(node) else [str(module_of(node))],
        "type": [] if last is None else [_type_name(last[1])],
        "file": [] if line is None else [f"{line.file}:{line.line}"],
        "kind": [node.op],
    }


def op_name(node: Node) -> str:
    """The operator: "aten.conv2d.default"."""
    return str(node.target) if not callable(node.target) else target_name(node.target)


def target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def module_of(node: Node) -> str | None:
    """Path of the innermost module that the node is of; "" is the root, None unknown."""
    frames = list((node.meta.get("nn_module_stack") or {}).values())
    if not frames:
        return None
    path = str(frames[-1][0])
    return "" if path == _ROOT else path.removeprefix(_ROOT + ".")


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).rpartition(".")[2]


def _top(program: ExportedProgram) -> Iterator[Node]:
    """The nodes that compute something. Elements of tuples go with the node that makes them, and
    weights that are only dequantised are no values of the model."""
    for node in program.graph.nodes:
        if (
            node.op == "call_function"
            and node.target is not operator.getitem
            and not _is_weight(node)
        ):
            yield node


def _inside(program: ExportedProgram) -> Iterator[Node]:
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule) and module is not program.graph_module:
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def tensors_of(node: Node) -> list[tuple[int | None, Node]]:
    """The tensors that a node computes, by element; of several, those that are taken apart."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return [(None, node)]
    elements = [user for user in node.users if user.target is operator.getitem]
    elements.sort(key=lambda user: user.args[1])
    return [
        (user.args[1], user) for user in elements if isinstance(user.meta.get("val"), torch.Tensor)
    ]


def is_quantized_op(node: Any, what: str) -> bool:
    return (
        isinstance(node, Node)
        and node.op == "call_function"
        and target_name(node.target).startswith(f"quantized_decomposed.{what}_per_")
    )


def _is_weight(node: Node) -> bool:
    return is_quantized_op(node, "dequantize") and not is_quantized_op(node.args[0], "quantize")


# Where the value of a node that is to be tapped is taken.


# What XNNPACK and its quantizer take together with the operator before, in one int8 operator.
_ACTIVATIONS = frozenset(
    f"aten.{name}.default"
    for stem in ("relu", "hardtanh", "relu6", "clamp")
    for name in (stem, f"{stem}_")
)
# What hands its input on.
_IDENTITIES = frozenset(
    f"aten.{name}.default"
    for name in ("dropout", "feature_dropout", "contiguous", "detach", "detach_", "alias")
)


@dataclass(frozen=True)
class Place:
    """Where the value of a node is taken: at `value`, or of `dequantize`, a copy of which is made
    for it, because other users of that one belong to their own operators."""

    node: Node
    value: Node
    dequantize: Node | None = None


def place_of(node: Node, value: Node) -> Place:
    """Where a selected value is taken.

    Between a dequantisation and the next quantisation there is one operator of int8. Its value is
    that after quantisation, and there is none within it.
    """
    same = source_of(node)
    if same is not node:
        node, value = owner_of(same), same
    if is_quantized_op(node, "quantize"):
        return _of_quantize(node, origin_of(node))
    if is_quantized_op(node, "dequantize"):
        quantize: Any = node.args[0]
        return _of_quantize(quantize, origin_of(quantize))
    at = value
    while True:
        quantizes = [user for user in at.users if is_quantized_op(user, "quantize")]
        if quantizes:
            if at is not value:
                warnings.warn(
                    f"{node.name} has no value of its own in int8: it is one operator with "
                    f"{at.name}, which is tapped instead",
                    EtscopeWarning,
                    stacklevel=2,
                )
            return _of_quantize(quantizes[0], node if at is value else at)
        users = list(at.users)
        is_fused = any(is_quantized_op(used, "dequantize") for used in node.all_input_nodes)
        if not is_fused or len(users) != 1 or target_name(users[0].target) not in _ACTIVATIONS:
            return Place(node, value)
        at = users[0]


def source_of(node: Node) -> Node:
    """The value of another node that one's is the same as: there is no need to have it twice, and
    a delegate of nothing but a copy cannot be lowered."""
    while is_identity(node):
        given: Any = node.args[0]
        if given.op != "call_function":
            return node
        node = given
    return node


def is_identity(node: Node) -> bool:
    """Whether a node does nothing but hand its input on."""
    if node.op != "call_function":
        return False
    name = target_name(node.target)
    if name == "aten.clone.default":
        return not node.kwargs
    return name in _IDENTITIES and not ("dropout" in name and node.args[2])


def origin_of(quantize: Node) -> Node:
    """The node whose value is quantised; a quantised input has none but its quantisation."""
    source = owner_of(quantize.args[0])
    return source if source.op == "call_function" else quantize


def owner_of(value: Any) -> Any:
    """The node that a value comes of: that of a tuple, for its elements."""
    return owner_of(value.args[0]) if value.target is operator.getitem else value


def _of_quantize(quantize: Node, node: Node) -> Place:
    back = [user for user in quantize.users if is_quantized_op(user, "dequantize")]
    return Place(node, quantize, back[0]) if back else Place(node, quantize)


def element_of(value: Node) -> Any:
    return value.args[1] if value.target is operator.getitem else None


def tapped_programs(
    programs: Mapping[str, ExportedProgram], selectors: Sequence[str]
) -> tuple[dict[str, ExportedProgram], dict[str, MethodTaps]]:
    """The programs of a model's methods with the selected values as further outputs, and what
    these are. Programs in which nothing is selected are those that were given.

    Raises `UsageError` for a selector that cannot be read, or that picks nothing but nodes that
    cannot be tapped: those inside of control flow, and those that compute no tensor;
    `MissingDataError` for one that picks nothing in any method.
    """
    picked = picked_nodes(programs, selectors)
    found: dict[str, ExportedProgram] = {}
    taps: dict[str, MethodTaps] = {}
    for name, program in programs.items():
        found[name] = program
        if picked[name]:
            found[name], taps[name] = tapped(program, picked[name])
    return found, taps


def with_handles(
    taps: Mapping[str, MethodTaps], edge: Mapping[str, ExportedProgram]
) -> dict[str, MethodTaps]:
    """The taps with the debug handles that their outputs have in the edge programs."""
    return {
        method: replace(
            one, taps=tuple(replace(t, handle=_handle(edge.get(method), t)) for t in one.taps)
        )
        for method, one in taps.items()
    }


def _handle(program: ExportedProgram | None, tap: Tap) -> int | None:
    if program is None:
        return None
    results = _user_outputs(program)
    if tap.output >= len(results) or not isinstance(results[tap.output], Node):
        return None
    handle = results[tap.output].meta.get("debug_handle")
    return handle if isinstance(handle, int) else None


# -- the program with more outputs


def tapped(program: ExportedProgram, names: set[str]) -> tuple[ExportedProgram, MethodTaps]:
    """The program with the values of the nodes of these names as further outputs.

    A program whose nodes write to their arguments is brought into the functional form, where a
    value stays what it is: `relu_` becomes `relu`. The graph is a copy; weights are those of the
    program.
    """
    writes = writes_in_place(program.graph_module)
    graph = Graph()
    copies: dict[Node, Node] = {}
    results = _copied_graph(program.graph, graph, copies)
    own = len(_user_outputs(program))
    outputs: dict[Node, Node] = {}  # by what is tapped
    further: list[Node] = []
    found: dict[tuple[Node, int | None], int] = {}
    for element, place in _places(program, names):
        key = (place.node, element)
        known = _known_output(program, place)
        if known is None:
            if place.value not in outputs:
                outputs[place.value] = _output(graph, copies, place, copy=writes)
                further.append(outputs[place.value])
            known = own + further.index(outputs[place.value])
        found.setdefault(key, known)
    graph.output((*results, *further))
    if not writes:
        _bypass(graph, further)
    signature = program.graph_signature.output_specs
    module = GraphModule(program.graph_module, graph)
    made = _program(program, signature, module, program.module_call_graph, further)
    if not writes:
        taps = [_tap(node, e, made, output) for (node, e), output in found.items()]
        return made, MethodTaps(own, tuple(taps))
    made, moved = _functional(program, made, own)
    taps = [_tap_of_output(made, moved.get(output, output)) for output in found.values()]
    return made, MethodTaps(own, tuple(dict.fromkeys(taps)))


def _copied_graph(old: Graph, new: Graph, copies: dict[Node, Node]) -> Any:
    """Copy all nodes, with their names; the values that the graph returns."""
    results = new.graph_copy(old, copies)
    for node, copied in copies.items():
        copied.name = node.name  # also one that fx would not give: "input"
    return results


def _bypass(graph: Graph, tapped: Sequence[Node]) -> None:
    """Let what reads a tapped value read it, and not a copy: a delegate of nothing but copies of
    what other delegates give cannot be lowered."""
    ends = graph.output_node().all_input_nodes
    for value in tapped:
        for user in list(value.users):
            if is_identity(user) and user not in ends:
                user.replace_all_uses_with(value)
                graph.erase_node(user)


def _places(program: ExportedProgram, names: set[str]) -> list[tuple[int | None, Place]]:
    """Each value once, in order of execution."""
    found: dict[tuple[Node, int | None], Place] = {}
    for node in program.graph.nodes:
        for element, value in tensors_of(node) if node.name in names else ():
            place = place_of(node, value)
            own = element if place.node is node else element_of(place.value)
            found.setdefault((place.node, own), place)
    return [(element, place) for (_, element), place in found.items()]


def _known_output(program: ExportedProgram, place: Place) -> int | None:
    """The output of the model's own that is the value."""
    same = {place.value} if place.dequantize is None else set(place.value.users)
    for at, value in enumerate(_user_outputs(program)):
        if value in same:
            return at
    return None


def _output(graph: Graph, copies: Mapping[Node, Node], place: Place, *, copy: bool) -> Node:
    """What gives the value of a place in the copied graph, and is used by nothing else if it is a
    copy."""
    value = copies[place.value]
    source = place.dequantize
    if source is not None:
        with graph.inserting_after(copies[source]):
            back = graph.node_copy(source, copies.__getitem__)
        for what in ("stack_trace", "nn_module_stack"):  # not of the operator that reads it
            if what in place.node.meta:
                back.meta[what] = place.node.meta[what]
        return back
    if not copy:
        return value
    with graph.inserting_after(value):
        clone = graph.call_function(torch.ops.aten.clone.default, (value,))
    clone.meta = dict(place.value.meta)
    return clone


def _program(
    program: ExportedProgram,
    specs: Sequence[OutputSpec],
    module: GraphModule,
    calls: Sequence[ModuleCallEntry],
    further: Sequence[Node],
) -> ExportedProgram:
    """The program with the graph of `module`, whose outputs are those of `specs` and then
    `further`. `calls`: how the program is called without these."""
    more = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(n.name), None) for n in further]
    inputs = list(program.graph_signature.input_specs)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(inputs, [*specs, *more]),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=_calls(calls, len(further)),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=list(program.verifiers),
    )


def _functional(
    original: ExportedProgram, program: ExportedProgram, own: int
) -> tuple[ExportedProgram, dict[int, int]]:
    """The tapped program in the form in which nothing is written to; the copies that were made of
    tapped values are not needed there, and what was tapped twice is one output. With the new
    positions of the outputs that have others."""
    try:
        made = program.run_decompositions({})
    except Exception as error:
        raise ExportFailure(
            f"the tapped program cannot be made functional: {innermost(error)}"
        ) from error
    users = _user_outputs(made)
    end = made.graph.output_node()
    others = len(end.args[0]) - (len(users) - own)
    kept = list(end.args[0])[:others]
    outputs = users[:own]
    positions: dict[int, int] = {}
    for at, value in enumerate(users[own:], start=own):
        source = _copied(value)
        if source.op != "call_function":
            source = value
        if source not in outputs:
            outputs.append(source)
        positions[at] = outputs.index(source)
    end.args = ((*kept, *outputs[own:]),)
    _bypass(made.graph, outputs[own:])
    made.graph.eliminate_dead_code()
    made.graph_module.recompile()
    specs = made.graph_signature.output_specs[:others]
    calls = original.module_call_graph
    return _program(made, specs, made.graph_module, calls, outputs[own:]), positions


def _copied(value: Any) -> Any:
    """The value that one is a copy of."""
    while value.target is torch.ops.aten.clone.default:
        value = value.args[0]
    return value


def _tap_of_output(program: ExportedProgram, output: int) -> Tap:
    """The tap of a program that passes have gone through, by what gives its output."""
    value = _copied(_user_outputs(program)[output])
    node = owner_of(value)
    if is_quantized_op(node, "dequantize"):
        return _tap(origin_of(node.args[0]), None, program, output)
    return _tap(node, element_of(value), program, output)


def _tap(node: Node, element: int | None, program: ExportedProgram, output: int) -> Tap:
    line = user_line(node.meta.get("stack_trace"))
    return Tap(
        node=node.name,
        op=op_name(node),
        value=_user_outputs(program)[output].name,
        output=output,
        element=element,
        module=module_of(node),
        source=None if line is None else f"{line.file}:{line.line}",
    )


def _user_outputs(program: ExportedProgram) -> list[Any]:
    results = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    return [
        value
        for spec, value in zip(specs, results, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]


def _calls(calls: Sequence[ModuleCallEntry], count: int) -> list[ModuleCallEntry]:
    """How the program is called, with more leaves at the end of what it returns."""
    return [
        ModuleCallEntry(call.fqn, with_more_outputs(call.signature, count))
        if call.fqn == "" and call.signature is not None
        else call
        for call in calls
    ]


def with_more_outputs(signature: ModuleCallSignature, count: int) -> ModuleCallSignature:
    """The signature of a program that returns `count` further leaves, in a tuple with its own."""
    spec = signature.out_spec
    returned = pytree.tree_unflatten([0] * spec.num_leaves, spec)
    own = returned if type(returned) is tuple else (returned,)
    return replace(
        signature,
        # Without names: passes rename values, and torch checks only names.
        outputs=[*signature.outputs, *(TensorArgument("") for _ in range(count))],
        out_spec=pytree.tree_flatten((*own, *([0] * count)))[1],
    )
