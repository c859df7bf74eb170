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

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from etscope.analysis.matching.matching import graph_id_of, same_spec
from etscope.analysis.program.source_location import module_path
from etscope.model.common_subsequence import matched_in_turn
from etscope.model.graph import SAME_VALUE, Graph, Node, NodeValue, TensorSpec, stem

# Operators that quantization folds into the convolution before them.
FOLDED = frozenset({"batch_norm", "native_batch_norm", "native_batch_norm_legit_no_training"})
# checks of an exported model: later graphs lack them
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
    linked = _links(earlier, later)
    if linked:
        groups = _joined(earlier, later, linked)
        paths = {path for group in groups for path in group.earlier}
        groups += _by_module(earlier, later, paths, set(linked))
    else:
        groups = _joined(earlier, later, _aligned(earlier, later, between))
    found: dict[NodeValue, NodeValue] = {}
    owners: dict[str, str] = {}
    for group in groups:
        nodes = group.earlier
        # The node with its value: the last one that computes with tensors.
        last = next((one for one in reversed(nodes) if _has_tensor(earlier.calls[one])), nodes[-1])
        for path in group.later:
            own = stem(later.calls[path].op)
            same = [one for one in nodes if stem(earlier.calls[one].op) == own]
            owners[path] = same[0] if len(same) == 1 else last
        found.update(_paired(earlier, later, group))
    folded = _move_to_folded(earlier, found, owners)
    of = {other: one for one, other in found.items()}
    computed = frozenset(value.path for value in of)
    rounded = _add_copies(earlier, later, of)
    known = {path for group in groups if group.later for path in group.earlier}
    paired = {value.path for value in found} | folded
    return GraphAlignment(
        # If only the later graph quantizes a value: the value that is read there.
        values={
            one: as_used(later, other) if as_used(earlier, one) == one else other
            for one, other in found.items()
        },
        owners=owners,
        missing={
            path: _AMBIGUOUS if path in known else _WITHOUT_PARTS
            for path, node in earlier.own_operators.items()
            if path not in paired and _has_tensor(node) and stem(node.op) not in _NOTHING
        },
        added=_added(later, of, owners),
        of={
            value: one
            for value, one in of.items()
            if (spec := later.spec_of(value)) is not None and "float" in spec.dtype
        },
        computed=computed,
        rounded=rounded,
    )


def _added(
    later: Graph, of: Mapping[NodeValue, NodeValue], owners: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the later operators without an earlier one, without conversions and operators on
    weights only."""
    constant = set(later.parameters)
    known = {*owners}
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


class _Group(NamedTuple):
    """Nodes of both graphs for the same part of the model, by path, in order."""

    earlier: tuple[str, ...]
    later: tuple[str, ...]


def _joined(earlier: Graph, later: Graph, linked: Mapping[str, Sequence[str]]) -> list[_Group]:
    """Join the origins of each later node with all nodes that come from them."""
    of_earlier: dict[str, str] = {}  # node -> the first node of its group

    def root(path: str) -> str:
        while of_earlier.setdefault(path, path) != path:
            path = of_earlier[path]
        return path

    for sources in linked.values():
        for path in sources:
            of_earlier[root(path)] = root(sources[0])
    earlier_of: dict[str, list[str]] = {}
    for path in earlier.own_operators:
        if path in of_earlier:
            earlier_of.setdefault(root(path), []).append(path)
    later_of: dict[str, list[str]] = {}
    for path in later.own_operators:
        if path in linked:
            later_of.setdefault(root(linked[path][0]), []).append(path)
    return [_Group(tuple(paths), tuple(later_of.get(key, ()))) for key, paths in earlier_of.items()]


def _links(earlier: Graph, later: Graph) -> dict[str, list[str]]:
    """Return the earlier nodes that each later node comes from, by its `from_node` chain."""
    number = graph_id_of(later, earlier)
    found: dict[str, list[str]] = {}
    for path, node in later.own_operators.items():
        for origin in node.all_origins():
            if origin.graph_id == number and origin.name in earlier.own_operators:
                found[path] = [origin.name]
                break
    shared: dict[tuple[int, str, str], list[str]] = {}
    for path, node in earlier.own_operators.items():
        for origin in node.all_origins():
            shared.setdefault((origin.graph_id, origin.name, origin.target), []).append(path)
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


def _aligned(earlier: Graph, later: Graph, between: Graph | None) -> dict[str, list[str]]:
    """Return the earlier node of each later one, aligned without their origins."""
    base = later if between is None else between
    ones, others = (
        [(path, node) for path, node in graph.own_operators.items() if not is_quantization(node)]
        for graph in (earlier, base)
    )
    pairs = matched_in_turn(
        [_token(earlier, node) for _, node in ones],
        [_token(base, node) for _, node in others],
        [lambda token: token, lambda token: token[:2], lambda token: (token[0], token[2])],
    )
    found = {others[j][0]: [ones[i][0]] for i, j in pairs}
    if between is None:
        return found
    return {
        path: found[sources[0]]
        for path, sources in _links(between, later).items()
        if sources[0] in found
    }


def _token(graph: Graph, node: Node) -> tuple[object, ...]:
    shapes = tuple(_shape(graph, value) for value in graph.values_of(node))
    return stem(node.op), module_path(node), shapes


def _by_module(earlier: Graph, later: Graph, known: set[str], linked: set[str]) -> list[_Group]:
    """Pair nodes without a chain by module and operator."""

    def by_place(graph: Graph, without: set[str]) -> dict[tuple[str | None, str], list[str]]:
        places: dict[tuple[str | None, str], list[str]] = {}
        for path, node in graph.own_operators.items():
            if path not in without and not is_quantization(node):
                places.setdefault((module_path(node), stem(node.op)), []).append(path)
        return places

    others = by_place(later, linked)
    return [
        _Group((one,), (other,))
        for place, paths in by_place(earlier, known).items()
        if len(others.get(place, ())) == len(paths)
        for one, other in zip(paths, others[place], strict=True)
    ]


def is_conversion(node: Node) -> bool:
    """True for an operator that quantizes or dequantizes."""
    return "quantize_" in stem(node.op)


def is_quantization(node: Node) -> bool:
    """True for an operator that quantizes, dequantizes, or chooses scales."""
    return is_conversion(node) or "qparams" in stem(node.op)


def _has_tensor(node: Node) -> bool:
    return any(value.tensor is not None for value in node.outputs)


# -- values of groups


def _paired(earlier: Graph, later: Graph, group: _Group) -> dict[NodeValue, NodeValue]:
    """Return the values of a group that both graphs compute."""
    found: dict[NodeValue, NodeValue] = {}
    if not any(is_quantization(earlier.calls[path]) for path in group.earlier):
        computing = [path for path in group.later if not is_quantization(later.calls[path])]
        group = _Group(group.earlier, tuple(computing))
    if not group.later:
        return found
    for path in group.earlier:
        node = earlier.calls[path]
        if len(node.outputs) > 1 and len(group.earlier) == 1:
            return _paired_elements(earlier, later, node, group.later)
    one, other = _leaving(earlier, group.earlier), _leaving(later, group.later)
    if len(one) == len(other) == 1:
        return _fitting(earlier, later, one, other)
    ops = [Counter(stem(graph.calls[path].op) for path in paths) for graph, paths in (
        (earlier, group.earlier), (later, group.later))]  # fmt: skip
    if ops[0] == ops[1]:
        for name in ops[0]:
            mine = [path for path in group.earlier if stem(earlier.calls[path].op) == name]
            theirs = [path for path in group.later if stem(later.calls[path].op) == name]
            for first, second in zip(mine, theirs, strict=True):
                values = earlier.values_of(earlier.calls[first])
                others = later.values_of(later.calls[second])
                if len(values) == len(others):
                    found.update(_fitting(earlier, later, values, others))
        return found
    for value in one:
        spec = earlier.spec_of(value)
        same = [v for v in other if _is_same(spec, later.spec_of(v))]
        mine_too = [v for v in one if _is_same(spec, earlier.spec_of(v))]
        if len(same) == len(mine_too) == 1:
            found.update(_fitting(earlier, later, [value], same))
    return found


def _paired_elements(
    earlier: Graph, later: Graph, node: Node, paths: Sequence[str]
) -> dict[NodeValue, NodeValue]:
    """Return the values of a node with several, from the only later node with equally many of the
    same types."""
    values = earlier.values_of(node)
    for path in reversed(paths):
        others = later.values_of(later.calls[path])
        if len(others) == len(values):
            found = _fitting(earlier, later, values, others)
            if found:
                return found
    leaving = _leaving(later, paths)
    used = [value for value in values if earlier.users_of(value)]
    if len(used) == len(leaving) == 1:
        return _fitting(earlier, later, used, leaving)
    return {}


def _fitting(
    earlier: Graph, later: Graph, one: Iterable[NodeValue], other: Iterable[NodeValue]
) -> dict[NodeValue, NodeValue]:
    """The pairs of the same types."""
    return {
        first: second
        for first, second in zip(one, other, strict=True)
        if _is_same(earlier.spec_of(first), later.spec_of(second))
    }


def _leaving(graph: Graph, paths: Sequence[str]) -> list[NodeValue]:
    """Return the values that other nodes read, each once: for a value with several dequantized
    copies, the first copy."""
    inside = {id(graph.calls[path]) for path in paths}
    found: dict[NodeValue, None] = {}
    for path in paths:
        for value in graph.values_of(graph.calls[path]):
            if any(id(user) not in inside for user in _computing_users(graph, value)):
                found[_first_dequantized(graph, value)] = None
    return list(found)


def _computing_users(graph: Graph, value: NodeValue) -> list[Node]:
    """Yield the nodes that read a value, directly or through `getitem`."""
    return [user for user in graph.users_of(value) if user.op != "getitem"]


def _first_dequantized(graph: Graph, value: NodeValue) -> NodeValue:
    node = graph.calls[value.path]
    if not stem(node.op).startswith("dequantize"):
        return value
    read = graph.read_by(node)
    if not read:
        return value
    users = [user for user in graph.users_of(read[0]) if stem(user.op).startswith("dequantize")]
    return graph.values_of(users[0])[0] if users else value


def as_used(graph: Graph, value: NodeValue) -> NodeValue:
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


def _is_same(one: TensorSpec | None, other: TensorSpec | None) -> bool:
    """True for equal, known specs: two values without a spec are not the same."""
    return one is not None and same_spec(one, other)


def _move_to_folded(
    earlier: Graph, found: dict[NodeValue, NodeValue], owners: dict[str, str]
) -> set[str]:
    """Move values of a batch norm to the convolution before it, if quantization folded the norm
    into it. Return the paths of such convolutions."""
    folded = set()
    known = {value.path for value in found} | set(owners.values())
    for path, node in earlier.own_operators.items():
        if stem(node.op) not in FOLDED or path in known:
            continue
        read = earlier.read_by(node)
        if not read or read[0] not in found or len(_computing_users(earlier, read[0])) != 1:
            continue
        own = earlier.values_of(node)[0]
        if not _is_same(earlier.spec_of(own), earlier.spec_of(read[0])):
            continue
        found[own] = found.pop(read[0])
        folded.add(read[0].path)
        for part, owner in owners.items():
            if owner == read[0].path:
                owners[part] = path
    return folded


# -- conversions and copies of values


def _add_copies(earlier: Graph, later: Graph, of: dict[NodeValue, NodeValue]) -> frozenset[str]:
    """Add the later values that convert or copy others, or inputs. Return the paths of the
    conversions with fixed parameters."""
    inputs = dict(zip(_user_inputs(later), _user_inputs(earlier), strict=False))
    rounded = set()
    for path, node in later.own_operators.items():
        own = NodeValue(path)
        if own in of or not (is_conversion(node) or stem(node.op) in _SAME_SHAPE):
            continue
        first = node.inputs[0] if node.inputs else ""
        value = later.value_named(first, later)
        if first in inputs:
            source = NodeValue(inputs[first])
        elif value is not None and value in of:
            source = of[value]
        else:
            continue
        if is_conversion(node) or _shape(earlier, source) == _shape(later, own):
            of[own] = source
        is_dynamic = any("qparams" in later.calls[value.path].op for value in later.read_by(node))
        if is_conversion(node) and not is_dynamic:
            rounded.add(path)
    return frozenset(rounded)


def _user_inputs(graph: Graph) -> list[str]:
    return [name for name in graph.inputs if name not in graph.parameters]


def _shape(graph: Graph, value: NodeValue) -> tuple[int | str, ...] | None:
    """The shape of a value, or of an input; None for a number."""
    if value.path in graph.calls:
        spec = graph.spec_of(value)
    else:
        spec = graph.by_name[value.path].outputs[0].tensor
    return None if spec is None else spec.shape


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
    "as_used",
    "is_quantization",
    "module_results",
]
