"""Taps: intermediate values of an exported program made outputs of it, after its own ones.

A value that is an output leaves each delegate that computes it, and can be looked at on every
backend. A tap has one side effect: a tapped operator is not fused into the next.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
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

from etscope.analysis.program.source_location import module_path, user_line
from etscope.analysis.selector_fields import fields_of_node
from etscope.bridge.failures import innermost
from etscope.bridge.fx import (
    as_graph_node,
    element_of,
    is_operation,
    op_name,
    owner_of,
    target_name,
)
from etscope.bridge.reference.reference import writes_in_place
from etscope.errors import EtscopeWarning, ExportFailure, MissingDataError, UsageError
from etscope.formats.etrecord.own_members import MethodTaps, Tap
from etscope.model.selector import Selector
from etscope.units import listed

_NAMES_SHOWN = 5  # in a message

# Operators that XNNPACK and its quantizer fuse with the operator before, in one int8 operator.
FUSED = ("relu", "hardtanh", "relu6", "clamp")
_ACTIVATIONS = frozenset(f"aten.{stem}{end}.default" for stem in FUSED for end in ("", "_"))
# Operators that hand their input on.
_IDENTITIES = frozenset(
    f"aten.{name}.default"
    for name in ("dropout", "feature_dropout", "contiguous", "detach", "detach_", "alias")
)
# Operators that hand a constant on; XNNPACK lowers no call that returns only its input.
_OF_CONSTANTS = frozenset(
    {"export.access_subclass_inner_tensor.default", "aten.lift_fresh_copy.default"}
)
# Operators that quantize numbers by scales that are computed from these, and that make them.
_DYNAMIC = frozenset(
    {
        *(
            f"torchao.{what}_affine.default"
            for what in ("choose_qparams", "quantize", "dequantize")
        ),
        *(
            f"quantized_decomposed.{what}"
            for step in ("quantize", "dequantize")
            for what in (f"{step}_per_tensor.tensor", f"{step}_per_token.default")
        ),
        "quantized_decomposed.choose_qparams.tensor",
        "quantized_decomposed.choose_qparams_symmetric.tensor",
        "quantized_decomposed.choose_qparams_per_token.default",
        "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        "quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default",
    }
)


@dataclass(frozen=True)
class TapPoint:
    """The value to take for a node: `value`, or a copy of `dequantize` that is made for the tap,
    because other users of that node belong to their own operators."""

    node: Node
    value: Node
    dequantize: Node | None = None


def tapped_programs(
    programs: Mapping[str, ExportedProgram], selectors: Sequence[str]
) -> tuple[dict[str, ExportedProgram], dict[str, MethodTaps]]:
    """Make the selected values additional outputs of a model's methods; return the programs and
    their taps. A program without selected nodes is returned unchanged.

    Raises `UsageError` for a selector that cannot be read, or that selects only nodes that cannot
    have a tap: nodes inside control flow, and nodes that compute no tensor. Raises
    `MissingDataError` for a selector that selects nothing in any method.
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
    """Complete the taps with the debug handles of their outputs in the edge programs."""
    completed = {}
    for method, one in taps.items():
        results = _user_outputs(edge[method]) if method in edge else []
        handles = []
        for tap in one.taps:
            value = results[tap.output] if tap.output < len(results) else None
            handle = value.meta.get("debug_handle") if isinstance(value, Node) else None
            handles.append(handle if isinstance(handle, int) else None)
        pairs = zip(one.taps, handles, strict=True)
        completed[method] = replace(one, taps=tuple(replace(t, handle=h) for t, h in pairs))
    return completed


# -- the selected nodes


def picked_nodes(
    programs: Mapping[str, ExportedProgram], selectors: Sequence[str]
) -> dict[str, set[str]]:
    """Return the names of the nodes to tap, by method. Each selector picks at least one."""
    # Elements of tuples belong to the node that makes them, and weights that are only dequantized
    # are not values of the model.
    nodes = {
        method: [
            node for node in program.graph.nodes if is_operation(node) and not _is_of_weights(node)
        ]
        for method, program in programs.items()
    }
    inside = [
        node
        for program in programs.values()
        for module in program.graph_module.modules()
        if isinstance(module, GraphModule) and module is not program.graph_module
        for node in module.graph.nodes
        if node.op == "call_function" and tensors_of(node)
    ]
    picked: dict[str, set[str]] = {method: set() for method in programs}
    for text in selectors:
        matches = Selector(text).matches
        matched = False
        useless: list[Node] = []
        for method, candidates in nodes.items():
            for node in candidates:
                if not matches(fields_of_node(as_graph_node(node))):
                    continue
                if tensors_of(node) and not _is_in_dynamic_layer(node):
                    picked[method].add(node.name)
                    matched = True
                else:
                    useless.append(node)
        hidden = [node.name for node in inside if matches(fields_of_node(as_graph_node(node)))]
        if hidden:
            why = (
                f"the tap {text!r} picks values inside of control flow "
                f"({listed(hidden, _NAMES_SHOWN)}), which cannot be outputs: a branch may not run, "
                "and a loop's body runs more than once"
            )
            if not matched:
                raise UsageError(why, hint="tap the result of the branch or loop, outside of it")
            warnings.warn(f"{why}; the others are tapped", EtscopeWarning, stacklevel=2)
        if not matched and useless:
            raise UsageError(
                f"the tap {text!r} picks only nodes without a separate value: "
                + listed([node.name for node in useless], _NAMES_SHOWN)
            )
        if not matched:
            raise _nothing_picked(text, [node for found in nodes.values() for node in found])
    return picked


def _nothing_picked(selector: str, nodes: Sequence[Node]) -> MissingDataError:
    tappable = [node for node in nodes if tensors_of(node) and not _is_in_dynamic_layer(node)]
    key, colon, word = selector.rpartition(":")
    key = key.rpartition(" ")[2].strip("(") if colon else "name"
    known = dict.fromkeys(
        text for node in tappable for text in fields_of_node(as_graph_node(node)).get(key, ())
    )
    word = word.strip("*? \"'()")
    near = get_close_matches(word, known, n=_NAMES_SHOWN, cutoff=0.4)
    near = near or [text for text in known if word and word in text]
    return MissingDataError(
        f"the tap {selector!r} picks no node of the exported program",
        hint="near it are: " + listed(near, _NAMES_SHOWN)
        if near
        else "its nodes are: " + listed([node.name for node in tappable], _NAMES_SHOWN),
    )


def tensors_of(node: Node) -> list[tuple[int | None, Node]]:
    """Return the tensors that a node computes, by element; of a tuple, the elements in use."""
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
        and not _is_in_dynamic_layer(node)
    )


def _is_of_weights(node: Node) -> bool:
    """True for a part of a quantized weight, for the weight as numbers, and for a constant."""
    name = target_name(node.target)
    if "dequantize_" not in name:
        return name in _OF_CONSTANTS
    quantized = node.args[0]
    return not isinstance(quantized, Node) or ".quantize_" not in target_name(quantized.target)


def _is_in_dynamic_layer(node: Node) -> bool:
    """True if a node quantizes the input of a layer by scales that the graph computes from it: the
    backend's operator begins before, and has no such value."""
    return target_name(node.target) in _DYNAMIC


# -- the value to take for a node


def tap_point_of(node: Node, value: Node) -> TapPoint:
    """Find the value to take for a selected node.

    Between a dequantization and the next quantization there is one operator of int8. Its value is
    the one after quantization; there is none within it.
    """
    same = source_of(node)
    if same is not node:
        node, value = owner_of(same), same
    if is_quantized_op(node, "quantize"):
        return _quantized_point(node, origin_of(node))
    if is_quantized_op(node, "dequantize"):
        quantize: Any = node.args[0]
        return _quantized_point(quantize, origin_of(quantize))
    at = value
    while True:
        quantizes = [user for user in at.users if is_quantized_op(user, "quantize")]
        if quantizes:
            if at is not value:
                warnings.warn(
                    f"{node.name} has no separate value in int8: it is one operator with "
                    f"{at.name}, which is tapped instead",
                    EtscopeWarning,
                    stacklevel=2,
                )
            return _quantized_point(quantizes[0], node if at is value else at)
        users = list(at.users)
        is_fused = any(is_quantized_op(used, "dequantize") for used in node.all_input_nodes)
        if not is_fused or len(users) != 1 or target_name(users[0].target) not in _ACTIVATIONS:
            return TapPoint(node, value)
        at = users[0]


def _quantized_point(quantize: Node, node: Node) -> TapPoint:
    back = [user for user in quantize.users if is_quantized_op(user, "dequantize")]
    return TapPoint(node, quantize, back[0]) if back else TapPoint(node, quantize)


def source_of(node: Node) -> Node:
    """Return the first node with the same value, before nodes that hand it on: it is not needed
    twice, and a delegate with only a copy in it cannot be lowered."""
    while is_identity(node):
        given: Any = node.args[0]
        if given.op != "call_function":
            return node
        node = given
    return node


def is_identity(node: Node) -> bool:
    """True if a node does nothing but hand its input on."""
    if node.op != "call_function":
        return False
    name = target_name(node.target)
    if name == "aten.clone.default":
        return not node.kwargs
    return name in _IDENTITIES and not ("dropout" in name and node.args[2])


def origin_of(quantize: Node) -> Node:
    """Return the node with the quantized value; for an input of the program, its quantization."""
    source = owner_of(quantize.args[0])
    return source if source.op == "call_function" else quantize


# -- the program with more outputs


def tapped(program: ExportedProgram, names: set[str]) -> tuple[ExportedProgram, MethodTaps]:
    """Make the values of the nodes of these names further outputs of a program.

    A program with nodes that write to their arguments is brought into the functional form, where
    values do not change: `relu_` becomes `relu`. The graph is a copy; weights are the program's.
    """
    writes = writes_in_place(program.graph_module)
    graph = Graph()
    copies: dict[Node, Node] = {}
    results: Any = graph.graph_copy(program.graph, copies)
    for node, copied in copies.items():
        copied.name = node.name  # also one that fx would not give: "input"
    points: dict[tuple[Node, int | None], TapPoint] = {}  # each value once, in order of execution
    for node in program.graph.nodes:
        for element, value in tensors_of(node) if node.name in names else ():
            point = tap_point_of(node, value)
            own_element = element if point.node is node else element_of(point.value)
            points.setdefault((point.node, own_element), point)
    model_outputs = _user_outputs(program)
    own = len(model_outputs)
    outputs: dict[Node, Node] = {}  # tapped value -> output
    further: list[Node] = []
    found: dict[tuple[Node, int | None], int] = {}
    for key, point in points.items():
        same = {point.value} if point.dequantize is None else set(point.value.users)
        known = next((at for at, value in enumerate(model_outputs) if value in same), None)
        if known is None:
            if point.value not in outputs:
                outputs[point.value] = _output(graph, copies, point, copy=writes)
                further.append(outputs[point.value])
            known = own + further.index(outputs[point.value])
        found[key] = known
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
    taps = []
    for output in found.values():  # described by the node that computes the output now
        value = _copied(_user_outputs(made)[moved.get(output, output)])
        node, element = owner_of(value), element_of(value)
        if is_quantized_op(node, "dequantize"):
            node, element = origin_of(node.args[0]), None
        taps.append(_tap(node, element, made, moved.get(output, output)))
    return made, MethodTaps(own, tuple(dict.fromkeys(taps)))


def _output(graph: Graph, copies: Mapping[Node, Node], point: TapPoint, *, copy: bool) -> Node:
    """Return the output for a tap in the copied graph; with `copy`, one that nothing else uses."""
    value = copies[point.value]
    source = point.dequantize
    if source is not None:
        with graph.inserting_after(copies[source]):
            back = graph.node_copy(source, copies.__getitem__)
        for what in ("stack_trace", "nn_module_stack"):  # not the reading operator's
            if what in point.node.meta:
                back.meta[what] = point.node.meta[what]
        return back
    if not copy:
        return value
    with graph.inserting_after(value):
        clone = graph.call_function(torch.ops.aten.clone.default, (value,))
    clone.meta = dict(point.value.meta)
    return clone


def _bypass(graph: Graph, tapped: Sequence[Node]) -> None:
    """Let the users of a copy of a tapped value read the value itself: a delegate with only copies
    of outputs of other delegates cannot be lowered."""
    ends = graph.output_node().all_input_nodes
    for value in tapped:
        for user in list(value.users):
            if is_identity(user) and user not in ends:
                user.replace_all_uses_with(value)
                graph.erase_node(user)


def _program(
    program: ExportedProgram,
    specs: Sequence[OutputSpec],
    module: GraphModule,
    calls: Sequence[ModuleCallEntry],
    further: Sequence[Node],
) -> ExportedProgram:
    """Make the program with the graph of `module`; its outputs are those in `specs` and then
    `further`. `calls`: its call signatures without these."""
    more = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(n.name), None) for n in further]
    inputs = list(program.graph_signature.input_specs)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(inputs, [*specs, *more]),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=[
            ModuleCallEntry(call.fqn, with_more_outputs(call.signature, len(further)))
            if call.fqn == "" and call.signature is not None
            else call
            for call in calls
        ],
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=list(program.verifiers),
    )


def with_more_outputs(signature: ModuleCallSignature, count: int) -> ModuleCallSignature:
    """Return the signature of a program with `count` further leaves, in a tuple with its own."""
    spec = signature.out_spec
    returned = pytree.tree_unflatten([0] * spec.num_leaves, spec)
    own = returned if type(returned) is tuple else (returned,)
    return replace(
        signature,
        # Without names: passes rename values, and torch checks only names.
        outputs=[*signature.outputs, *(TensorArgument("") for _ in range(count))],
        out_spec=pytree.tree_flatten((*own, *([0] * count)))[1],
    )


def _functional(
    original: ExportedProgram, program: ExportedProgram, own: int
) -> tuple[ExportedProgram, dict[int, int]]:
    """Bring the tapped program into the functional form, without writes; return it with the
    outputs that moved, old position -> new. Copies of tapped values are not needed there, and a
    value that was tapped twice becomes one output."""
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
    """Return the value that a chain of clones copies."""
    while value.target is torch.ops.aten.clone.default:
        value = value.args[0]
    return value


def _tap(node: Node, element: int | None, program: ExportedProgram, output: int) -> Tap:
    line = user_line(node.meta.get("stack_trace"))
    return Tap(
        node=node.name,
        op=op_name(node),
        value=_user_outputs(program)[output].name,
        output=output,
        element=element,
        module=module_path(as_graph_node(node)),
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
