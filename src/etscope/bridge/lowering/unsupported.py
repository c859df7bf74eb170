"""Operators that ExecuTorch has no kernel for: which ones, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from etscope.analysis.program.source_location import user_line
from etscope.bridge.failures import innermost
from etscope.bridge.fx import op_name

# What ExecuTorch's passes and verifiers say.
_NO_KERNEL = re.compile(
    r"Missing out variants: \{(?P<names>[^}]*)\}|"
    r"Operator (?:torch\._ops\.)?(?P<name>\S+?) is not in Core ATen opset"
)
_NO_TYPE = re.compile(
    r"mismatched dtypes:\s+Operator: <EdgeOpOverload: (?P<name>[^>]+)>.*?with args: (?P<args>.*)"
)
_LINES = 3

_TORCHAO = (
    "only some of torchao's quantizations have kernels: on XNNPACK, linear layers of 4 or 8 bits "
    "with dynamic activations; give the float model with --backend xnnpack --quantize 8da4w or "
    "8da8w, and for embeddings -X quantize_embeddings=8"
)
_PADDING = (
    "ExecuTorch does not fuse quantized embeddings that have a padding index, which matters to "
    "training only: set padding_idx = None on the embedding"
)
_PT2E = (
    "these operators of a quantizer run in the delegates of its own backend only: export for that "
    "one (--backend xnnpack for XNNPACKQuantizer), or give the float model with --quantize"
)
_OTHER = "write these lines with other operators, or give a backend that takes this one (--backend)"


def unsupported(
    error: BaseException, programs: Mapping[str, ExportedProgram]
) -> tuple[str, str] | None:
    """Return (why a lowering failed, what to do) if an operator or a type has no kernel."""
    text = innermost(error, limit=10_000)
    types: Collection[str] = ()
    if found := _NO_KERNEL.search(text):
        names = re.findall(r"[\w:.]+", found["names"] or found["name"])
        what = f"no kernel computes {', '.join(map(_schema_name, names))}"
    elif found := _NO_TYPE.search(text):
        names = [found["name"]]
        types = dict.fromkeys(re.findall(r"torch\.(\w+)", found["args"]))
        what = f"no kernel of {_schema_name(names[0])} takes {' and '.join(types)}"
    else:
        return None
    wanted = {_schema_name(name) for name in names}
    nodes = [node for one in programs.values() for node in one.graph.nodes]
    # A lowering renames operators: a type's first values are named then.
    failing = [node for node in nodes if _schema_name(op_name(node)) in wanted]
    failing = failing or [node for node in nodes if _type_of(node) in types]
    lines = dict.fromkeys(
        f"\n  at {line}: {line.text}"
        for node in failing
        if (line := user_line(node.meta.get("stack_trace"))) is not None
    )
    return what + "".join(list(lines)[:_LINES]), _way_out(names, programs.values(), nodes)


def _type_of(node: Node) -> str:
    return str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")


def _schema_name(name: str) -> str:
    """Return the name of an operator as in its schema: "aten::add.Tensor"."""
    name = name.removesuffix(".default")
    return name if "::" in name else name.replace(".", "::", 1)


def _way_out(
    names: Iterable[str], programs: Iterable[ExportedProgram], nodes: Iterable[Node]
) -> str:
    weights: list[Any] = [one for program in programs for one in program.state_dict.values()]
    if any(name.startswith("torchao") for name in names) or any(
        type(one).__module__.startswith("torchao") for one in weights
    ):
        has_padding = any(
            op_name(node).startswith("aten.embedding") and node.args[2:3] not in ((), (-1,))
            for node in nodes
        )
        return _PADDING if has_padding else _TORCHAO
    return _PT2E if any(name.startswith("quantized_decomposed") for name in names) else _OTHER
