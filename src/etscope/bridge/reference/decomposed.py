"""A program as PyTorch decomposes it on the way to the edge dialect, before any pass."""

from __future__ import annotations

from executorch.exir.program._program import _default_decomposition_table
from torch.export import ExportedProgram

from etscope.bridge.programs import program_json
from etscope.bridge.reference.reference import NamedProgram, call_names
from etscope.model.exported_graph import graph_from_program_json
from etscope.model.graph import Graph


def decomposed_program(program: ExportedProgram) -> tuple[NamedProgram, Graph]:
    """Decompose a program as `to_edge` does; return it, and its graph."""
    made = program.run_decompositions(_default_decomposition_table())
    graph = graph_from_program_json(program_json(made, "decomposed"), "decomposed")
    names = [node.name for node in graph.nodes if node.kind == "call_function"]
    return NamedProgram(made, dict(zip(call_names(made), names, strict=True))), graph


__all__ = ["decomposed_program"]
