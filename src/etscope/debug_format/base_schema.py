"""Nodes of a graph: upstream's `executorch.devtools.debug_format.base_schema`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Node", "OperatorGraph", "OperatorNode", "ValueNode"]


@dataclass
class Node:
    """A node. `inputs` are the nodes that it reads; `named_args` the names of its arguments in the
    operator's schema."""

    name: str
    inputs: list[Node] | None = None
    output_shapes: list[list[int]] | None = None
    metadata: dict[str, Any] | None = None
    named_args: list[str] | None = None


@dataclass
class OperatorGraph:
    """A group of nodes and groups."""

    graph_name: str
    elements: list[Node | OperatorGraph]
    metadata: dict[str, Any] | None = None


@dataclass
class ValueNode(Node):
    """A node without computation: an input, an output, a constant."""

    dtype: str = ""
    val: Any | None = None


@dataclass
class OperatorNode(Node):
    """A call of an operator."""

    op: str | None = None
