"""The nodes of exported programs that selectors pick to be tapped."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etscope.analysis.profile.source_location import user_line
from etscope.errors import EtscopeWarning, MissingDataError, UsageError
from etscope.model.selector import Fields, Selector

_NAMES_SHOWN = 5
_ROOT = "_export_root"  # of what torch traces as a module of its own


def picked_nodes(
    programs: Mapping[str, ExportedProgram], selectors: Sequence[str]
) -> dict[str, set[str]]:
    """For each method, the names of the nodes to tap. Each selector picks some."""
    nodes = {method: list(_top(program)) for method, program in programs.items()}
    inside = [node for program in programs.values() for node in _inside(program)]
    picked: dict[str, set[str]] = {method: set() for method in programs}
    for text in selectors:
        matches = Selector(text).matches
        matched = False
        useless: list[Node] = []
        for method, candidates in nodes.items():
            for node in candidates:
                if not matches(fields_of(node)):
                    continue
                if tensors_of(node):
                    picked[method].add(node.name)
                    matched = True
                else:
                    useless.append(node)
        hidden = [node for node in inside if tensors_of(node) and matches(fields_of(node))]
        if hidden:
            _say_hidden(text, hidden, refuse=not matched)
        if not matched:
            raise _nothing(text, useless, [n for found in nodes.values() for n in found])
    return picked


def _say_hidden(selector: str, hidden: Sequence[Node], *, refuse: bool) -> None:
    names = _listed([node.name for node in hidden])
    text = (
        f"the tap {selector!r} picks values inside of control flow ({names}), which cannot be "
        "outputs: a branch may not run, and a loop's body runs more than once"
    )
    if refuse:
        raise UsageError(text, hint="tap what the branch or loop gives, outside of it")
    warnings.warn(f"{text}; the others are tapped", EtscopeWarning, stacklevel=2)


def _nothing(selector: str, useless: Sequence[Node], nodes: Sequence[Node]) -> Exception:
    if useless:
        return UsageError(
            f"the tap {selector!r} picks only nodes that compute no tensor of their own: "
            + _listed([node.name for node in useless])
        )
    tappable = [node for node in nodes if tensors_of(node)]
    key, colon, word = selector.rpartition(":")
    key = key.rpartition(" ")[2].strip("(") if colon else "name"
    known = dict.fromkeys(text for node in tappable for text in fields_of(node).get(key, ()))
    word = word.strip("*? \"'()")
    near = get_close_matches(word, known, n=_NAMES_SHOWN, cutoff=0.4)
    near = near or [text for text in known if word and word in text]
    return MissingDataError(
        f"the tap {selector!r} picks no node of the exported program",
        hint="near it are: " + _listed(near)
        if near
        else "its nodes are: " + _listed([node.name for node in tappable]),
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def fields_of(node: Node) -> Fields:
    """What a node of a program offers to a `Selector`, in the words of `analysis.select`."""
    line = user_line(node.meta.get("stack_trace"))
    frames = list((node.meta.get("nn_module_stack") or {}).values())
    last = frames[-1] if frames else None
    return {
        "name": [node.name],
        "op": [op_name(node)],
        "module": [] if last is None or not module_of(node) else [str(module_of(node))],
        "type": [] if last is None else [_type_name(last[1])],
        "file": [] if line is None else [f"{line.file}:{line.line}"],
        "kind": [node.op],
    }


def op_name(node: Node) -> str:
    """The operator: "aten.conv2d.default"."""
    return str(node.target) if not callable(node.target) else target_name(node.target)


def target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def module_of(node: Node) -> str | None:
    """Path of the innermost module that the node is of; "" is the root, None unknown."""
    frames = list((node.meta.get("nn_module_stack") or {}).values())
    if not frames:
        return None
    path = str(frames[-1][0])
    return "" if path == _ROOT else path.removeprefix(_ROOT + ".")


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).rpartition(".")[2]


def _top(program: ExportedProgram) -> Iterator[Node]:
    """The nodes that compute something. Elements of tuples go with the node that makes them, and
    weights that are only dequantised are no values of the model."""
    for node in program.graph.nodes:
        if (
            node.op == "call_function"
            and node.target is not operator.getitem
            and not _is_weight(node)
        ):
            yield node


def _inside(program: ExportedProgram) -> Iterator[Node]:
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule) and module is not program.graph_module:
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def tensors_of(node: Node) -> list[tuple[int | None, Node]]:
    """The tensors that a node computes, by element; of several, those that are taken apart."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return [(None, node)]
    elements = [user for user in node.users if user.target is operator.getitem]
    elements.sort(key=lambda user: user.args[1])
    return [
        (user.args[1], user) for user in elements if isinstance(user.meta.get("val"), torch.Tensor)
    ]


def is_quantized_op(node: Any, what: str) -> bool:
    return (
        isinstance(node, Node)
        and node.op == "call_function"
        and target_name(node.target).startswith(f"quantized_decomposed.{what}_per_")
    )


def _is_weight(node: Node) -> bool:
    return is_quantized_op(node, "dequantize") and not is_quantized_op(node.args[0], "quantize")
