"""Operators that run in parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from etscope.analysis.graphs.run_graph import (
    Kernel,
    RunGraph,
    bytes_of,
    function_of,
    spec_of,
    varying_givers,
)
from etscope.analysis.insights import edits
from etscope.analysis.insights.facts import Facts, explained, needs_graph
from etscope.analysis.insights.node_words import (
    at_lines,
    fewer_calls,
    first_line,
    operators,
    places,
)
from etscope.analysis.profile.profile import Leaf
from etscope.model.finding import Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import count

_ATTENTION = "scaled_dot_product_attention"
_BATCH_NORM = "native_batch_norm_legit_no_training"
_NORM_BEFORE = "batch_norm before"


@dataclass(frozen=True, eq=False)
class Parts:
    """The nodes of one operator that runs in parts. kind: the operator ("gelu"). added: events
    without a node that compute the parts."""

    kind: str
    nodes: tuple[Node, ...]
    added: tuple[Leaf, ...] = ()


def parts_of(run: RunGraph) -> Iterator[Parts]:
    """Find operators that run as several nodes: the softmax of an attention, operators that are
    written out by hand, and batch norms."""
    taken: set[int] = set()
    for finder in (_guards, _written_out, _batch_norms, _norms_before):
        for parts in finder(run):
            if not taken & set(map(id, parts.nodes)):
                taken.update(map(id, parts.nodes))
                yield parts


# -- the softmax of scaled_dot_product_attention, with a guard for rows that see no key

_ZEROS = frozenset({"full_like", "zeros_like", "full", "zeros", "scalar_tensor"})


def _guards(run: RunGraph) -> Iterator[Parts]:
    """where(not any(not (scores == -inf)), 0, softmax(scores)), as torch decomposes it.

    With delegates, everything that the same call of the function left outside of them is included.
    """
    calls: dict[str, list[Kernel]] = {}
    for kernel in run.kernels.values():
        if run.calls and kernel.call is not None and _ATTENTION in kernel.call:
            calls.setdefault(kernel.call, []).append(kernel)
    for kernel in run.kernels.values():
        if kernel.op != "where" or len(kernel.node.inputs) != 3:
            continue
        node, zeros, softmax = run.givers(kernel.node)
        chain: list[Node] = []
        for name in ("logical_not", "any", "logical_not", "eq"):
            if node.kind == "call_function" and stem(node.op) == name:
                chain.append(node)
                node = next(run.givers(node), node)
        if len(chain) < 4 or stem(softmax.op) != "softmax" or stem(zeros.op) not in _ZEROS:
            continue
        nodes = {id(node): node for node in (*chain, zeros, kernel.node)}
        for other in calls.get(kernel.call or "", ()):
            if other.op != "expand":
                nodes.setdefault(id(other.node), other.node)
        yield Parts(_ATTENTION, tuple(nodes.values()))


# -- operators written by hand

_DEEPEST = 7  # operators from the first to the last of one that is written by hand


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of an operator in parts, of one value in and one value out.

    anchors: operators of which it has one. needed: the operators of all ways to write it, each a
    choice; allowed: these, and others that may be there. xnnpack: only XNNPACK has a kernel of it.
    """

    kind: str
    anchors: frozenset[str]
    needed: tuple[frozenset[str], ...]
    allowed: frozenset[str]
    xnnpack: bool

    @classmethod
    def of(
        cls, kind: str, anchors: str, needed: str, allowed: str, *, xnnpack: bool = False
    ) -> _Form:
        choices = tuple(frozenset(choice.split("|")) for choice in needed.split())
        every = frozenset(allowed.split()).union(*choices)
        return cls(kind, frozenset(anchors.split()), choices, every, xnnpack)

    def region(self, run: RunGraph, anchor: Node) -> list[Node] | None:
        """Return the nodes of a decomposed operator around one of them: between one input and one
        output, with no other value read outside and only constants as further inputs.

        The smallest with all needed operators is taken.
        """
        ends = [anchor, *self._near(anchor, run.readers)]
        readers = [anchor, *self._near(anchor, run.givers)]
        starts = {id(one): one for node in readers for one in _read(run, node)}
        best: list[Node] | None = None
        for start in starts.values():
            for end in ends:
                if stem(end.op) not in self.needed[-1] | {"div", "mul"}:
                    continue
                found = self._between(run, start, end)
                if found is None or not any(node is anchor for node in found):
                    continue
                if (best is None or len(found) < len(best)) and self._is_made_of(run, found):
                    best = found
        return best

    def _near(self, node: Node, step: Callable[[Node], Iterator[Node]]) -> list[Node]:
        """The nodes near to a node, of the form's operators, in one direction."""
        found: dict[int, Node] = {}
        front = [node]
        for _ in range(_DEEPEST):
            front = [
                other
                for one in front
                for other in step(one)
                if self._may_have(other) and id(other) not in found
            ]
            found.update((id(one), one) for one in front)
        return list(found.values())

    def _may_have(self, node: Node) -> bool:
        return node.kind == "call_function" and stem(node.op) in self.allowed

    def _between(self, run: RunGraph, start: Node, end: Node) -> list[Node] | None:
        """The nodes that lead from a value to a node, that one included; None if something else
        leads there, or leads away."""
        found: dict[int, Node] = {}
        waiting = [end]
        while waiting:
            node = waiting.pop()
            if node is start or id(node) in found:
                continue
            if not self._may_have(node) or len(found) > 2 * _DEEPEST:
                return None
            found[id(node)] = node
            waiting += _read(run, node)
        for node in found.values():
            if node is not end and any(id(reader) not in found for reader in run.readers(node)):
                return None
        return list(found.values()) if any(start in run.givers(n) for n in found.values()) else None

    def _is_made_of(self, run: RunGraph, nodes: Sequence[Node]) -> bool:
        """Return whether nodes have all needed operators, each once at least, and what else
        identifies the form."""
        counted = Counter(stem(node.op) for node in nodes)
        for choice in sorted(self.needed, key=len):
            name = next((one for one in sorted(choice) if counted[one] > 0), None)
            if name is None:
                return False
            counted[name] -= 1
        if self.kind == "layer_norm":  # over the last dimensions, else it is another norm
            for node in nodes:
                spec, given = spec_of(node), dict(node.arguments)
                if stem(node.op) not in ("mean", "var"):
                    continue
                rank = 0 if spec is None else len(spec.shape)
                axes = [int(text) for text in re.findall(r"-?\d+", given.get("dim", ""))]
                if not rank or not axes or given.get("keepdim") != "True":
                    return False
                if sorted(axis % rank for axis in axes) != list(range(rank - len(axes), rank)):
                    return False
            return True
        if self.kind == "softmax":
            return True
        if self.kind == "hardswish" and not any(
            {"0", "6"} <= {text.removesuffix(".0") for _, text in node.arguments} for node in nodes
        ):
            return False
        # x * f(x): a product of two values, which a sigmoid or tanh by itself has not
        return any(stem(node.op) == "mul" and len(list(_read(run, node))) == 2 for node in nodes)


def _read(run: RunGraph, node: Node) -> Iterator[Node]:
    """Yield the nodes that make the values that a node reads, except weights and constants."""
    return (giver for giver in varying_givers(run, node) if giver.outputs)


_FORMS = (
    _Form.of("gelu", "erf", "erf add mul", "div"),
    _Form.of("gelu", "tanh", "tanh add add mul pow|mul", "div"),
    _Form.of(
        "layer_norm", "rsqrt sqrt", "rsqrt|sqrt mean sub var|pow|mul add mul|div", "reciprocal"
    ),
    _Form.of("softmax", "exp", "exp sum div|mul", "amax max sub reciprocal"),
    _Form.of("hardswish", "clamp hardtanh", "clamp|hardtanh add mul", "div", xnnpack=True),
)


def _written_out(run: RunGraph) -> Iterator[Parts]:
    seen: set[int] = set()
    for node in run.partition.linked.graph.operators.values():
        for form in _FORMS:
            if stem(node.op) not in form.anchors or (form.xnnpack and not run.has_xnnpack):
                continue
            found = form.region(run, node) or []
            # The nodes that take the largest score from the scores before a softmax.
            for one in found if form.kind == "softmax" else ():
                shifted = next(run.givers(one), one) if stem(one.op) == "exp" else one
                scores, *largest = run.givers(shifted) if stem(shifted.op) == "sub" else (one,)
                if [stem(other.op) for other in largest] in (["amax"], ["max"]):
                    if next(run.givers(largest[0]), None) is scores:
                        found = [*found, shifted, *largest]
                    break
            if found and not seen & set(map(id, found)):
                seen.update(map(id, found))
                yield Parts(form.kind, tuple(found))
                break


# -- batch norm after a convolution, which could be a part of its weights


def _norms_before(run: RunGraph) -> Iterator[Parts]:
    """Norms before a convolution without padding, or a linear layer, which could hold them.

    XNNPACK folds a norm into a convolution before it, and else computes it as a convolution.
    """
    for node in run.partition.linked.graph.operators.values():
        readers = list(run.readers(node)) if stem(node.op) == _BATCH_NORM else []
        readers = [one for each in readers for one in _values(run, each)]
        if len(readers) != 1:
            continue
        (reader,), given = readers, dict(readers[0].arguments)
        added = _event_before(run, reader)
        is_plain = stem(reader.op) == "convolution" and given.get("transposed") == "False"
        weights = [one for one in run.givers(reader) if run.is_weight(one)]
        is_timed = bool(added or run.members([node]))
        if is_timed and is_plain and weights and not re.search("[1-9]", given.get("padding", "1")):
            yield Parts(_NORM_BEFORE, (node,), added)


def _event_before(run: RunGraph, reader: Node) -> tuple[Leaf, ...]:
    """The convolution by channel, of no node, that XNNPACK runs directly before an operator."""
    events = {id(leaf) for _, leaf in run.members([reader])}
    for members in run.events_of_calls.values():
        for before, after in pairwise(members):
            is_added = not before[1].attribution.nodes and "DWConv" in before[1].name
            if is_added and id(after[1]) in events:
                return (before,)
    return ()


def _values(run: RunGraph, node: Node) -> list[Node]:
    """A node, or the readers of the first value of several."""
    return list(run.readers(node)) if node.op == "getitem" else [node]


def _batch_norms(run: RunGraph) -> Iterator[Parts]:
    for kernel in run.kernels.values():
        giver = next(run.givers(kernel.node), None)
        if (
            kernel.op == _BATCH_NORM
            and giver is not None
            and stem(giver.op) in ("convolution", "linear", "addmm")
            and id(giver) in run.kernels
            and len(list(run.readers(giver))) == 1
        ):
            yield Parts("batch_norm", (kernel.node,))


# -- findings


@needs_graph
def lost_fusion(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find operators that run in parts although one kernel would do: decomposed, or written by
    hand.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Parts]] = {}
    for parts in parts_of(run):
        facts.claim(parts.nodes, parts.added)
        names = tuple(sorted({stem(node.op) for node in parts.nodes}))
        key = names if parts.kind != _ATTENTION else ()
        groups.setdefault((parts.kind, key), []).append(parts)
    for (kind, _), alike in groups.items():
        nodes = [node for parts in alike for node in parts.nodes]
        members = [*run.members(nodes), *(one for parts in alike for one in parts.added)]
        if not members:
            continue
        members += run.rests(members)
        outside = [node for node in nodes if id(node) in run.kernels]
        evidence = [f"{count(len(nodes), 'node')} of {operators(nodes)} {_WHAT[kind]}."]
        if run.calls:
            evidence.append(
                f"{len(outside):,} of the {count(len(nodes), 'node')} are outside of delegates."
            )
        evidence += fewer_calls(run, outside, "Without them")
        is_by_form = kind not in (_ATTENTION, "batch_norm", _NORM_BEFORE)
        yield facts.finding(
            "lost-fusion",
            f"{_SENTENCE[kind]} {facts.time.taken(members)}{places(len(alike))}"
            f"{at_lines(nodes, run, facts.time)}.",
            members,
            explained(
                Sureness.LIKELY if is_by_form else Sureness.MEASURED,
                evidence,
                _remedies(run, kind, nodes),
            ),
        )


_WHAT: Mapping[str, str] = {
    _ATTENTION: "are neither its products nor its softmax: they guard rows in which all scores are "
    "-inf, and apply scales and masks",
    "gelu": "compute what one kernel of gelu would",
    "layer_norm": "compute what one kernel of native_layer_norm would",
    "softmax": "compute what one kernel of softmax would",
    "hardswish": "compute what one operator of XNNPACK would, hardswish",
    "batch_norm": "could be in the weights of the convolution or linear layer before it",
    _NORM_BEFORE: "could be in the weights of the convolution after it, which has no padding",
}
_SENTENCE: Mapping[str, str] = {
    _ATTENTION: f"{_ATTENTION} is decomposed: the parts around its products and softmax take",
    "gelu": "GELU in parts takes",
    "layer_norm": "Layer norm in parts takes",
    "softmax": "Softmax in parts takes",
    "hardswish": "Hardswish in parts takes",
    "batch_norm": "Batch norm that is not folded into the layer before it takes",
    _NORM_BEFORE: "Batch norm that is not folded into the convolution after it takes",
}


# XNNPACK has no layer norm: to leave the delegate and come back cost more than the parts at 64 x 96
# numbers (0.86 times as fast), and less at 128 x 512 (1.14 times).
_SMALL_NORM = 1 << 17  # bytes of a value


def _remedies(run: RunGraph, kind: str, nodes: Sequence[Node]) -> Iterator[Remedy]:
    line = first_line(nodes)
    there = f" at {line}" if line else ""
    if kind == _ATTENTION:
        yield Remedy(
            "Lower the attention with a plain softmax (the values differ only where a mask "
            "leaves no key to a row).",
            "pass",
            {"name": "fuse_sdpa"},
        )
        yield Remedy(
            f"Or write the attention out{there}: `torch.softmax(q @ k.transpose(-1, -2) * "
            "scale + mask, -1) @ v`, with a float mask."
        )
    elif kind == _NORM_BEFORE:
        yield Remedy(
            "Fold it into the convolution when the program is made.",
            "pass",
            {"name": "fold_batch_norms"},
        )
    elif kind == "batch_norm":
        yield Remedy(
            "Fold the batch norm before the export: "
            "`torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)`, or `fuse_linear_bn_eval`."
        )
        yield Remedy(
            "Or lower the model to XNNPACK, which folds batch norms: `etscope export MODEL "
            "--backend xnnpack`.",
            "backend",
            {"backend": "xnnpack"},
        )
    elif (
        kind == "layer_norm"
        and run.has_xnnpack
        and max(map(bytes_of, nodes), default=0) < _SMALL_NORM
    ):
        means = [one for one in nodes if stem(one.op) == "mean" and id(one) in run.kernels]
        if means:
            yield Remedy(
                f"Write its means in four dimensions{there}, which XNNPACK takes: "
                "`x.unsqueeze(-1).mean((2, 3), keepdim=True).squeeze(-1)`. "
                "`torch.nn.functional.layer_norm` runs outside of XNNPACK, which is slower for "
                "values as small as these.",
                paste=edits.patch_of(run, means),
            )
    else:
        function = f"torch.nn.functional.{kind}"
        more = '(..., approximate="tanh")' if "tanh" in {stem(n.op) for n in nodes} else ""
        if {function_of(node) for node in nodes} == {kind}:
            yield Remedy(
                f"The exporter decomposed {function}{there}: keep it, with "
                "`EdgeCompileConfig(preserve_ops=[...])`, or export with a newer ExecuTorch."
            )
        else:
            patch = getattr(edits, kind, None)
            yield Remedy(
                f"Write `{function}{more}`{there}.", paste="" if patch is None else patch(nodes)
            )
