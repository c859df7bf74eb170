"""Nodes behind the instructions of control-flow branches, which no record has handles for.

ExecuTorch's emitter throws the maps of branches away (emit/_emitter.py), but writes a branch's
instructions in the order of its nodes. So the program's instructions without a handle and the
nodes of the control-flow sub-graphs are the same sequence of operators, once what only one side has
(jumps, moves, loop counters) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etscope.analysis.profile.correlate import MethodSymbols, is_operator
from etscope.model.graph import Node, stem


def branch_nodes(labels: Sequence[str], symbols: MethodSymbols) -> Mapping[int, Node]:
    """The node of each instruction inside a branch, by instruction id.

    `labels` are the method's instructions ("aten::add.out"). Empty unless the two sequences agree
    in full: a node is never given by guess.
    """
    if symbols.graph is None:
        return {}
    nodes = [
        node
        for parent in symbols.graph.nodes
        for graph in parent.subgraphs
        for node in graph.walk(into_delegates=False)
        if is_operator(node) and not node.subgraphs
    ]
    instructions = [
        i
        for i, label in enumerate(labels)
        if label.startswith("aten::") and i not in symbols.handles
    ]
    shared = {stem(node.op) for node in nodes} & {stem(labels[i]) for i in instructions}
    nodes = [node for node in nodes if stem(node.op) in shared]
    instructions = [i for i in instructions if stem(labels[i]) in shared]
    if [stem(node.op) for node in nodes] != [stem(labels[i]) for i in instructions]:
        return {}
    return dict(zip(instructions, nodes, strict=True))
