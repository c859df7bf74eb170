"""Graphs of `torch.fx` as nested objects: upstream's `executorch.devtools.debug_format.et_schema`.

Nodes are recognized by the names of their types and targets, so torch is not imported here.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from etscope.debug_format.base_schema import Node, OperatorGraph, OperatorNode, ValueNode
from etscope.errors import UsageError

__all__ = ["RESERVED_METADATA_ARG", "FXOperatorGraph"]


class RESERVED_METADATA_ARG(Enum):  # noqa: N801 - upstream's name
    """Keys of a node's metadata, and titles of TensorBoard's tables."""

    DEBUG_HANDLE = "debug_handle"
    MODULE_STACK = "nn_module_stack"
    SOURCE_FN_STACK = "source_fn_stack"
    MODULE_TYPE = "module_type"
    PROFILE_START_TIME = "profile_start_time"
    PROFILE_END_TIME = "profile_end_time"
    LOAD_START_TIME = "load_start_time"
    LOAD_END_TIME = "load_end_time"
    MEMORY_USAGE = "memory_usage"
    DEBUG_ENTRY = "debug_entry"
    STACK_TRACE = "stack_trace"
    DEBUG_DATA = "debug_data"

    METRICS_KEYWORD = "metrics"
    PROFILE_SUMMARY_COLDSTART = "Coldstart"
    PROFILE_SUMMARY_AVERAGE = "Average"
    PROFILE_SUMMARY_P90 = "P90"
    PROFILE_SUMMARY_P10 = "P10"
    PROFILE_SUMMARY_MIN = "Min"
    PROFILE_SUMMARY_MAX = "Max"

    AGGREGATED_OP_TABLE = "Aggregated op stats"
    RUN_SUMMARY_INDIVIDUAL_RUNS_TABLE = "Run summary individual stats"
    RUN_SUMMARY_TABLE = "Aggregated run summary stats"
    OP_INSTANCE_SUMMARY_TABLE = "Individual op stats"

    TABLES_KEYWORD = "tables"
    KV_KEYWORD = "kv"
    MODEL_LOAD_TIME_KEY = "Model load time (ms)"


class FXOperatorGraph(OperatorGraph):
    """The graph of a `torch.fx.GraphModule`: the groups "inputs", "forward" and "outputs"."""

    @staticmethod
    def gen_operator_graph(
        model: Any,
        skip_stack_trace: bool | None = False,
        enable_module_hierarchy: bool = False,
    ) -> FXOperatorGraph:
        """Make the graph of a `torch.fx.GraphModule` (for example, of an edge program).

        A node's name is the fx node's name and an underscore. Constants among its arguments
        (numbers, texts) become nodes; `getitem` and memory allocations are left out.
        enable_module_hierarchy: group the nodes of each module (of `source_fn_stack`).

        Raises `UsageError` for calls of modules and methods, which an exported graph cannot have.
        """
        built = _Builder(not skip_stack_trace, enable_module_hierarchy)
        for node in model.graph.nodes:
            if node.target is not operator.getitem and not _is_alloc(node):
                built.add(node)
        return built.graph()


def _is_alloc(node: Any) -> bool:
    target = node.target
    return (getattr(target, "__module__", ""), getattr(target, "__name__", "")) == (
        "executorch.exir.memory",
        "alloc",
    )


def _name(node: Any) -> str:
    """Return a node's name with an underscore: TensorBoard folds names that end in numbers."""
    while node.target is operator.getitem:
        node = node.args[0]
    return f"{node.name}_"


@dataclass
class _Builder:
    """The nodes so far, by their names."""

    with_stack_trace: bool
    with_modules: bool
    nodes: dict[str, Node] = field(default_factory=dict)
    inputs: dict[str, Node] = field(default_factory=dict)
    outputs: dict[str, Node] = field(default_factory=dict)
    # (name, type) of a module -> its nodes
    modules: dict[tuple[str, str], list[Node]] = field(default_factory=lambda: defaultdict(list))
    constants: int = 0

    def add(self, node: Any) -> None:
        name = _name(node)
        value = node.meta.get("val")
        values = value if isinstance(value, tuple) else (value,)
        are_tensors = all(hasattr(one, "shape") and hasattr(one, "dtype") for one in values)
        shapes = [list(one.shape) for one in values] if are_tensors else None
        made: Node
        if node.op == "call_function":
            made = OperatorNode(
                name,
                inputs=list(self._read_by(node)),
                output_shapes=shapes,
                metadata=self._metadata(node),
                named_args=_argument_names(node),
                op=getattr(node.target, "__name__", str(node.target)),
            )
            self._note_module(made, node)
        elif node.op in ("placeholder", "get_attr", "output"):
            made = ValueNode(
                name,
                output_shapes=shapes,
                metadata=self._metadata(node),
                dtype=str([one.dtype for one in values]) if are_tensors else "",
            )
            if node.op == "output":
                made.inputs = [self.nodes[_name(one)] for one in node.args[0] if one is not None]
                self.outputs[name] = made
            elif node.op == "placeholder":
                self.inputs[name] = made
        else:
            raise UsageError(f"{name} is a {node.op}, which an exported graph does not have")
        self.nodes[name] = made

    def _metadata(self, node: Any) -> dict[str, Any]:
        wanted = [RESERVED_METADATA_ARG.DEBUG_HANDLE, RESERVED_METADATA_ARG.MODULE_STACK]
        if self.with_stack_trace:
            wanted.insert(1, RESERVED_METADATA_ARG.STACK_TRACE)
        return {key.value: node.meta[key.value] for key in wanted if key.value in node.meta}

    def _read_by(self, node: Any) -> Iterator[Node]:
        """The nodes that `node` reads; constants are made."""
        names = _argument_names(node)
        args = node.args
        if getattr(node.target, "__name__", "").startswith("auto_functionalized"):
            args = tuple(node.kwargs.values())  # these contain the arguments of the function
        for index, argument in enumerate(args):
            name = names[index] if index < len(names) else "CONST"
            items = argument if isinstance(argument, (list, tuple)) else [argument]
            for item in items:
                if hasattr(item, "target"):
                    if not _is_alloc(item):
                        yield self.nodes[_name(item)]
                elif item is None and items is argument:
                    yield self._constant("CONST_NONE", str(argument), node)
                elif item is not None:
                    whole = items is argument  # a list of numbers is one constant
                    yield self._constant(f"{name}_", argument if whole else str(item), node)
                    if whole:
                        break

    def _constant(self, name: str, value: Any, reader: Any) -> Node:
        made = ValueNode(f"{name}{self.constants}", val=value)
        self.constants += 1
        self.nodes[made.name] = made
        self._note_module(made, reader)
        return made

    def _note_module(self, made: Node, node: Any) -> None:
        stack = node.meta.get("source_fn_stack")
        if self.with_modules and stack is not None and "nn_module_stack" in node.meta:
            name, kind = stack[-1][:2]
            self.modules[name, kind if isinstance(kind, str) else kind.__name__].append(made)

    def graph(self) -> FXOperatorGraph:
        in_modules = {node.name for nodes in self.modules.values() for node in nodes}
        apart = {*self.inputs, *self.outputs, *in_modules}
        groups = [
            OperatorGraph(graph_name=name, elements=list(nodes), metadata={"module_type": kind})
            for (name, kind), nodes in self.modules.items()
        ]
        forward = [node for name, node in self.nodes.items() if name not in apart]
        return FXOperatorGraph(
            graph_name="base",
            elements=[
                FXOperatorGraph(graph_name="inputs", elements=list(self.inputs.values())),
                FXOperatorGraph(graph_name="forward", elements=[*forward, *groups]),
                FXOperatorGraph(graph_name="outputs", elements=list(self.outputs.values())),
            ],
        )


def _argument_names(node: Any) -> list[str]:
    schema = getattr(node.target, "_schema", None)
    return [] if schema is None else [argument.name for argument in schema.arguments]
