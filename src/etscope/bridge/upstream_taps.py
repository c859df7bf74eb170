"""Taps as ExecuTorch's `intermediate_output_tap` has them: marks in a program, which keep a value
out of delegates, and which nodes that reduce it replace after lowering.

They are not built on `bridge.taps`: that copies the program and returns whole values, while
here the caller's program is changed, marks must be found again by `find_tap_nodes` in each dialect,
and statistics are computed by nodes that are put in after the delegates have been cut out.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.library import Library
from torch.utils import _pytree as pytree

from etscope.bridge.fx import op_name
from etscope.bridge.programs import program_buffer
from etscope.bridge.taps import tensors_of, with_more_outputs
from etscope.bridge.tensors import numpy_value
from etscope.errors import EtscopeWarning, UsageError

if TYPE_CHECKING:
    import pandas as pd

EmitFn = Callable[[Graph, Node], Node]
EagerFn = Callable[[torch.Tensor], torch.Tensor]
NodeSelector = Callable[[Node], bool]


# -- reducers


@dataclass(frozen=True)
class StatReducer:
    """A reduction of a tapped value.

    name: the name in the mark of a tap until `strip_taps_`. fields: names of the elements of the
    result, which has one dimension; empty when it is the value itself. emit: adds nodes that
    compute the result of a node to an edge program, and returns the last of them. eager: the same
    in PyTorch.
    """

    name: str
    fields: tuple[str, ...]
    emit: EmitFn
    eager: EagerFn


def get_reducer(name_or_reducer: str | StatReducer) -> StatReducer:
    """Return the reducer of that name; a reducer is returned, and known by its name from now on.

    Raises `UsageError` for an unknown name, and for another reducer with the name of a built-in
    one.
    """
    if isinstance(name_or_reducer, StatReducer):
        reducer = name_or_reducer
        if _BUILT_IN.get(reducer.name, reducer) is not reducer:
            raise UsageError(f"{reducer.name!r} is the name of a built-in reducer")
        _KNOWN[reducer.name] = reducer
        return reducer
    if name_or_reducer not in _KNOWN:
        raise UsageError(
            f"unknown reducer {name_or_reducer!r}", hint=f"reducers: {', '.join(_KNOWN)}"
        )
    return _KNOWN[name_or_reducer]


_FIELDS = (
    "min", "max", "mean", "abs_max", "abs_mean", "std", "rms", "l1_norm", "l2_norm", "nan_count",
    "inf_count", "zero_count", "p99_abs",
)  # fmt: skip


def _large_rank(numel: int) -> int:
    """Return the rank of p99_abs among the magnitudes, the largest being of rank 1: a hundredth of
    them is at least as large."""
    return max(1, -(-numel // 100))


def _statistics(value: torch.Tensor) -> torch.Tensor:
    """Return the 13 statistics in float32. std is of the population, sqrt(|E[x²] - E[x]²|)."""
    x = value.detach().to(torch.float32)
    magnitudes, squares = x.abs(), x * x
    mean, mean_square = x.mean(), squares.mean()
    total_square = squares.sum()
    rank = _large_rank(x.numel())
    return torch.stack(
        [
            x.amin(),
            x.amax(),
            mean,
            magnitudes.amax(),
            magnitudes.mean(),
            (mean_square - mean * mean).abs().sqrt(),
            mean_square.sqrt(),
            magnitudes.sum(),
            total_square.sqrt(),
            x.isnan().sum(dtype=torch.float32),
            x.isinf().sum(dtype=torch.float32),
            (x == 0).sum(dtype=torch.float32),
            torch.topk(magnitudes.reshape(-1), rank).values[rank - 1],
        ]
    )


def _emit_statistics(graph: Graph, value: Node) -> Node:
    """Add nodes for the same with operators that have portable kernels."""
    aten = ops.edge.aten

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        return graph.call_function(target, args, kwargs)

    def total(x: Node) -> Node:
        return call(aten.sum.dim_IntList, x, [])

    def count(mask: Node) -> Node:
        return total(call(aten._to_copy.default, mask, dtype=torch.float32))

    fake = value.meta["val"]
    rank = _large_rank(static_size(fake, value.name))
    x = value
    if fake.dtype is not torch.float32:
        x = call(aten._to_copy.default, value, dtype=torch.float32)
    magnitudes = call(aten.abs.default, x)
    squares = call(aten.mul.Tensor, x, x)
    mean, mean_square = call(aten.mean.default, x), call(aten.mean.default, squares)
    variance = call(aten.sub.Tensor, mean_square, call(aten.mul.Tensor, mean, mean))
    flat = call(aten.view_copy.default, magnitudes, [-1])
    largest = call(operator.getitem, call(aten.topk.default, flat, rank), 0)
    results = [
        call(aten.amin.default, x),
        call(aten.amax.default, x),
        mean,
        call(aten.amax.default, magnitudes),
        call(aten.mean.default, magnitudes),
        call(aten.sqrt.default, call(aten.abs.default, variance)),
        call(aten.sqrt.default, mean_square),
        total(magnitudes),
        call(aten.sqrt.default, total(squares)),
        count(call(aten.isnan.default, x)),
        count(call(aten.isinf.default, x)),
        count(call(aten.eq.Scalar, x, 0.0)),
        call(aten.select_copy.int, largest, 0, rank - 1),
    ]
    return call(aten.stack.default, results)


def static_size(value: torch.Tensor, name: str) -> int:
    """Return the number of elements; `UsageError` where it is not one positive number."""
    numel: Any = value.numel()
    if not isinstance(numel, int):
        raise UsageError(
            f"the statistics of {name} need a static shape, and it has {list(value.shape)}",
            hint="tap it with FULL_TENSOR",
        )
    if not numel:
        raise UsageError(f"{name} has no elements to make statistics of")
    return numel


FULL_TENSOR = StatReducer(
    "FULL_TENSOR", (), lambda _, value: value, lambda value: value.detach().clone()
)
STATS = StatReducer("STATS", _FIELDS, _emit_statistics, _statistics)

_BUILT_IN = {reducer.name: reducer for reducer in (FULL_TENSOR, STATS)}
_KNOWN = dict(_BUILT_IN)


# -- selectors


def select_all_call_function(exclude: tuple[str, ...] = ("getitem",)) -> NodeSelector:
    """Select all nodes that call a function, except those with a name in `exclude`."""

    def selects(node: Node) -> bool:
        names = {getattr(node.target, "__name__", ""), str(node.target)}
        return node.op == "call_function" and names.isdisjoint(exclude)

    return selects


def select_by_op_type(*op_targets: str) -> NodeSelector:
    """Select nodes by the ends of their operators' names: "aten.linear.default"."""
    _check_not_empty(op_targets, "an operator's name")

    def selects(node: Node) -> bool:
        return node.op == "call_function" and str(node.target).endswith(op_targets)

    return selects


def select_by_module_path(*patterns: str, output_only: bool = True) -> NodeSelector:
    """Select the nodes of modules with paths that fit one of these shell globs
    ("layers.*.attention").

    output_only: only the last nodes of each module, which no other node of it reads.
    """
    _check_not_empty(patterns, "a pattern")
    return _select_by_module(
        lambda path, _: any(fnmatchcase(path, pattern) for pattern in patterns), output_only
    )


def select_by_module_class(*class_names: str, output_only: bool = True) -> NodeSelector:
    """Select the nodes of modules of classes with one of these names, without their package
    ("Linear"). `output_only` as for `select_by_module_path`."""
    _check_not_empty(class_names, "a class's name")
    return _select_by_module(lambda _, name: name in class_names, output_only)


def select_any(*selectors: NodeSelector) -> NodeSelector:
    """Select the nodes that one of these selects; none without selectors."""
    return lambda node: any(selects(node) for selects in selectors)


def select_all(*selectors: NodeSelector) -> NodeSelector:
    """Select the nodes that all of these select; all nodes without selectors."""
    return lambda node: all(selects(node) for selects in selectors)


def select_not(selector: NodeSelector) -> NodeSelector:
    """Select the nodes that this one does not select."""
    return lambda node: not selector(node)


def module_frames(node: Node) -> list[tuple[str, str, str | None]]:
    """Return the modules around a node, the innermost last: key, path and class."""
    frames: list[tuple[str, str, str | None]] = []
    for key, frame in (node.meta.get("nn_module_stack") or {}).items():
        if not isinstance(frame, tuple):
            frames.append((key, str(frame), None))
            continue
        kind = frame[1] if len(frame) > 1 else None
        name = None if kind is None else getattr(kind, "__name__", str(kind).rpartition(".")[2])
        frames.append((key, str(frame[0]), name))
    return frames


def _select_by_module(fits: Callable[[str, str | None], bool], output_only: bool) -> NodeSelector:
    def selects(node: Node) -> bool:
        fitting = {key for key, path, name in module_frames(node) if fits(path, name)}
        if not fitting or not output_only:
            return bool(fitting)
        inside = {key for user in node.users for key, _, _ in module_frames(user)}
        return fitting.isdisjoint(inside)

    return selects


def _check_not_empty(given: tuple[str, ...], what: str) -> None:
    if not given:
        raise UsageError(f"a selector needs at least {what}")


# -- before lowering

TapRule = tuple[NodeSelector, str | StatReducer]

# A namespace of our own: ExecuTorch's operator may be registered in the same process.
_LIBRARY = Library("etscope", "FRAGMENT")
_LIBRARY.define("tap.Tensor(Tensor x, str reducer_name) -> Tensor")
_LIBRARY.impl(
    "tap.Tensor", lambda x, reducer_name: get_reducer(reducer_name).eager(x),
    "CompositeExplicitAutograd",
)  # fmt: skip
_NAME = "etscope.tap.Tensor"


@dataclass(frozen=True)
class TapSpec:
    """A tap.

    node_name, op_target: name and operator of the tapped node, at the time of tapping.
    output_index: the tap's position among the program's flat outputs. reducer_name, fields: name
    and fields of the reducer. stack_trace, module_path, module_class: the node's stack trace and
    its innermost module; None if the program has none.
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

    The program is lowered with marks in it that have no kernel: `strip_taps_` afterwards.
    A node with several values is tapped at each one that is used.

    Raises `UsageError` (a `ValueError`) for rules that are empty or select nothing (a warning
    without `error_on_empty`), and for statistics of a value without a static shape.
    """
    given: Any = [(select_all_call_function(), STATS)] if rules is None else rules
    if isinstance(given, tuple) and len(given) == 2 and callable(given[0]):
        given = [given]
    if not given:
        raise UsageError("rules that say what to tap are missing")
    pairs = [(selects, get_reducer(reducer)) for selects, reducer in given]
    wanted = [  # found before marks are put in
        (node, value, reducer)
        for node in ep.graph.nodes
        if node.op == "call_function" and not _is_tap(node)
        if (reducer := next((one for selects, one in pairs if selects(node)), None)) is not None
        for _, value in tensors_of(node)
    ]
    added: list[Node] = []
    specs: list[TapSpec] = []
    own = sum(one.kind is OutputKind.USER_OUTPUT for one in ep.graph_signature.output_specs)
    for node, value, reducer in wanted[:max_taps]:
        frames = module_frames(node)
        _, path, kind = frames[-1] if frames else (None, None, None)
        specs.append(
            TapSpec(
                node_name=value.name,
                op_target=op_name(node),
                output_index=own + len(added),
                reducer_name=reducer.name,
                fields=reducer.fields,
                stack_trace=node.meta.get("stack_trace"),
                module_path=path,
                module_class=kind,
            )
        )
        added.append(_mark(ep, value, reducer))
    if not added:
        message = "no rule selects a node of the program that computes a tensor"
        if error_on_empty:
            raise UsageError(message, hint="look at the nodes: print(ep.graph)")
        warnings.warn(message, EtscopeWarning, stacklevel=2)
        return ep, []
    _add_outputs(ep, added)
    return ep, specs


def _mark(program: ExportedProgram, value: Node, reducer: StatReducer) -> Node:
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
    """Make nodes of the program outputs of it, after its own."""
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
    """True if a node is a tap of an exported program."""
    return n.op == "call_function" and n.target is torch.ops.etscope.tap.Tensor


def find_tap_nodes(gm: GraphModule) -> list[Node]:
    """Return the taps in a graph of any dialect."""
    return [node for node in gm.graph.nodes if _is_tap(node)]


def _is_tap(node: Node) -> bool:
    return node.op == "call_function" and (is_tap_node(node) or _NAME in str(node.target))


def strip_taps_(edge_manager: Any) -> None:
    """Replace all taps of an `EdgeProgramManager` by nodes that compute the reducers: after the
    delegates have been cut out, before `to_executorch()`."""
    for method in edge_manager.methods:
        program: ExportedProgram = edge_manager.exported_program(method)
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
            continue
        specs = program.graph_signature.output_specs
        for at, spec in enumerate(specs):
            if isinstance(spec.arg, TensorArgument) and spec.arg.name in renamed:
                arg = TensorArgument(renamed[spec.arg.name])
                specs[at] = OutputSpec(spec.kind, arg, spec.target)
        graph.eliminate_dead_code()
        program.graph_module.recompile()


# -- tapped values ahead of time and at run time, side by side


def tap_compare(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    partitioner: list[Any] | None = None,
    *,
    rules: Sequence[TapRule] | TapRule | None = None,
    error_on_empty: bool = True,
) -> tuple[pd.DataFrame, list[TapSpec]]:
    """Export a model with taps, lower it with `partitioner`, run it here, and compare the taps with
    the exported program's: see `compare_aot_runtime_dataframe`.

    rules, error_on_empty: see `tap_intermediate_outputs_`.
    """
    from executorch.runtime import Runtime, Verification

    program = torch.export.export(model, example_inputs, strict=True)
    program, specs = tap_intermediate_outputs_(program, rules, error_on_empty=error_on_empty)
    copies = pytree.tree_map_only(torch.Tensor, torch.clone, example_inputs)
    with torch.no_grad():
        expected = pytree.tree_leaves(program.module()(*copies))
        expected = [v.clone() if isinstance(v, torch.Tensor) else v for v in expected]
    edge = to_edge_transform_and_lower(program, partitioner=partitioner or [])
    strip_taps_(edge)
    buffer = program_buffer(edge.to_executorch())
    loaded = Runtime.get().load_program(buffer, verification=Verification.Minimal)
    actual = loaded.load_method("forward").execute(pytree.tree_leaves(example_inputs))
    return compare_aot_runtime_dataframe(specs, expected, list(actual)), specs


def compare_aot_runtime_dataframe(
    specs: Sequence[TapSpec], aot_flat: Sequence[Any], rt_flat: Sequence[Any]
) -> pd.DataFrame:
    """Make a row for each tap: PyTorch's values (`aot_flat`, the flat outputs of the tapped
    program) and the runtime's (`rt_flat`).

    Columns: node_name, module_path, module_class, op_target, reducer_name, output_index; then
    "aot_<field>" and "rt_<field>" for each field of the reducer, or for whole tensors sqnr_db
    (signal is the runtime's value: 20 log10(|rt| / |rt - aot|)), aot_numel and rt_numel.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for spec in specs:
        aot, runtime = _floats(aot_flat[spec.output_index]), _floats(rt_flat[spec.output_index])
        row: dict[str, Any] = {
            "node_name": spec.node_name,
            "module_path": spec.module_path,
            "module_class": spec.module_class,
            "op_target": spec.op_target,
            "reducer_name": spec.reducer_name,
            "output_index": spec.output_index,
        }
        rows.append(row)
        if spec.reducer_name == FULL_TENSOR.name:
            row["sqnr_db"] = float("nan")  # where the two differ in size, or are empty
            if len(aot) == len(runtime) and len(aot):
                signal, noise = np.linalg.norm(runtime), np.linalg.norm(runtime - aot)
                with np.errstate(divide="ignore", invalid="ignore"):
                    row["sqnr_db"] = float(20 * np.log10(signal / noise))
            row["aot_numel"], row["rt_numel"] = len(aot), len(runtime)
            continue
        names = spec.fields or tuple(f"v{at}" for at in range(max(len(aot), len(runtime))))
        for at, name in enumerate(names):
            row[f"aot_{name}"] = aot[at] if at < len(aot) else float("nan")
            row[f"rt_{name}"] = runtime[at] if at < len(runtime) else float("nan")
    frame: pd.DataFrame = pd.DataFrame(rows)
    return frame


def _floats(value: Any) -> Any:
    """Return the numbers of an output, flat, in float64."""
    leaves = [
        np.asarray(numpy_value(leaf), np.float64).reshape(-1)
        for leaf in pytree.tree_leaves(value)
        if leaf is not None
    ]
    return np.concatenate(leaves) if leaves else np.empty(0)
