"""Small graphs, symbols and profiles by hand, for tests of what joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.run_nodes import RunNodes
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.program.correlate import Attribution, DelegateMap, MethodSymbols
from etscope.model.event_table import Clock, Meaning
from etscope.model.graph import Delegate, Graph, ModuleFrame, Node, Origin, TensorSpec, Value

EDGE_NAME = "edge_dialect_exported_program/forward"
STACK = 'File "/home/me/model.py", line {line}, in forward\n    return something\n'


def call(
    name: str,
    op: str,
    *inputs: str,
    handle: int | None = None,
    module: str | None = None,
    line: int | None = None,
    shape: tuple[int | str, ...] = (1, 8),
    origins: Sequence[Origin] = (),
    delegate: Delegate | None = None,
    subgraphs: tuple[Graph, ...] = (),
) -> Node:
    """A node that calls an operator of the edge dialect."""
    frames = [] if module is None else _frames(module)
    return Node(
        name=name,
        kind="call_function",
        target=f"executorch.exir.dialects.edge.ops.{op}",
        op=op,
        inputs=inputs,
        arguments=tuple(("", used) for used in inputs),
        outputs=(Value(name, TensorSpec("float32", shape)),),
        debug_handle=handle,
        stack_trace=None if line is None else STACK.format(line=line),
        modules=tuple(frames),
        origins=origins,
        delegate=delegate,
        subgraphs=subgraphs,
    )


def placeholder(name: str, shape: tuple[int | str, ...] = (1, 8)) -> Node:
    return Node(name, "placeholder", name, "", outputs=(Value(name, TensorSpec("float32", shape)),))


def get_attr(name: str) -> Node:
    return Node(name, "get_attr", name, "")


def output(*inputs: str) -> Node:
    return Node("output", "output", "output", "", inputs)


def graph(
    *nodes: Node, name: str = EDGE_NAME, parameters: Mapping[str, str] | None = None
) -> Graph:
    return Graph(name, nodes, "EDGE", parameters=parameters or {}, graph_id=7)


def linked(
    shown: Graph,
    handles: Mapping[int, int | Sequence[int]] | None = None,
    *,
    edge: Graph | None = None,
    labels: Sequence[str] = (),
    delegates: Mapping[int, str] | None = None,
) -> LinkedGraph:
    """`shown` with the symbols of `edge` (default: of itself)."""
    backends = {i: DelegateMap(name, {}) for i, name in (delegates or {}).items()}
    symbols = MethodSymbols("forward", edge or shown, handles or {}, backends)
    return LinkedGraph(shown.name, shown, "forward", RunNodes(symbols, labels), {})


def row(
    kind: str,
    name: str,
    instruction: int,
    *ticks: int,
    depth: int = 0,
    nodes: Sequence[Node] = (),
    own_clock: bool = False,
) -> Row:
    samples = np.array(ticks, dtype=np.int64)
    return Row(
        kind=kind,
        name=name,
        ticks=samples,
        calls=np.ones_like(samples),
        instruction_id=instruction,
        attribution=Attribution(nodes=tuple(nodes)),
        depth=depth,
        meaning=Meaning(name, name, clock=Clock.DEVICE) if own_clock else None,
    )


def profile(*rows: Row, total: Sequence[int]) -> MethodProfile:
    samples = np.array(total, dtype=np.int64)
    return MethodProfile("forward", np.arange(len(samples)), samples, rows, {}, traced=False)


def _frames(path: str) -> list[ModuleFrame]:
    parts = path.split(".")
    paths = ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]
    return [ModuleFrame(f"key{i}", p, f"my.package.{_type(p)}") for i, p in enumerate(paths)]


def _type(path: str) -> str:
    return path.rpartition(".")[2].capitalize() or "Net"


def lowered() -> Graph:
    """A convolution outside and a linear layer inside of a lowered module."""
    inner = graph(
        placeholder("a"),
        placeholder("w"),
        call("permute", "aten.permute_copy.default", "w", handle=2, module="fc", line=20),
        call("addmm", "aten.addmm.default", "a", "permute", handle=2, module="fc", line=20),
        output("addmm"),
        name=f"{EDGE_NAME}/lowered_module_0",
        parameters={"w": "fc.weight"},
    )
    return graph(
        placeholder("x", (1, 3, 16, 16)),
        placeholder("weight"),
        get_attr("lowered_module_0"),
        call("conv", "aten.convolution.default", "x", "weight", handle=1, module="stem.conv",
             line=10, shape=(1, 8, 16, 16)),
        call("delegate", "executorch_call_delegate", "lowered_module_0", "conv", handle=9,
             delegate=Delegate("SomeBackend", "lowered_module_0", inner, 4096, {"fast": b"yes"})),
        output("delegate"),
        parameters={"weight": "stem.conv.weight"},
    )  # fmt: skip


def branching() -> Graph:
    """A condition with two branches."""

    def branch(name: str, op: str) -> Graph:
        return graph(
            placeholder("a"), call("inner", op, "a", handle=5), output("inner"),
            name=f"{EDGE_NAME}/{name}",
        )  # fmt: skip

    return graph(
        placeholder("x"),
        call("gt", "aten.gt.Scalar", "x", handle=1),
        get_attr("submodule_0"),
        get_attr("submodule_1"),
        call("cond", "cond", "gt", "submodule_0", "submodule_1", "x", handle=2,
             subgraphs=(branch("submodule_0", "aten.sin.default"),
                        branch("submodule_1", "aten.cos.default"))),
        output("cond"),
    )  # fmt: skip
