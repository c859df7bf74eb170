"""Pair the values of an earlier and a later graph: of a program before and after quantization,
decomposition or passes; also with the results of modules.

Nodes are paired by their common origin: the later node's `from_node` chain leads to the earlier
node, or to a node that both come from. Nodes without such a chain are paired by module and
operator, if the module has equally many in both graphs. If no node has a chain, because the model
was exported anew (torchao's `quantize_` changes the module), nodes are aligned by operator, module
and result. An operator that became several is paired by the value that leaves these. Nodes of
branches and loops are not paired.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from etscope.analysis.matching.matching import graph_id_of, same_spec
from etscope.analysis.program.source_location import module_path
from etscope.model.common_subsequence import matched_in_turn
from etscope.model.graph import (
    SAME_VALUE,
    Graph,
    Node,
    NodeValue,
    TensorSpec,
    connected_groups,
    stem,
)

_Key = TypeVar("_Key", bound=Hashable)

# Operators that quantization folds into the convolution before them.
FOLDED = frozenset({"batch_norm", "native_batch_norm", "native_batch_norm_legit_no_training"})
# Operators of an exported model that later graphs lack, as they do nothing at inference.
_NOTHING = frozenset({"dropout", "native_dropout"})
_SAME_SHAPE = SAME_VALUE | {"expand"}  # the same values, if the shape stays
# Why an earlier operator has no value in the later graph.
_AMBIGUOUS = "it became several operators, and it is unknown which of their values is its value"
_WITHOUT_PARTS = "none of the later operators is known to come from it"


@dataclass(frozen=True)
class GraphAlignment:
    """The values that an earlier graph and a later one have in common.

    values: value of the earlier graph -> the same value of the later one as its readers see it:
    dequantized, if it is quantized. owners: node of the later graph -> the earlier node that it is
    a part of. missing: earlier operators without a value in the later graph, with the reason.
    added: later operators without an earlier one. of: float value of the later graph -> value of
    the earlier one, for all its forms: computed, quantized and dequantized, copied. Inputs are
    values of their placeholders. computed: the paths of the nodes that compute such a value,
    without copies and conversions. rounded: the paths of conversions with fixed parameters: their
    rounding belongs to the operator that computes the number. With parameters computed from the
    number (dynamic quantization), it belongs to the operator that reads it.
    """

    values: Mapping[NodeValue, NodeValue]
    owners: Mapping[str, str]
    missing: Mapping[str, str]
    added: tuple[str, ...]
    of: Mapping[NodeValue, NodeValue]
    computed: frozenset[str]
    rounded: frozenset[str]

    def unpaired(self, earlier: str, later: str) -> str:
        """Name the nodes without a counterpart in a sentence; "" without any. earlier, later: the
        kinds of the graphs."""
        return " and ".join(
            f"{len(paths)} node{'' if len(paths) == 1 else 's'} of the {kind} graph "
            f"({', '.join(paths[:3])}{', …' if len(paths) > 3 else ''})"
            for kind, paths in ((later, self.added), (earlier, tuple(self.missing)))
            if paths
        )


def align_graphs(earlier: Graph, later: Graph, between: Graph | None = None) -> GraphAlignment:
    """Pair the values of two graphs of a method; the later one was made from the earlier one.

    between: a graph between the two with the earlier one's operators (the quantized exported
    program of a quantized edge program); None if there is none.
    """
    return _Alignment(earlier, later).made(between)


def is_conversion(node: Node) -> bool:
    """True for an operator that quantizes or dequantizes."""
    return "quantize_" in stem(node.op)


def is_quantization(node: Node) -> bool:
    """True for an operator that quantizes, dequantizes, or chooses scales."""
    return is_conversion(node) or "qparams" in stem(node.op)


class _Group(NamedTuple):
    """Nodes of both graphs for the same part of the model, by path, in order."""

    earlier: list[str]
    later: list[str]


class _Alignment:
    """Pairs the values of two graphs group by group.

    values: value of the earlier graph -> of the later one, as computed. owners: see
    `GraphAlignment`.
    """

    def __init__(self, earlier: Graph, later: Graph) -> None:
        self.earlier, self.later = earlier, later
        self.values: dict[NodeValue, NodeValue] = {}
        self.owners: dict[str, str] = {}

    def made(self, between: Graph | None) -> GraphAlignment:
        earlier, later = self.earlier, self.later
        linked = _links(earlier, later)
        if linked:
            groups = self._joined(linked)
            groups += self._by_module({path for group in groups for path in group.earlier}, linked)
        else:
            groups = self._joined(self._in_order(between))
        for group in groups:
            nodes = group.earlier
            # The node with its value: the last one that computes with tensors.
            computing = [one for one in nodes if _has_tensor(earlier.calls[one])]
            last = (computing or nodes)[-1]
            for path in group.later:
                own = stem(later.calls[path].op)
                same = [one for one in nodes if stem(earlier.calls[one].op) == own]
                self.owners[path] = same[0] if len(same) == 1 else last
            self._pair(group)
        folded = self._move_to_folded()
        of = {other: one for one, other in self.values.items()}
        computed = frozenset(value.path for value in of)
        rounded = self._add_copies(of)
        known = {path for group in groups if group.later for path in group.earlier}
        paired = {value.path for value in self.values} | folded
        return GraphAlignment(
            # If only the later graph quantizes a value: the value that is read there.
            values={
                one: _as_used(later, other) if _as_used(earlier, one) == one else other
                for one, other in self.values.items()
            },
            owners=self.owners,
            missing={
                path: _AMBIGUOUS if path in known else _WITHOUT_PARTS
                for path, node in earlier.own_operators.items()
                if path not in paired and _has_tensor(node) and stem(node.op) not in _NOTHING
            },
            added=self._added(of),
            of={
                value: one
                for value, one in of.items()
                if (spec := later.spec_of(value)) is not None and "float" in spec.dtype
            },
            computed=computed,
            rounded=rounded,
        )

    def _added(self, of: Mapping[NodeValue, NodeValue]) -> tuple[str, ...]:
        """Return the later operators without an earlier one, without conversions and operators on
        weights only."""
        later, constant, known = self.later, set(self.later.parameters), set(self.owners)
        for path, node in later.own_operators.items():
            if node.inputs and all(later.by_name[name].name in constant for name in node.inputs):
                constant.add(node.name)
                known.add(path)
        return tuple(
            path
            for path, node in later.own_operators.items()
            if path not in known
            and _has_tensor(node)
            and not is_quantization(node)
            and not any(value in of for value in later.values_of(node))
        )

    # -- groups of nodes

    def _joined(self, linked: Mapping[str, Sequence[str]]) -> list[_Group]:
        """Join the origins of each later node with all nodes that come from them."""
        links = [(path, sources[0]) for sources in linked.values() for path in sources]
        group_of: dict[str, _Group] = {}
        for paths in connected_groups({path for link in links for path in link}, links):
            group_of.update(dict.fromkeys(paths, _Group([], [])))
        groups: dict[int, _Group] = {}
        for path in self.earlier.own_operators:
            if path in group_of:
                groups[id(group_of[path])] = group_of[path]
                group_of[path].earlier.append(path)
        for path in self.later.own_operators:
            if path in linked:
                group_of[linked[path][0]].later.append(path)
        return list(groups.values())

    def _in_order(self, between: Graph | None) -> dict[str, list[str]]:
        """Return the earlier node of each later one, aligned without their origins."""
        base = self.later if between is None else between
        paths, tokens = [], []
        for graph in (self.earlier, base):
            nodes = {p: n for p, n in graph.own_operators.items() if not is_quantization(n)}
            paths.append(list(nodes))
            tokens.append(
                [
                    (
                        stem(node.op),
                        module_path(node),
                        tuple(_shape(graph, value) for value in graph.values_of(node)),
                    )
                    for node in nodes.values()
                ]
            )
        pairs = matched_in_turn(
            tokens[0],
            tokens[1],
            [lambda token: token, lambda token: token[:2], lambda token: (token[0], token[2])],
        )
        found = {paths[1][j]: [paths[0][i]] for i, j in pairs}
        if between is None:
            return found
        return {
            path: found[sources[0]]
            for path, sources in _links(between, self.later).items()
            if sources[0] in found
        }

    def _by_module(self, known: Collection[str], linked: Collection[str]) -> list[_Group]:
        """Pair nodes without a chain by module and operator."""
        ones, others = (
            _grouped(
                (path, (module_path(node), stem(node.op)))
                for path, node in graph.own_operators.items()
                if path not in without and not is_quantization(node)
            )
            for graph, without in ((self.earlier, known), (self.later, linked))
        )
        return [
            _Group([one], [other])
            for place, paths in ones.items()
            if len(others.get(place, ())) == len(paths)
            for one, other in zip(paths, others[place], strict=True)
        ]

    # -- values of groups

    def _pair(self, group: _Group) -> None:
        """Add the values of a group that both graphs compute."""
        earlier, later, theirs = self.earlier, self.later, group.later
        if not any(is_quantization(earlier.calls[path]) for path in group.earlier):
            theirs = [path for path in theirs if not is_quantization(later.calls[path])]
        if not theirs:
            return
        only = earlier.calls[group.earlier[0]] if len(group.earlier) == 1 else None
        if only is not None and len(only.outputs) > 1:
            self._pair_elements(only, theirs)
            return
        one, other = _leaving(earlier, group.earlier), _leaving(later, theirs)
        if len(one) == len(other) == 1:
            self._take(one, other)
            return
        ops, their_ops = (
            _grouped((path, stem(graph.calls[path].op)) for path in paths)
            for graph, paths in ((earlier, group.earlier), (later, theirs))
        )
        if {op: len(paths) for op, paths in ops.items()} == {
            op: len(paths) for op, paths in their_ops.items()
        }:
            for op, paths in ops.items():
                for first, second in zip(paths, their_ops[op], strict=True):
                    values = earlier.values_of(earlier.calls[first])
                    others = later.values_of(later.calls[second])
                    if len(values) == len(others):
                        self._take(values, others)
            return
        for value in one:
            spec = earlier.spec_of(value)
            same = [v for v in other if _is_same(spec, later.spec_of(v))]
            mine_too = [v for v in one if _is_same(spec, earlier.spec_of(v))]
            if len(same) == len(mine_too) == 1:
                self._take([value], same)

    def _pair_elements(self, node: Node, paths: Sequence[str]) -> None:
        """Add the values of a node with several, from the only later node with equally many of the
        same types."""
        values = self.earlier.values_of(node)
        for path in reversed(paths):
            others = self.later.values_of(self.later.calls[path])
            if len(others) == len(values) and self._take(values, others):
                return
        leaving = _leaving(self.later, paths)
        used = [value for value in values if self.earlier.users_of(value)]
        if len(used) == len(leaving) == 1:
            self._take(used, leaving)

    def _take(self, one: Iterable[NodeValue], other: Iterable[NodeValue]) -> bool:
        """Add the pairs of the same types; False without any."""
        found = {
            first: second
            for first, second in zip(one, other, strict=True)
            if _is_same(self.earlier.spec_of(first), self.later.spec_of(second))
        }
        self.values.update(found)
        return bool(found)

    def _move_to_folded(self) -> set[str]:
        """Move values of a batch norm to the convolution before it, if quantization folded the norm
        into it. Return the paths of such convolutions."""
        earlier, folded = self.earlier, set()
        known = {value.path for value in self.values} | set(self.owners.values())
        for path, node in earlier.own_operators.items():
            if stem(node.op) not in FOLDED or path in known:
                continue
            read = earlier.read_by(node)
            if not read or read[0] not in self.values or len(_readers(earlier, read[0])) != 1:
                continue
            own = earlier.values_of(node)[0]
            if not _is_same(earlier.spec_of(own), earlier.spec_of(read[0])):
                continue
            self.values[own] = self.values.pop(read[0])
            folded.add(read[0].path)
            for part, owner in self.owners.items():
                if owner == read[0].path:
                    self.owners[part] = path
        return folded

    def _add_copies(self, of: dict[NodeValue, NodeValue]) -> frozenset[str]:
        """Add the later values that convert or copy others, or inputs. Return the paths of the
        conversions with fixed parameters."""
        later = self.later
        inputs, sources = (
            [name for name in graph.inputs if name not in graph.parameters]
            for graph in (later, self.earlier)
        )
        of_input = dict(zip(inputs, sources, strict=False))
        rounded = set()
        for path, node in later.own_operators.items():
            own = NodeValue(path)
            if own in of or not (is_conversion(node) or stem(node.op) in _SAME_SHAPE):
                continue
            first = node.inputs[0] if node.inputs else ""
            value = later.value_named(first, later)
            if first in of_input:
                source = NodeValue(of_input[first])
            elif value is not None and value in of:
                source = of[value]
            else:
                continue
            if is_conversion(node) or _shape(self.earlier, source) == _shape(later, own):
                of[own] = source
            is_dynamic = any("qparams" in later.calls[one.path].op for one in later.read_by(node))
            if is_conversion(node) and not is_dynamic:
                rounded.add(path)
        return frozenset(rounded)


def _links(earlier: Graph, later: Graph) -> dict[str, list[str]]:
    """Return the earlier nodes that each later node comes from, by its `from_node` chain."""
    number = graph_id_of(later, earlier)
    found: dict[str, list[str]] = {}
    for path, node in later.own_operators.items():
        for origin in node.all_origins():
            if origin.graph_id == number and origin.name in earlier.own_operators:
                found[path] = [origin.name]
                break
    shared = _grouped(
        (path, (origin.graph_id, origin.name, origin.target))
        for path, node in earlier.own_operators.items()
        for origin in node.all_origins()
    )
    # Graph ids can be reused after a graph is gone. If the later graph names unknown nodes under an
    # id, the id belongs to another graph.
    ids = {number for number, _, _ in shared} if not found else set()
    foreign = {
        origin.graph_id
        for node in later.own_operators.values()
        for origin in node.all_origins()
        if origin.graph_id in ids and (origin.graph_id, origin.name, origin.target) not in shared
    }
    for path, node in later.own_operators.items():
        for origin in node.all_origins() if path not in found else ():
            paths = shared.get((origin.graph_id, origin.name, origin.target))
            if paths and origin.graph_id not in foreign:
                found[path] = paths
                break
    return found


def _grouped(pairs: Iterable[tuple[str, _Key]]) -> dict[_Key, list[str]]:
    found: dict[_Key, list[str]] = {}
    for path, key in pairs:
        found.setdefault(key, []).append(path)
    return found


def _has_tensor(node: Node) -> bool:
    return any(value.tensor is not None for value in node.outputs)


def _is_same(one: TensorSpec | None, other: TensorSpec | None) -> bool:
    """True for equal, known specs: two values without a spec are not the same."""
    return one is not None and same_spec(one, other)


def _shape(graph: Graph, value: NodeValue) -> tuple[int | str, ...] | None:
    """The shape of a value, or of an input; None for a number."""
    if value.path in graph.calls:
        spec = graph.spec_of(value)
    else:
        spec = graph.by_name[value.path].outputs[0].tensor
    return None if spec is None else spec.shape


def _readers(graph: Graph, value: NodeValue) -> list[Node]:
    """The nodes that read a value, without `getitem`."""
    return [user for user in graph.users_of(value) if user.op != "getitem"]


def _leaving(graph: Graph, paths: Sequence[str]) -> list[NodeValue]:
    """Return the values that other nodes read, each once: for a value with several dequantized
    copies, the first copy."""
    inside = {id(graph.calls[path]) for path in paths}
    found: dict[NodeValue, None] = {}
    for path in paths:
        node = graph.calls[path]
        for value in graph.values_of(node):
            if all(id(user) in inside for user in _readers(graph, value)):
                continue
            read = graph.read_by(node) if stem(node.op).startswith("dequantize") else []
            copies = [
                user
                for user in (graph.users_of(read[0]) if read else ())
                if stem(user.op).startswith("dequantize")
            ]
            found[graph.values_of(copies[0])[0] if copies else value] = None
    return list(found)


def _as_used(graph: Graph, value: NodeValue) -> NodeValue:
    """Return the value that later operators read: the dequantized one, if the value is quantized at
    once."""
    users = graph.users_of(value)
    if len(users) != 1 or not stem(users[0].op).startswith("quantize"):
        return value
    back = graph.users_of(graph.values_of(users[0])[0])
    if not back or not all(stem(user.op).startswith("dequantize") for user in back):
        return value
    result = graph.values_of(back[0])[0]
    return result if _is_same(graph.spec_of(value), graph.spec_of(result)) else value


# -- results of modules


def module_results(graph: Graph) -> dict[tuple[str, int], NodeValue]:
    """Return the result of each call of a module, by the module's path and the number of the call,
    if exactly one value leaves the module."""
    inside: dict[tuple[str, int], list[str]] = {}
    for path, node in graph.own_operators.items():
        for frame in node.modules:
            if frame.path:
                number = frame.key.rpartition("@")[2] if "@" in frame.key else "0"
                call = int(number) if number.isdecimal() else 0
                inside.setdefault((frame.path, call), []).append(path)
    found: dict[tuple[str, int], NodeValue] = {}
    for place, paths in inside.items():
        leaving = _leaving(graph, paths)
        if len(leaving) == 1:
            found[place] = leaving[0]
    return found


__all__ = [
    "FOLDED",
    "GraphAlignment",
    "align_graphs",
    "is_quantization",
    "module_results",
]
