"""Passes of the lowering itself, by name: `export(passes=)`.

Rewrites of the edge program, when operators are decomposed and before a backend takes its part, and
options of ExecuTorch's own lowering. Each keeps the outputs of a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from executorch.backends.transforms.fuse_cascaded_transpose_or_permute_ops import (
    FuseCascadedTransposeOrPermuteOps,
)
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult
from torch.export import ExportedProgram
from torch.fx import Node

from etscope.analysis.program.correlate import AFTER_PASSES
from etscope.errors import ExportFailure
from etscope.model.graph import stem

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
        """The options of the conversion to the edge dialect, with these fields."""
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
