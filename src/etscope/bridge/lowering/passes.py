"""Rewrites of exported programs before they are lowered, by name: `export(passes=)`.

Each keeps the outputs of a program up to rounding. One that finds nothing to change says so. Passes
of the lowering itself are in `edge_passes`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from executorch.exir.passes.constant_prop_pass import (
    create_constant_nodes_and_return_specs,
    get_constant_placeholder_dict,
    get_propagated_const_tensor_dict,
)
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from etscope.bridge.failures import innermost
from etscope.bridge.reference.reference import writes_in_place
from etscope.errors import ExportFailure

Rewrite = Callable[[ExportedProgram], int]  # changes the program; returns the number of changes


def rewritten(
    programs: Mapping[str, ExportedProgram], names: Sequence[str]
) -> dict[str, ExportedProgram]:
    """Return copies of a model's methods after these passes, in order; passes of the lowering are
    left out.

    Raises `ExportFailure` for a pass that has nothing to change in any method, or that fails.
    """
    found = {method: _copied(program) for method, program in programs.items()}
    for name in (one for one in names if one in PASSES):
        try:
            changes = sum(PASSES[name](program) for program in found.values())
            for program in found.values():
                program.graph.lint()
                program.graph_module.recompile()
        except Exception as error:
            raise ExportFailure(f"the pass {name} fails: {innermost(error)}") from error
        if not changes:
            raise ExportFailure(f"the pass {name} finds nothing to change in this model")
    return found


def _copied(program: ExportedProgram) -> ExportedProgram:
    """Return a copy with a separate graph and signature and the same tensors; without effects on
    arguments, so that a node can be replaced by its value."""
    if writes_in_place(program.graph_module):
        program = program.run_decompositions({})
    module = copy.deepcopy(program.graph_module)
    for old, new in zip(program.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # "input" would be renamed, as Python has a function of that name
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=dict(program.state_dict),
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=dict(program.constants),
        verifiers=list(program.verifiers),
    )


# -- constants


# Operators that quantize or dequantize: backends take them as pairs.
_QUANTIZING = ("quantized_decomposed", "torchao")


def fold_constants(program: ExportedProgram) -> int:
    """Compute what depends on weights and constants only, and keep the values in the program.
    Weights of quantized layers stay quantized."""
    return _folded(program, list(program.graph.nodes))


def _folded(program: ExportedProgram, nodes: Iterable[Node]) -> int:
    """Replace the nodes with known values by constants; return their number."""
    skipped = {
        node.target
        for node in program.graph.nodes
        if node.op == "call_function" and getattr(node.target, "namespace", "") in _QUANTIZING
    }
    if not program.graph_signature.user_inputs:
        return 0
    allowed, known = set(nodes), get_propagated_const_tensor_dict(program, skipped)
    inputs = get_constant_placeholder_dict(program)
    outputs = {*program.graph.output_node().all_input_nodes}
    values = {
        # What is computed of a parameter is a constant, and needs no gradient.
        node: value if node in inputs else value.detach()
        for node, value in known.items()
        # A constant may be no output.
        if node in inputs or (node in allowed and node not in outputs and isinstance(value, Tensor))
    }
    folded = [node for node in values if node not in inputs]
    if not folded:
        return 0
    used = {name for node in folded for name in node.all_input_nodes}
    values = {node: one for node, one in values.items() if node not in inputs or node in used}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    specs |= create_constant_nodes_and_return_specs(values, program)
    placeholders = program.graph.find_nodes(op="placeholder")
    program.graph_signature.input_specs = [specs[node.name] for node in placeholders]
    program.graph.eliminate_dead_code()
    return len(folded)


# -- attention


def fuse_sdpa(program: ExportedProgram) -> int:
    """Lower `scaled_dot_product_attention` to products and one softmax.

    PyTorch's own decomposition looks for rows of scores that are -inf throughout, by operators that
    no delegate takes (`torch.nn.functional._safe_softmax`). Here the mask adds a finite number, and
    a factor for each of its rows sets rows without keys to zero.
    """
    attention = torch.ops.aten.scaled_dot_product_attention.default
    found = program.graph.find_nodes(op="call_function", target=attention)
    for node in found:
        _inline(program, node)
    program.graph.eliminate_dead_code()
    return len(found)


def _inline(program: ExportedProgram, node: Node) -> None:
    """Replace a call of attention by the operators of `_attention`."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given.pop("dropout_p", 0.0):
        raise ExportFailure(f"{node.name} has dropout, which is for training")
    tensors = {name: one for name, one in given.items() if isinstance(one, Node)}
    options = {name: one for name, one in given.items() if name not in tensors}
    plain = {name: one for name, one in options.items() if one is not None}

    def attention(*values: Tensor) -> Tensor:
        return _attention(**dict(zip(tensors, values, strict=True)), **plain)

    fakes = [one.meta["val"] for one in tensors.values()]
    with fakes[0].fake_mode:
        traced = make_fx(attention, tracing_mode="real")(*fakes)
    traced.graph.eliminate_dead_code()
    replaced: dict[Node, Any] = dict(
        zip(traced.graph.find_nodes(op="placeholder"), tensors.values(), strict=True)
    )
    added = []
    with program.graph.inserting_before(node):
        for one in traced.graph.nodes:
            if one.op != "call_function":
                continue
            made = program.graph.node_copy(one, lambda old: replaced[old])
            where = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")
            made.meta.update({key: node.meta[key] for key in where if key in node.meta})
            replaced[one] = made
            added.append(made)
    node.replace_all_uses_with(replaced[traced.graph.output_node().args[0]])
    program.graph.erase_node(node)
    _folded(program, added)  # masks that do not depend on the inputs


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Attention as `torch.nn.functional.scaled_dot_product_attention`, in products of matrices,
    [batch, rows, columns], and one softmax. options: its scale and enable_gqa."""
    length, context, size = query.shape[-2], key.shape[-2], query.shape[-1]
    if options.get("enable_gqa"):
        key, value = (
            one.repeat_interleave(query.shape[-3] // one.shape[-3], dim=-3) for one in (key, value)
        )
    factor = options.get("scale", 1 / math.sqrt(size))
    heads = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    rows, columns, values = (
        # An expansion is a copy on the device, even to the same shape.
        (one if one.shape[:-2] == heads else one.expand(*heads, *one.shape[-2:])).reshape(
            -1, *one.shape[-2:]
        )
        for one in (query * factor, key, value)
    )
    scores = torch.bmm(rows, columns.transpose(1, 2))
    if is_causal:
        attn_mask = torch.ones(length, context, dtype=torch.bool).tril()
    if attn_mask is None:
        found = torch.bmm(scores.softmax(-1), values)
        return found.reshape(*heads, length, value.shape[-1])
    least = torch.finfo(query.dtype).min / 2  # a score added to it does not overflow
    if attn_mask.dtype == torch.bool:
        taken = attn_mask.to(query.dtype)
        bias = (taken - 1) * -least
        has_keys = taken.amax(-1, keepdim=True)
    else:
        bias = attn_mask.clamp(min=least)
        has_keys = (attn_mask.amax(-1, keepdim=True) > -math.inf).to(query.dtype)
    scores = scores.reshape(*heads, length, context) + bias
    weights = scores.softmax(-1).reshape(-1, length, context)
    found = torch.bmm(weights, values).reshape(*heads, length, value.shape[-1])
    # A row of a causal mask has at least its own key.
    return found if is_causal else found * has_keys


PASSES: Mapping[str, Rewrite] = {
    "fuse_sdpa": fuse_sdpa,
    "fold_constants": fold_constants,
}
