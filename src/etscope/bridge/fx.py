"""Nodes of torch.fx graphs: their operators and values, and the same as nodes of our own graphs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from etscope.model import graph as model


def target_name(target: Any) -> str:
    """Return the name of an operator, or of another function."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def op_name(node: Node) -> str:
    """Return the operator: "aten.conv2d.default"."""
    return str(node.target) if not callable(node.target) else target_name(node.target)


def owner_of(value: Any) -> Any:
    """Return the node that computes a value; for an element of a tuple, the tuple's node."""
    return owner_of(value.args[0]) if value.target is operator.getitem else value


def element_of(value: Node) -> Any:
    """Return the position of a value in a tuple; None for a node's only value."""
    return value.args[1] if value.target is operator.getitem else None


def is_operation(node: Node) -> bool:
    """True for a call; elements of tuples belong to their call."""
    return bool(node.op == "call_function" and node.target is not operator.getitem)


def as_graph_node(node: Node, inputs: Sequence[str] = ()) -> model.Node:
    """Return a node of our own graphs. inputs: the names of the values that it reads."""
    result = node.meta.get("val")
    values = result if isinstance(result, (list, tuple)) else [result]
    return model.Node(
        name=node.name,
        kind=node.op,
        target=str(node.target),
        op=op_name(node),
        inputs=tuple(inputs),
        outputs=tuple(
            model.Value(
                node.name,
                model.TensorSpec(
                    str(value.dtype).removeprefix("torch."),
                    tuple(size if isinstance(size, int) else str(size) for size in value.shape),
                ),
            )
            for value in values
            if isinstance(value, torch.Tensor)
        ),
        stack_trace=node.meta.get("stack_trace"),
        modules=tuple(
            model.ModuleFrame(key, path, kind if isinstance(kind, str) else kind.__qualname__)
            for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items()
        ),
    )
