"""Pair the values of a graph with those of a graph that was made of it: of a program before and
after it was quantised, decomposed or changed by passes; and with what modules return.

Nodes are paired by what both come from: the later node's `from_node` chain leads to the earlier
node, or to one that both come from. Where that is not recorded, by module and operator, if the
module has as many of them in both graphs. An operator that became several is paired by the value
that leaves these. Only nodes of the graphs themselves are paired, not those of branches and loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from etscope.analysis.profile.source_location import module_path
from etscope.model.graph import Graph, Node, NodeValue, TensorSpec, stem

_FOLDED = frozenset({"batch_norm", "native_batch_norm", "native_batch_norm_legit_no_training"})


@dataclass(frozen=True)
class Counterparts:
    """The values of an earlier graph that a later one has, too.

    values: value of the earlier graph -> the same value of the later one. owners: node of the later
    graph -> the earlier node that it is a part of. missing: earlier operators without a value in
    the later graph, with the reason.
    """

    values: Mapping[NodeValue, NodeValue]
    owners: Mapping[str, str]
    missing: Mapping[str, str]


def counterparts(earlier: Graph, later: Graph) -> Counterparts:
    """Pair the values of two graphs of a method, of which the later was made of the earlier."""
    groups = _groups(earlier, later)
    values: dict[NodeValue, NodeValue] = {}
    owners: dict[str, str] = {}
    for group in groups:
        first = _last_owner(earlier, group.earlier)
        for path in group.later:
            owners[path] = _same_op(earlier, group.earlier, later.calls[path]) or first
        values.update(_paired(earlier, later, group))
    _move_to_folded(earlier, later, values, owners)
    missing = {}
    paired = {value.path for value in values}
    known = {path for group in groups for path in group.earlier}
    for path, node in earlier.own_operators.items():
        if path not in paired and _has_tensor(node):
            missing[path] = (
                "it is unknown which value of the operators made of it is its own"
                if path in known
                else "no operator that was made of it is known"
            )
    return Counterparts(values, owners, missing)


# -- nodes that belong together


class _Group(NamedTuple):
    """Nodes of both graphs that are the same part of the model, by path, in order."""

    earlier: tuple[str, ...]
    later: tuple[str, ...]


def _groups(earlier: Graph, later: Graph) -> list[_Group]:
    linked = _links(earlier, later)
    groups: list[_Group] = []
    of_earlier: dict[str, str] = {}  # each to the first of its group

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
    for key, paths in earlier_of.items():
        groups.append(_Group(tuple(paths), tuple(later_of.get(key, ()))))
    known = {path for group in groups for path in group.earlier}
    groups += _by_module(earlier, later, known, set(linked))
    return groups


def _links(earlier: Graph, later: Graph) -> dict[str, list[str]]:
    """The earlier nodes that each later node comes from, as its `from_node` chain tells."""
    own: dict[tuple[int, str], list[str]] = {}
    shared: dict[tuple[int, str, str], list[str]] = {}
    for path, node in earlier.own_operators.items():
        if earlier.graph_id is not None:
            own.setdefault((earlier.graph_id, node.name), []).append(path)
        for origin in node.all_origins():
            shared.setdefault((origin.graph_id, origin.name, origin.target), []).append(path)
    found: dict[str, list[str]] = {}
    for path, node in later.own_operators.items():
        for origin in node.all_origins():
            key = origin.graph_id, origin.name
            paths = own.get(key) or shared.get((*key, origin.target))
            if paths:
                found[path] = paths
                break
    return found


def _by_module(earlier: Graph, later: Graph, known: set[str], linked: set[str]) -> list[_Group]:
    """Pair nodes that no chain leads to by module and operator."""

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


def is_quantization(node: Node) -> bool:
    """True for an operator that quantises, finds scales to do so, or goes back to floats."""
    return any(word in node.op for word in ("quantize", "choose_qparams"))


def _last_owner(graph: Graph, paths: Sequence[str]) -> str:
    """The node of a group that stands for it: the last that computes with tensors."""
    return next((one for one in reversed(paths) if _has_tensor(graph.calls[one])), paths[-1])


def _same_op(graph: Graph, paths: Sequence[str], node: Node) -> str | None:
    """The only node of a group with the operator of another; None without one."""
    same = [path for path in paths if stem(graph.calls[path].op) == stem(node.op)]
    return same[0] if len(same) == 1 else None


def _has_tensor(node: Node) -> bool:
    return any(value.tensor is not None for value in node.outputs)


# -- values of groups


def _paired(earlier: Graph, later: Graph, group: _Group) -> dict[NodeValue, NodeValue]:
    """The values of a group that both graphs have."""
    found: dict[NodeValue, NodeValue] = {}
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
    """The values of a node with several, of the only later node with as many of the same types."""
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
    """The pairs of the same types. Where the later graph alone quantises the value, it is the one
    that is read there."""
    return {
        first: as_used(later, second) if as_used(earlier, first) == first else second
        for first, second in zip(one, other, strict=True)
        if _is_same(earlier.spec_of(first), later.spec_of(second))
    }


def _leaving(graph: Graph, paths: Sequence[str]) -> list[NodeValue]:
    """The values of nodes that others read, each once: a value that is quantised and read from
    several dequantisations is the first of these."""
    inside = {id(graph.calls[path]) for path in paths}
    found: dict[NodeValue, None] = {}
    for path in paths:
        for value in graph.values_of(graph.calls[path]):
            if any(id(user) not in inside for user in _computing_users(graph, value)):
                found[_first_dequantized(graph, value)] = None
    return list(found)


def _computing_users(graph: Graph, value: NodeValue) -> list[Node]:
    """The nodes that read a value; through `getitem`, which hands an element on."""
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
    """The value that later operators read in place of one that is quantised at once, and back."""
    users = graph.users_of(value)
    if len(users) != 1 or not stem(users[0].op).startswith("quantize"):
        return value
    back = graph.users_of(graph.values_of(users[0])[0])
    if not back or not all(stem(user.op).startswith("dequantize") for user in back):
        return value
    result = graph.values_of(back[0])[0]
    return result if _is_same(graph.spec_of(value), graph.spec_of(result)) else value


def _is_same(one: TensorSpec | None, other: TensorSpec | None) -> bool:
    if one is None or other is None:
        return False
    return (
        one.dtype == other.dtype
        and len(one.shape) == len(other.shape)
        and all(
            a == b or isinstance(a, str) or isinstance(b, str)
            for a, b in zip(one.shape, other.shape, strict=True)
        )
    )


def _move_to_folded(
    earlier: Graph, later: Graph, values: dict[NodeValue, NodeValue], owners: dict[str, str]
) -> None:
    """Quantisation folds a batch norm into the convolution before: what the convolution is then is
    the value of the batch norm."""
    paired = {value.path for value in values}
    for path, node in earlier.own_operators.items():
        if stem(node.op) not in _FOLDED or path in paired:
            continue
        read = earlier.read_by(node)
        if not read or read[0] not in values or len(_computing_users(earlier, read[0])) != 1:
            continue
        own = earlier.values_of(node)[0]
        if not _is_same(earlier.spec_of(own), earlier.spec_of(read[0])):
            continue
        values[own] = values.pop(read[0])
        for part, owner in owners.items():
            if owner == read[0].path:
                owners[part] = path


# -- what modules return


def module_results(graph: Graph) -> dict[tuple[str, int], NodeValue]:
    """The value that each call of a module returns, by the module's path and the number of the
    call, where the graph shows one value only that leaves the module."""
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


__all__ = ["Counterparts", "as_used", "counterparts", "is_quantization", "module_results"]
