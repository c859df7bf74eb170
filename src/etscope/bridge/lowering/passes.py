"""Passes by name: `export(passes=)`. Each keeps the outputs of a program up to rounding, and one
that finds nothing to change says so.

Some rewrite exported programs before they are lowered. Those of the lowering itself rewrite the
edge program before a backend takes its part, or are options of ExecuTorch's own lowering.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from executorch.backends.transforms.fuse_cascaded_transpose_or_permute_ops import (
    FuseCascadedTransposeOrPermuteOps,
)
from executorch.backends.transforms.utils import create_constant_placeholder
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult
from executorch.exir.passes.constant_prop_pass import (
    create_constant_nodes_and_return_specs,
    get_constant_placeholder_dict,
    get_propagated_const_tensor_dict,
)
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from etscope.analysis.program.correlate import AFTER_PASSES
from etscope.bridge.failures import innermost
from etscope.bridge.lowering.loops import Loop
from etscope.bridge.reference.reference import writes_in_place
from etscope.errors import ExportFailure
from etscope.model.graph import stem

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
        _inline_attention(program, node)
    program.graph.eliminate_dead_code()
    return len(found)


def _inline_attention(program: ExportedProgram, node: Node) -> None:
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

    _inline(program, node, attention, list(tensors.values()))


def _inline(
    program: ExportedProgram, node: Node, function: Callable[..., Tensor], tensors: Sequence[Node]
) -> None:
    """Replace a node by the operators of a function of the values of other nodes."""
    fakes = [one.meta["val"] for one in tensors]
    with fakes[0].fake_mode:
        traced = make_fx(function, tracing_mode="real")(*fakes)
    traced.graph.eliminate_dead_code()
    replaced: dict[Node, Any] = dict(
        zip(traced.graph.find_nodes(op="placeholder"), tensors, strict=True)
    )
    added = []
    with program.graph.inserting_before(node):
        for one in traced.graph.nodes:
            if one.op != "call_function":
                continue
            while one.target in _SHAPED and getattr(one.args[0], "target", None) in _SHAPED:
                one.args = (one.args[0].args[0], *one.args[1:])
            if one.target in (*_SHAPED, *_ORDERED) and _is_unchanged(one):
                replaced[one] = replaced[one.args[0]]
                continue
            made = program.graph.node_copy(one, lambda old: replaced[old])
            where = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")
            made.meta.update({key: node.meta[key] for key in where if key in node.meta})
            replaced[one] = made
            added.append(made)
    node.replace_all_uses_with(replaced[traced.graph.output_node().args[0]])
    program.graph.erase_node(node)
    _folded(program, added)  # what does not depend on the inputs, such as masks


_SHAPED = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_ORDERED = (torch.ops.aten.expand.default, torch.ops.aten.permute.default)


def _is_unchanged(node: Node) -> bool:
    one, other = node.meta["val"], node.args[0].meta["val"]
    return bool((one.shape, one.stride()) == (other.shape, other.stride()))


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


# -- loops


def batch_loops(program: ExportedProgram) -> int:
    """Compute the steps of an unrolled loop at once, if they are alike and no step reads the result
    of the one before: their pieces, weights and numbers as one more dimension."""
    weights, found = get_constant_placeholder_dict(program), 0
    for node in list(program.graph.nodes):
        try:
            loop = Loop(node, weights)
            _inline(program, node, loop.computed, loop.tensors)
        except (RuntimeError, TypeError, ValueError):  # steps that differ; operators without vmap
            continue
        found += 1
    program.graph.eliminate_dead_code()
    return found


# -- norms


def fold_batch_norms(program: ExportedProgram) -> int:
    """Fold batch norms into the weights of the convolution after each, if it has no padding: at a
    border the norm's shift would be missing."""
    aten, found = torch.ops.aten, 0
    constants = get_constant_placeholder_dict(program)
    for node in list(program.graph.nodes):
        reader = next(iter(node.users), None)
        is_norm = node.target is aten.batch_norm.default and len(node.users) == 1
        if not is_norm or reader is None or reader.target not in _CONVOLUTIONS:
            continue
        args = (*reader.args, *(None, 1, 0)[len(reader.args) - 2 :])
        padding = args[4] if isinstance(args[4], (list, tuple)) else [args[4]]
        tensors = [one for one in (*node.args[1:5], args[1], args[2]) if one is not None]
        if reader.args[0] is not node or not all(side == 0 for side in padding):
            continue
        if len(tensors) < _TENSORS or not all(one in constants for one in tensors):
            continue
        _fold_norm(program, node, reader, constants)
        found += 1
    program.graph.eliminate_dead_code()
    return found


_TENSORS = 5  # weight, bias, mean and variance of a norm, and a kernel
_CONVOLUTIONS = (torch.ops.aten.conv1d.default, torch.ops.aten.conv2d.default)


def _fold_norm(
    program: ExportedProgram, norm: Node, reader: Node, constants: Mapping[Node, Tensor]
) -> None:
    """Give a convolution the scale and the shift of the norm that it reads."""
    weight, shift, mean, variance = (constants[one].detach() for one in norm.args[1:5])
    scale = weight / torch.sqrt(variance + norm.args[7])
    moved = shift - mean * scale
    kernel = constants[reader.args[1]].detach()
    groups = reader.args[6] if len(reader.args) > 6 else 1
    channels = scale.view(groups, 1, -1).expand(groups, len(kernel) // groups, -1)
    added = moved.view(groups, 1, -1).expand_as(channels).reshape(len(kernel), -1)
    flat = kernel.flatten(2).sum(2)
    bias = (flat * added).sum(1)
    if len(reader.args) > 2 and reader.args[2] is not None:
        bias = bias + constants[reader.args[2]].detach()
    sizes = (len(kernel), -1, *[1] * (kernel.dim() - 2))
    values = {"weight": kernel * channels.reshape(sizes), "bias": bias}
    with program.graph.inserting_before(next(iter(program.graph.nodes))):
        made = [
            create_constant_placeholder(
                program,
                program.graph,
                f"p_{reader.name}_folded_{name}",
                InputKind.PARAMETER,
                torch.nn.Parameter(value.contiguous(), requires_grad=False),
            )
            for name, value in values.items()
        ]
    reader.args = (norm.args[0], *made, *reader.args[3:])


PASSES: Mapping[str, Rewrite] = {
    "fuse_sdpa": fuse_sdpa,
    "fold_constants": fold_constants,
    "fold_batch_norms": fold_batch_norms,
    "batch_loops": batch_loops,
}


# -- Passes of the lowering itself: rewrites of the edge program, when operators are decomposed and
# before a backend takes its part, and options of ExecuTorch's own lowering.

# Changes the edge program, which these partitioners take next; returns the number of changes.
EdgeRewrite = Callable[[ExportedProgram, Sequence[Partitioner]], int]

KEEP_LINEAR, REINPLACE = "keep_linear", "reinplace"
# The operators that ExecuTorch's program has where these two did something.
_RESULTS = {KEEP_LINEAR: "linear", REINPLACE: "index_put_"}


@dataclass(eq=False)
class EdgePasses:
    """Passes to apply while programs are lowered by these partitioners.

    Names of other passes are left out. changes: what each changed so far.
    """

    names: Sequence[str]
    partitioners: Sequence[Partitioner]
    changes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.names = [one for one in self.names if one in EDGE_PASSES or one in _RESULTS]

    @property
    def transforms(self) -> list[ExportedProgramPassBase]:
        """The rewrites, for `to_edge_transform_and_lower(transform_passes=)`."""
        return [_Transform(self, name) for name in self.names if name in EDGE_PASSES]

    def compile_config(self, **fields: Any) -> EdgeCompileConfig:
        """The options of the conversion to the edge dialect, with the passes' fields."""
        preserved = [torch.ops.aten.linear.default] if KEEP_LINEAR in self.names else []
        return EdgeCompileConfig(**fields, preserve_ops=preserved)

    def backend_config(self, config: ExecutorchBackendConfig) -> ExecutorchBackendConfig:
        """The options of `to_executorch`, with what the passes need."""
        return replace(config, run_reinplace_pass=REINPLACE in self.names)

    def check(self, program: ExecutorchProgramManager) -> None:
        """Raise `ExportFailure` for a pass that had nothing to change in the lowered methods, or
        that made an operator without a kernel.
        """
        nodes = [
            node
            for method in program.methods
            for node in program.exported_program(method).graph.nodes
            if node.op == "call_function"
        ]
        if REINPLACE in self.names:
            _check_in_place([node for node in nodes if _operator(node) == _RESULTS[REINPLACE]])
        found = {_operator(node) for node in nodes}
        for name in self.names:
            if not (self.changes[name] or _RESULTS.get(name) in found):
                raise ExportFailure(f"the pass {name} finds nothing to change in this model")

    def keep_in(self, record: Any) -> None:
        """Replace the edge programs of an `ETRecord` by the programs after the rewrites, whose
        nodes run.
        """
        if not self.transforms:
            return
        graphs = record.graph_map or {}
        prefix = f"{AFTER_PASSES}/"
        after = {
            name.removeprefix(prefix): one
            for name, one in graphs.items()
            if name.startswith(prefix)
        }
        record.edge_dialect_program = after if len(after) > 1 else next(iter(after.values()))
        record.graph_map = {k: v for k, v in graphs.items() if not k.startswith(prefix)} or None


class _Transform(ExportedProgramPassBase):  # type: ignore[misc]
    """One of `EDGE_PASSES` for ExecuTorch's manager of passes, which counts its changes."""

    def __init__(self, passes: EdgePasses, name: str) -> None:
        self.passes, self.name = passes, name

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        changes = EDGE_PASSES[self.name](exported_program, self.passes.partitioners)
        exported_program.graph.eliminate_dead_code()
        exported_program.graph.lint()
        exported_program.graph_module.recompile()
        self.passes.changes[self.name] += changes
        return ExportedProgramPassResult(exported_program, bool(changes))


def _operator(node: Node) -> str:
    """The operator's name without namespace and overload: "index_put_"."""
    return str(getattr(getattr(node.target, "_schema", None), "name", "")).rpartition("::")[2]


def _check_in_place(nodes: Sequence[Node]) -> None:
    """Raise `ExportFailure` for an index_put_ that the runtime does not take: it aborts on some of
    them (ExecuTorch 1.5, kernels/portable/cpu/op_index_put.cpp)."""
    for node in nodes:
        target, indices, values = node.args[:3]
        given = [one for one in indices if one is not None]
        shape = list(target.meta["val"].shape)
        if len(given) == 1 and given[0].meta["val"].dim() == 1:
            shape[list(indices).index(given[0])] = given[0].meta["val"].shape[0]
            if list(values.meta["val"].shape) == shape:
                continue
        raise ExportFailure(
            "the pass reinplace does not fit this model: the kernel of index_put_ takes one index "
            "of one dimension, and values of the shape of what they replace",
            hint="write with `index_copy_`, in values of as many dimensions as the buffer",
        )


# -- copies


# Operators, by `stem`, that give the values that they read where the type is the same.
_COPIES = frozenset(
    {"alias", "clone", "clone_dim_order", "detach", "expand", "lift_fresh", "repeat", "slice",
     "squeeze", "to", "to_dim_order", "unsqueeze", "view"}
)  # fmt: skip


def remove_dead_copies(program: ExportedProgram, partitioners: Sequence[Partitioner] = ()) -> int:
    """Replace copies by the value itself if type, shape and layout are the same.

    Copies stay if an output needs them: to be separate from an input or a weight, or from another
    output of the same value.
    """
    outputs = set(program.graph.output_node().all_input_nodes)
    found = 0
    for node in program.graph.nodes:
        if stem(_operator(node)) not in _COPIES or not isinstance(node.args[0], Node):
            continue
        source = node.args[0]
        values = source.meta.get("val"), node.meta.get("val")
        if not all(isinstance(value, torch.Tensor) for value in values):
            continue
        if len({(one.dtype, one.shape, one.stride()) for one in values}) > 1:
            continue
        if node in outputs and (source.op == "placeholder" or source in outputs):
            continue
        node.replace_all_uses_with(source)
        outputs = {source if one is node else one for one in outputs}
        found += 1
    return found


# -- transposes


def remove_transposes(program: ExportedProgram, partitioners: Sequence[Partitioner] = ()) -> int:
    """Remove permutes that undo each other, and merge two in a row, by ExecuTorch's
    `FuseCascadedTransposeOrPermuteOps`.
    """
    remove_dead_copies(program)  # that stand between two of them
    fuse, module = FuseCascadedTransposeOrPermuteOps(), program.graph_module
    before = len(list(_permutes(program)))
    while fuse.apply_inplace(module):  # a chain of several
        module.graph.eliminate_dead_code()
    return before - len(list(_permutes(program)))


def _permutes(program: ExportedProgram) -> Iterator[Node]:
    return (n for n in program.graph.nodes if stem(_operator(n)) in ("permute", "transpose"))


# -- quantized values


# Operators, by `stem`, that give elements of the one value that they read, whatever their type.
_MOVING = frozenset(
    {"alias", "clone", "clone_dim_order", "expand", "flip", "index_select", "permute",
     "pixel_shuffle", "pixel_unshuffle", "repeat", "select", "slice", "squeeze", "t",
     "to_dim_order", "transpose", "unsqueeze", "upsample_nearest2d", "view"}
)  # fmt: skip


def cancel_qdq(program: ExportedProgram, partitioners: Sequence[Partitioner] = ()) -> int:
    """Keep a value in int8 if it is dequantized, at most moved, and quantized again to the same
    numbers.

    What a backend takes in between does not change: backends recognise int8 operators by the nodes
    around them that dequantize and quantize.
    """
    taken = _taken(program, partitioners)
    found = 0
    for node in list(program.graph.nodes):
        if not _operator(node).startswith("quantize_per_"):
            continue
        moving: list[Node] = []
        giver = node.args[0]
        while (
            stem(_operator(giver)) in _MOVING
            and giver.name not in taken
            and isinstance(giver.args[0], Node)
            and len(giver.users) == 1
        ):
            moving.insert(0, giver)
            giver = giver.args[0]
        # Both have one scale, zero point, range and type of numbers.
        undoes = _operator(giver) == f"de{_operator(node)}" and node.args[1:] == giver.args[1:]
        if not undoes or (moving and "per_tensor" not in _operator(node)):
            continue
        value = giver.args[0]
        for one in moving:
            one.args = (value, *one.args[1:])
            args = torch.fx.map_arg(one.args, lambda used: used.meta["val"])
            kwargs = torch.fx.map_arg(one.kwargs, lambda used: used.meta["val"])
            with args[0].fake_mode:
                one.meta["val"] = one.target(*args, **kwargs)
            value = one
        node.replace_all_uses_with(value)
        found += 1
    return found


def _taken(program: ExportedProgram, partitioners: Sequence[Partitioner]) -> set[str]:
    """The names of the nodes that the backends will take."""
    found: set[str] = set()
    for one in partitioners:
        tagged = one.partition(program).tagged_exported_program
        found |= {node.name for node in tagged.graph.nodes if "delegation_tag" in node.meta}
        for node in program.graph.nodes:
            node.meta.pop("delegation_tag", None)
    return found


EDGE_PASSES: Mapping[str, EdgeRewrite] = {
    "remove_dead_copies": remove_dead_copies,
    "remove_transposes": remove_transposes,
    "cancel_qdq": cancel_qdq,
}
