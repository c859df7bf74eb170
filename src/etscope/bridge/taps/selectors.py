"""Which nodes to tap, as functions of a node: for `etscope.intermediate_output_tap`."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from torch.fx import Node

from etscope.errors import UsageError

NodeSelector = Callable[[Node], bool]


def select_all_call_function(exclude: tuple[str, ...] = ("getitem",)) -> NodeSelector:
    """All nodes that call a function, but for those of the names in `exclude`."""

    def selects(node: Node) -> bool:
        names = {getattr(node.target, "__name__", ""), str(node.target)}
        return node.op == "call_function" and names.isdisjoint(exclude)

    return selects


def select_by_op_type(*op_targets: str) -> NodeSelector:
    """The nodes whose operator ends with one of these names: "aten.linear.default"."""
    _check(op_targets, "an operator's name")

    def selects(node: Node) -> bool:
        return node.op == "call_function" and str(node.target).endswith(op_targets)

    return selects


def select_by_module_path(*patterns: str, output_only: bool = True) -> NodeSelector:
    """The nodes of modules whose path fits one of these shell globs ("layers.*.attention").

    output_only: only the last nodes of each module, those whose values no node of it takes.
    """
    _check(patterns, "a pattern")
    return _of_modules(
        lambda path, _: any(fnmatchcase(path, pattern) for pattern in patterns), output_only
    )


def select_by_module_class(*class_names: str, output_only: bool = True) -> NodeSelector:
    """The nodes of modules of classes with one of these names, without their package ("Linear").
    `output_only` as for `select_by_module_path`."""
    _check(class_names, "a class's name")
    return _of_modules(lambda _, name: name in class_names, output_only)


def select_any(*selectors: NodeSelector) -> NodeSelector:
    """What one of these selects; nothing when there are none."""
    return lambda node: any(selects(node) for selects in selectors)


def select_all(*selectors: NodeSelector) -> NodeSelector:
    """What all of these select; everything when there are none."""
    return lambda node: all(selects(node) for selects in selectors)


def select_not(selector: NodeSelector) -> NodeSelector:
    """What this does not select."""
    return lambda node: not selector(node)


def module_frames(node: Node) -> list[tuple[str, str, str | None]]:
    """The modules around a node, the innermost last: key, path and class."""
    stack = node.meta.get("nn_module_stack") or {}
    return [(key, *_path_and_class(frame)) for key, frame in stack.items()]


def _path_and_class(frame: Any) -> tuple[str, str | None]:
    if not isinstance(frame, tuple):
        return str(frame), None
    kind = frame[1] if len(frame) > 1 else None
    name = None if kind is None else getattr(kind, "__name__", str(kind).rpartition(".")[2])
    return str(frame[0]), name


def _of_modules(fits: Callable[[str, str | None], bool], output_only: bool) -> NodeSelector:
    def selects(node: Node) -> bool:
        fitting = {key for key, path, name in module_frames(node) if fits(path, name)}
        if not fitting or not output_only:
            return bool(fitting)
        inside = {key for user in node.users for key, _, _ in module_frames(user)}
        return fitting.isdisjoint(inside)

    return selects


def _check(given: tuple[str, ...], what: str) -> None:
    if not given:
        raise UsageError(f"a selector needs at least {what}")
