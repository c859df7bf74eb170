"""Keep some nodes in float while the rest of a model is quantized.

torch's quantization in two steps (`prepare_pt2e`, `convert_pt2e`) asks a quantizer for annotations:
which inputs and outputs of a node become int8. Nodes to keep in float are marked as annotated, with
nothing to quantize, before the quantizer looks at the graph. So no pattern takes them (of a fused
pair, as convolution and relu, neither is taken), no node shares observers with them, and the scale
that nodes hand on (from a convolution to the pooling after it) ends there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, SharedQuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from etscope.analysis.selector_fields import fields_of_node
from etscope.bridge.fx import as_graph_node
from etscope.errors import UsageError
from etscope.model import graph as model
from etscope.model.selector import Fields, Selector

# They hand on the scale, but their results lie between their input values.
_AVERAGES = ("mean", "adaptive_avg_pool2d")


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that can only be quantized together: a convolution and the relu after it.

    nodes: in execution order; the first one names the unit. moves: True if the unit passes on its
    int8 inputs with the same scale (a view, a relu, a maximum), so nothing is lost in it. sources:
    the names of the units whose int8 values it takes; units that only pass values on are skipped.
    """

    nodes: tuple[model.Node, ...]
    moves: bool = False
    sources: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


@dataclass(slots=True)
class KeepFloat:
    """A quantizer for `prepare_pt2e` that wraps another quantizer and keeps some nodes in float.

    selectors: select the nodes to keep in float. names: further nodes to keep in float. units: the
    units that would be quantized. matched: how many units each selector picks, in all graphs so
    far.
    """

    quantizer: Any
    selectors: Sequence[Selector] = ()
    names: frozenset[str] = frozenset()
    units: list[Unit] = field(default_factory=list)
    matched: dict[str, int] = field(default_factory=dict)

    def transform_for_annotation(self, module: GraphModule) -> Any:
        return self.quantizer.transform_for_annotation(module)

    def annotate(self, module: GraphModule) -> GraphModule:
        units = _units(module, self.quantizer) if self.selectors else []
        self.units += units
        kept = set(self.names)
        for selector in self.selectors:
            picked = [
                unit
                for unit in units
                if any(selector.matches(fields_of_node(node)) for node in unit.nodes)
            ]
            self.matched[selector.text] = self.matched.get(selector.text, 0) + len(picked)
            kept.update(name for unit in picked for name in unit.names)
        for node in module.graph.nodes:
            if node.name in kept:
                node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
        self.quantizer.annotate(module)
        return module

    def validate(self, module: GraphModule) -> None:
        self.quantizer.validate(module)

    def prepare_obs_or_fq_callback(self, module: Any, observers: Any) -> None:
        self.quantizer.prepare_obs_or_fq_callback(module, observers)

    def check(self) -> None:
        """Raise `UsageError` for a selector that picked no node to be quantized."""
        for selector in self.selectors:
            if not self.matched.get(selector.text):
                raise UsageError(
                    f"{selector.text!r} picks nothing that would be quantized",
                    hint=self._hint(selector),
                )

    def _hint(self, selector: Selector) -> str:
        keys = ("name", "op", "module", "type", "file")
        found: dict[str, dict[str, None]] = {key: {} for key in keys}
        for unit in self.units:
            for node in unit.nodes:
                fields: Fields = fields_of_node(node)
                for key, texts in found.items():
                    texts.update(dict.fromkeys(_short(key, text) for text in fields.get(key, ())))
        near: dict[str, None] = {}
        for word in _WORD.finditer(selector.text):
            key, pattern = word["key"] or "name", word["pattern"]
            known = [text for one in {key, "name", "op", "module"} for text in found.get(one, ())]
            by_lower = {text.lower(): text for text in known}
            for text in get_close_matches(pattern.lower(), by_lower, n=3):
                near[by_lower[text]] = None
        if near:
            return f"near names: {', '.join(near)}"
        if not self.units:
            return "the quantizer finds nothing to quantize in this model"
        modules, ops = list(found["module"] or found["name"]), found["op"]
        more = ", …" if len(modules) > _LISTED else ""
        return (
            f"the quantizer quantizes the operators {', '.join(ops)}, in "
            f"{', '.join(modules[:_LISTED])}{more}; a batch norm is a part of the "
            "convolution before it"
        )


def quantizable(module: GraphModule, quantizer: Any) -> list[Unit]:
    """Return the units that the quantizer would quantize in a module of `torch.export`. The module
    is changed as `prepare_pt2e` does first: batch norms are folded."""
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_, _fuse_linear_bn_

    _fuse_conv_bn_(module)
    _fuse_linear_bn_(module)
    return _units(quantizer.transform_for_annotation(module), quantizer)


def _units(module: GraphModule, quantizer: Any) -> list[Unit]:
    """Return the units that would be quantized; no annotations stay in the graph."""
    before = {n: n.meta[Q_ANNOTATION_KEY] for n in module.graph.nodes if Q_ANNOTATION_KEY in n.meta}
    quantizer.annotate(module)
    annotations = {
        node: note
        for node in module.graph.nodes
        if node not in before and (note := node.meta.pop(Q_ANNOTATION_KEY, None)) is not None
    }
    found = []
    inside: set[Node] = set()
    givers: dict[Node, tuple[str, ...]] = {}  # node -> the units with values that it passes on
    for node, note in annotations.items():
        if node.op != "call_function" or node in inside:
            continue
        if not note.input_qspec_map and note.output_qspec is None:  # nothing to quantize
            continue
        members = [node]
        if note.output_qspec is None and len(node.users) == 1:
            user = next(iter(node.users))  # it gives the output of a fused pair
            other = annotations.get(user)
            if other is not None and other.output_qspec is not None and not other.input_qspec_map:
                members.append(user)
        inside.update(members)
        given = [name for used in node.all_input_nodes for name in givers.get(used, ())]
        sources = tuple(dict.fromkeys(given))
        specs = [note.output_qspec, *note.input_qspec_map.values()]
        moves = _short("op", str(node.target)) not in _AVERAGES and all(
            isinstance(spec, SharedQuantizationSpec) for spec in specs
        )
        givers[members[-1]] = sources if moves else (node.name,)
        found.append(Unit(tuple(map(as_graph_node, members)), moves, sources))
    return found


# -- a selector that picks nothing

_WORD = re.compile(r"""(?:\b(?P<key>[a-z]+):)?(?P<pattern>[^\s()"':]+)""")
_LISTED = 8  # modules in a message


def _short(key: str, text: str) -> str:
    """Shorten an operator by namespace and overload, a file by its folders."""
    if key == "op":
        parts = text.split(".")
        return parts[1] if len(parts) > 1 else text
    return text.rpartition("/")[2] if key == "file" else text
