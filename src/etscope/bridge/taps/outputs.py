"""Taps as ExecuTorch's `intermediate_output_tap` has them: marks in a program, which keep a value
out of delegates, and which nodes that reduce it replace after lowering."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node
from torch.library import Library

from etscope.bridge.taps.nodes import op_name, tensors_of
from etscope.bridge.taps.reducers import STATS, StatReducer, get_reducer, static_size
from etscope.bridge.taps.selectors import NodeSelector, module_frames, select_all_call_function
from etscope.bridge.taps.taps import with_more_outputs
from etscope.errors import EtscopeWarning, UsageError

TapRule = tuple[NodeSelector, str | StatReducer]

# A namespace of our own: ExecuTorch's operator may be registered in the same process.
_LIBRARY = Library("etscope", "FRAGMENT")
_LIBRARY.define("tap.Tensor(Tensor x, str reducer_name) -> Tensor")
_NAME = "etscope.tap.Tensor"


def _tap(x: torch.Tensor, reducer_name: str) -> torch.Tensor:
    return get_reducer(reducer_name).eager(x)


_LIBRARY.impl("tap.Tensor", _tap, "CompositeExplicitAutograd")


@dataclass(frozen=True)
class TapSpec:
    """A tap.

    node_name, op_target: the node and its operator, as of when it was tapped. output_index:
    position among the flat outputs of the program. reducer_name, fields: of the reducer.
    stack_trace, module_path, module_class: of the node, the module being the innermost; None where
    the program does not tell.
    """

    node_name: str
    op_target: str
    output_index: int
    reducer_name: str
    fields: tuple[str, ...]
    stack_trace: str | None = None
    module_path: str | None = None
    module_class: str | None = None


def tap_intermediate_outputs_(
    ep: ExportedProgram,
    rules: Sequence[TapRule] | TapRule | None = None,
    *,
    max_taps: int | None = None,
    error_on_empty: bool = True,
) -> tuple[ExportedProgram, list[TapSpec]]:
    """Make values of a program outputs of it, after its own; the program itself is changed.

    rules: pairs of a selector and a reducer (or its name), or one such pair; the first that selects
        a node decides. By default STATS of all nodes. max_taps: no more than these, the first ones.

    The program is lowered with marks in it, for which there is no kernel: `strip_taps_` afterwards.
    A node with several values is tapped at each one that is used.

    Raises `UsageError` (a `ValueError`) for rules that are empty or select nothing (a warning
    without `error_on_empty`), and for statistics of what has no static shape.
    """
    pairs = _pairs(rules)
    added: list[Node] = []
    specs: list[TapSpec] = []
    own = sum(one.kind is OutputKind.USER_OUTPUT for one in ep.graph_signature.output_specs)
    for node, value in _candidates(ep):
        reducer = next((reducer for selects, reducer in pairs if selects(node)), None)
        if reducer is None:
            continue
        if max_taps is not None and len(added) >= max_taps:
            break
        specs.append(_spec(node, value, reducer, own + len(added)))
        added.append(_marked(ep, value, reducer))
    if not added:
        message = "no rule selects a node of the program that computes a tensor"
        if error_on_empty:
            raise UsageError(message, hint="look at the nodes: print(ep.graph)")
        warnings.warn(message, EtscopeWarning, stacklevel=2)
        return ep, []
    _add_outputs(ep, added)
    return ep, specs


def _pairs(rules: Any) -> list[tuple[NodeSelector, StatReducer]]:
    if rules is None:
        rules = [(select_all_call_function(), STATS)]
    elif isinstance(rules, tuple) and len(rules) == 2 and callable(rules[0]):
        rules = [rules]
    if not rules:
        raise UsageError("there are no rules of what to tap")
    return [(selects, get_reducer(reducer)) for selects, reducer in rules]


def _candidates(program: ExportedProgram) -> list[tuple[Node, Node]]:
    """The nodes there are before taps are put in, each with each of its values."""
    return [
        (node, value)
        for node in program.graph.nodes
        if node.op == "call_function" and not _is_tap(node)
        for _, value in tensors_of(node)
    ]


def _spec(node: Node, value: Node, reducer: StatReducer, output: int) -> TapSpec:
    frames = module_frames(node)
    _, path, kind = frames[-1] if frames else (None, None, None)
    return TapSpec(
        node_name=value.name,
        op_target=op_name(node),
        output_index=output,
        reducer_name=reducer.name,
        fields=reducer.fields,
        stack_trace=node.meta.get("stack_trace"),
        module_path=path,
        module_class=kind,
    )


def _marked(program: ExportedProgram, value: Node, reducer: StatReducer) -> Node:
    fake = value.meta["val"]
    if reducer is STATS:
        static_size(fake, value.name)
    op = torch.ops.etscope.tap.Tensor
    with program.graph.inserting_after(value):
        mark = program.graph.call_function(op, (value, reducer.name))
    for what in ("from_node", "stack_trace", "nn_module_stack"):
        if what in value.meta:
            mark.meta[what] = value.meta[what]
    with torch.no_grad():
        mark.meta["val"] = op(fake, reducer.name)
    return mark


def _add_outputs(program: ExportedProgram, added: Sequence[Node]) -> None:
    end = program.graph.output_node()
    end.args = ((*end.args[0], *added),)
    program.graph_signature.output_specs.extend(
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in added
    )
    for entry in program.module_call_graph:
        if entry.fqn == "" and entry.signature is not None:
            entry.signature = with_more_outputs(entry.signature, len(added))
    program.graph_module.recompile()


# -- after lowering


def is_tap_node(n: Node) -> bool:
    """Whether a node is a tap of an exported program."""
    return n.op == "call_function" and n.target is torch.ops.etscope.tap.Tensor


def find_tap_nodes(gm: GraphModule) -> list[Node]:
    """The taps in a graph of any dialect."""
    return [node for node in gm.graph.nodes if _is_tap(node)]


def _is_tap(node: Node) -> bool:
    return node.op == "call_function" and (is_tap_node(node) or _NAME in str(node.target))


def strip_taps_(edge_manager: Any) -> None:
    """Put what computes the reducers in the place of all taps of an `EdgeProgramManager`: after
    the delegates have been cut out, before `to_executorch()`."""
    for method in edge_manager.methods:
        _strip(edge_manager.exported_program(method))


def _strip(program: ExportedProgram) -> None:
    graph = program.graph_module.graph
    renamed: dict[str, str] = {}
    for tap in find_tap_nodes(program.graph_module):
        value: Any = tap.args[0]
        before = set(graph.nodes)
        with graph.inserting_before(tap):
            result = get_reducer(str(tap.args[1])).emit(graph, value)
        for node in set(graph.nodes) - before:
            node.meta.setdefault("stack_trace", tap.meta.get("stack_trace"))
        tap.replace_all_uses_with(result)
        renamed[tap.name] = result.name
        graph.erase_node(tap)
    if not renamed:
        return
    specs = program.graph_signature.output_specs
    for at, spec in enumerate(specs):
        if isinstance(spec.arg, TensorArgument) and spec.arg.name in renamed:
            arg = TensorArgument(renamed[spec.arg.name])
            specs[at] = OutputSpec(spec.kind, arg, spec.target)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
