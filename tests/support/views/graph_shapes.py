"""Views of graphs by hand: a small one with a delegate and times, and one of hostile names."""

from __future__ import annotations

from dataclasses import replace

from etscope.analysis.graphs.views import GraphView, NodeError, view_of
from etscope.model.graph import ModuleFrame, Node, TensorSpec, Value
from tests.support.analysis.graphs import graph, linked, lowered, output, profile, row

HOSTILE = (
    '<script>alert("x")</script>',
    'a/b/c"; } digraph { evil',
    "back\\slash\\",
    "\x1b[31mred\x00\n\r",
    "\u202egpj.exe",
    "x" * 5000,
    "__proto__",
    "constructor",
    "^control:0",
    "</table><img src=x onerror=alert(1)>",
    "%s${x}{{y}}&lt;",
    "",
)


def timed() -> GraphView:
    """A convolution and a delegate of two nodes, in two runs; the times inside leave a rest."""
    made = lowered()
    inside = [node for node in made.walk() if node.name in ("permute", "addmm")]
    times = profile(
        row("kernel", "conv", 0, 3000, 5001),
        row("delegate", "SomeBackend", 1, 5000, 7000),
        row("delegated", "permute", 1, 1000, 1000, depth=1, nodes=inside[:1]),
        row("delegated", "addmm", 1, 2500, 2500, depth=1, nodes=inside[1:]),
        total=[9000, 12500],
    )
    view = view_of(linked(made, {0: 1, 1: [2, 9]}), "edge/forward", times)
    errors = {
        "conv": NodeError("sqnr", 120.0, 120.0, "fine"),
        "delegate": NodeError("sqnr", 40.0, 41.0, "wrong"),
    }
    return replace(view, errors=errors)


def hostile() -> GraphView:
    """A node for each hostile name, which is also its module, its file and its line of code."""

    def node(position: int, name: str, before: str) -> Node:
        return Node(
            name=name,
            kind="call_function",
            target=name,
            op=name,
            inputs=(before,),
            arguments=((name, name),),
            outputs=(Value(name, TensorSpec("float32", (name or "s0", position))),),
            debug_handle=position,
            stack_trace=f'  File "{name}", line {position}, in {name}\n    {name}\n',
            modules=(ModuleFrame(name, name, name),),
        )

    nodes = []
    for position, name in enumerate(HOSTILE):
        nodes.append(node(position, name, HOSTILE[position - 1] if position else "x"))
    made = graph(*nodes, output(HOSTILE[-1]))
    rows = [row("kernel", name, i, 10 + i) for i, name in enumerate(HOSTILE)]
    times = profile(*rows, total=[1000])
    handles = {i: i for i in range(len(HOSTILE))}
    return view_of(linked(made, handles), 'edge/<b>"forward"', times)
