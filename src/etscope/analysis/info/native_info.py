"""Summarise a package of ExecuTorch's native backend (.ptn), and list its nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from etscope.formats.program.native import NativeConstant, NativeMethod, NativePackage
from etscope.model.report import Section, facts, rows
from etscope.model.table import Column, Kind, Table


def native_sections(package: NativePackage) -> tuple[Section, ...]:
    """Return the sections "file", "methods", "operators" and "constants"."""
    operators = Counter(
        (method.name, node.op)
        for method in package.methods
        for node in method.nodes
        if _is_call(node.kind)
    )
    found = (
        _head(package),
        _methods(package),
        rows(
            "operators",
            "Operators",
            (Column("method"), Column("operator"), Column("calls", Kind.COUNT)),
            [(*key, count) for key, count in operators.most_common()],
        ),
        rows(
            "constants",
            "Constants, the largest first",
            (
                Column("key"),
                Column("type"),
                Column("size", Kind.BYTES),
                Column("equal_to", title="equal to"),
                Column("is_mutated", Kind.BOOL, title="written"),
                Column("methods", Kind.LIST),
            ),
            _constants(package),
        ),
    )
    return tuple(section for section in found if len(section.table))


def _head(package: NativePackage) -> Section:
    return facts(
        "file",
        f"{package.archive.path}: package of ExecuTorch's native backend",
        (
            (Column("size", Kind.BYTES), len(package.archive.buffer)),
            (Column("methods", Kind.LIST), [method.name for method in package.methods]),
            (Column("constants", Kind.COUNT), len(package.tensors)),
            (
                Column("constants_size", Kind.BYTES, title="size of constants"),
                sum(span.size for span in package.tensors.values()),
            ),
            (Column("equal", Kind.COUNT, title="equal to another constant"), len(package.aliases)),
            (Column("members", Kind.LIST), list(package.archive.members)),
        ),
        notes=("ExecuTorch 1.5 does not have a runtime for it.",),
    )


def _methods(package: NativePackage) -> Section:
    return rows(
        "methods",
        "Methods",
        (
            Column("method"),
            Column("calls", Kind.COUNT),
            Column("inputs", Kind.LIST),
            Column("outputs", Kind.LIST),
            Column("buffers", Kind.LIST, title="buffers that begin as zeros"),
        ),
        [
            (
                method.name,
                sum(_is_call(node.kind) for node in method.nodes),
                _tensors(method, "placeholder"),
                _tensors(method, "output"),
                list(method.buffers),
            )
            for method in package.methods
        ],
    )


def _tensors(method: NativeMethod, kind: str) -> list[str]:
    """Return the inputs or outputs of a method with their types, without its constants."""
    bound = {constant.name for constant in method.constants}
    names = [
        name
        for node in method.nodes
        if node.kind == kind
        for name in (node.outputs if kind == "placeholder" else node.inputs)
    ]
    return [
        f"{name}: {method.types[name]}"
        for name in names
        if name not in bound and name in method.types
    ]


def _is_call(kind: str) -> bool:
    return kind == "call_function"


def _constants(package: NativePackage) -> list[tuple[Any, ...]]:
    readers: dict[str, tuple[NativeConstant, list[str]]] = {}
    for method in package.methods:
        for constant in method.constants:
            readers.setdefault(constant.key, (constant, []))[1].append(method.name)
    found = []
    for key, (constant, methods) in readers.items():
        span = package.tensors.get(package.aliases.get(key, key))
        size = None if span is None else span.size
        found.append(
            (key, str(constant.type), size, package.aliases.get(key), constant.is_mutated, methods)
        )
    return sorted(found, key=lambda row: -(row[2] or 0))


def native_nodes(package: NativePackage) -> list[Table]:
    """Return a table of the nodes of each method."""
    columns = (
        Column("node"),
        Column("op"),
        Column("output"),
        Column("inputs", Kind.LIST),
        Column("constants", Kind.LIST),
    )
    tables = []
    for method in package.methods:
        keys = {constant.name: constant.key for constant in method.constants}
        content = [
            (
                node.name,
                node.op or node.kind,
                ", ".join(str(method.types[name]) for name in node.outputs if name in method.types),
                [name for name in node.inputs if name not in keys],
                [keys[name] for name in node.inputs if name in keys],
            )
            for node in method.nodes
            if node.name not in keys
        ]
        title = f"{method.name} · {package.archive.path} · {len(content)} nodes"
        tables.append(Table.of_rows(columns, content, title=title))
    return tables
