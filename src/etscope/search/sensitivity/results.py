"""Groups of operators of a sensitivity analysis, its results, and their table and plot."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric
from etscope.analysis.program.source_location import lines_of, module_path, short_lines
from etscope.analysis.selector_fields import fields_of_node
from etscope.errors import MissingDataError, UsageError
from etscope.model.graph import Node
from etscope.model.selector import Selector
from etscope.model.table import Column, Kind, Table
from etscope.search.trial import FAILURES, Trial, reaches
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from etscope.bridge.lowering.keep_float import Unit

# -- Group the operators that may be kept in float together: by operator, module or node.


OP, MODULE, NODE = "op", "module", "node"
GROUPINGS = (OP, MODULE, NODE)


@dataclass(frozen=True, slots=True)
class Group:
    """Units that are kept in float together.

    selector: a selector that picks these units and no others. names: the names of all their nodes.
    units: the names of the units. modules, source: their modules and source lines. sources: names
    of units outside the group whose int8 values they use.
    """

    selector: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    modules: tuple[str, ...]
    source: str
    sources: frozenset[str]


def check_grouping(by: str, select: str | None) -> None:
    """Raise `UsageError` for an unknown grouping, and for an invalid selector."""
    if by not in GROUPINGS:
        raise UsageError(f"unknown grouping {by!r}", hint=f"it is {', '.join(GROUPINGS)}")
    if select is not None:
        Selector(select)


def groups_of(units: Sequence[Unit], by: str, select: str | None = None) -> list[Group]:
    """The groups, in execution order. Units that only move int8 values lose nothing and are in
    none.

    select: a selector; only units that it picks are in the groups. Raises `MissingDataError` when
    it picks nothing.
    """
    lossy = [unit for unit in units if not unit.moves]
    if select is not None:
        lossy = [unit for unit in lossy if picks(Selector(select), unit)]
        if not lossy:
            raise MissingDataError(f"{select!r} picks nothing that would be quantized")
    members: dict[str, list[Unit]] = {}
    for unit in lossy:
        first = unit.nodes[0]
        if by == OP:
            key = _op(first)
        else:
            key = (module_path(first) if by == MODULE else None) or first.name
        members.setdefault(key, []).append(unit)
    groups = []
    for found in members.values():
        nodes = [node for unit in found for node in unit.nodes]
        names = {unit.names[0] for unit in found}
        groups.append(
            Group(
                selector=_selector(found, units, by),
                names=tuple(node.name for node in nodes),
                units=tuple(unit.names[0] for unit in found),
                modules=tuple(dict.fromkeys(path for node in nodes if (path := module_path(node)))),
                source=short_lines(lines_of(unit.nodes[0] for unit in found)),
                sources=frozenset(name for unit in found for name in unit.sources) - names,
            )
        )
    return groups


def picks(selector: Selector, unit: Unit) -> bool:
    return any(selector.matches(fields_of_node(node)) for node in unit.nodes)


def _op(node: Node) -> str:
    """The operator without namespace and overload."""
    parts = node.op.split(".")
    return parts[1] if len(parts) > 1 else node.op


def _selector(members: Sequence[Unit], units: Sequence[Unit], by: str) -> str:
    """The shortest selector that picks these units and no other."""
    wanted = {unit.names[0] for unit in members}
    paths = {module_path(unit.nodes[0]) or "" for unit in members}
    ops = {_op(unit.nodes[0]) for unit in members}
    path = paths.pop() if len(paths) == 1 else ""
    op = ops.pop() if len(ops) == 1 else ""
    candidates = [f"module:{path}"] if path else []
    candidates += [f"module:{path} and op:{op}"] if path and op else []
    candidates += [f"op:{op}"] if op else []
    if by == OP:
        candidates.reverse()
    for text in candidates:
        selector = Selector(text)
        if {unit.names[0] for unit in units if picks(selector, unit)} == wanted:
            return text
    return " or ".join(unit.names[0] for unit in members)


def neighbours(groups: Sequence[Group]) -> list[frozenset[int]]:
    """Return for each group the positions of the groups that exchange int8 values with it.

    A value stays in float only if the unit that makes it and the units that use it all do.
    """
    owner = {name: index for index, group in enumerate(groups) for name in group.units}
    pairs = (
        frozenset((index, owner[name]))
        for index, group in enumerate(groups)
        for name in sorted(group.sources)
        if name in owner
    )
    return [pair for pair in dict.fromkeys(pairs) if len(pair) == 2]


def joined(groups: Sequence[Group], chosen: Iterable[int]) -> Mapping[str, tuple[str, ...]]:
    """The selectors, node names, modules and source lines of several groups."""
    picked = [groups[index] for index in sorted(chosen)]
    return {
        "selectors": tuple(group.selector for group in picked),
        "names": tuple(name for group in picked for name in group.names),
        "modules": tuple(dict.fromkeys(path for group in picked for path in group.modules)),
        "sources": tuple(dict.fromkeys(group.source for group in picked if group.source)),
    }


Key = frozenset[int]  # positions of the groups that are kept in float
_SMALL = 0.01  # smallest gain, as a share of the int8 model's error
_SMALL_DB = 0.1  # the same in dB, where a share means nothing


@dataclass(frozen=True, slots=True)
class Variant(Trial):
    """A program with some groups kept in float. error: with all samples taken together.

    worst, worst_sample: the metric of the worst sample alone, and its number.
    """

    worst: float | None = None
    worst_sample: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity(Shown):
    """Gains and costs of keeping parts of a model in float.

    int8, full: all quantized, and all in float. groups: the parts. variants: measurements by the
    positions of the groups kept. chosen: the set that the search ended with; empty when int8 is
    good enough, None when there was no search or no set is good enough. best: the best set that was
    measured. confirmed: the chosen set, exported anew by its selectors. times: ms, [rounds] of each
    program, by "int8", "float" and the variants' keys, rounds interleaved; final_times: the same of
    "int8", "float" and "chosen".
    """

    metric: Metric
    tolerance: float | None
    samples: int
    groups: tuple[Group, ...]
    int8: Variant
    full: Variant
    variants: Mapping[Key, Variant]
    chosen: Key | None
    best: Key
    confirmed: Variant | None
    times: Mapping[Any, npt.NDArray[np.float64]] = field(repr=False)
    final_times: Mapping[str, npt.NDArray[np.float64]] = field(repr=False)

    @property
    def reached(self) -> bool | None:
        """True if the chosen set reaches the tolerance; None without a tolerance."""
        return None if self.tolerance is None else self.chosen is not None

    @property
    def keep_float(self) -> tuple[str, ...]:
        """The selectors of the chosen set, for `export(keep_float=)`."""
        return tuple(self.groups[index].selector for index in sorted(self.chosen or ()))

    def table(self) -> Table:
        """A row for each program that was measured, or failed: the int8 model, variants by gain,
        the float model, and the chosen set, exported anew and timed once more next to both."""

        def order(key: Key) -> tuple[Any, ...]:
            variant = self.variants[key]
            failed = variant.failure is not None
            return failed, self.metric.badness(variant.error), len(key), sorted(key)

        keys = sorted(filter(None, self.variants), key=order)
        rows = [_row(self, "int8", self.int8, (), self.times)]
        rows += [_row(self, key, self.variants[key], key, self.times) for key in keys]
        rows.append(_row(self, "float", self.full, None, self.times))
        breaks = {1, len(rows) - 1}
        if self.chosen and self.confirmed is not None:
            breaks.add(len(rows))
            rows.append(_row(self, "chosen", self.confirmed, self.chosen, self.final_times))
        unit = self.metric.unit or None
        columns = (
            Column("what", title="kept in float"),
            Column("role", priority=9),
            Column("keep_float", Kind.LIST, priority=9),
            Column("nodes", Kind.LIST, priority=9),
            Column("modules", Kind.LIST, priority=8),
            Column("source", priority=1),
            Column(self.metric.name, Kind.FLOAT, unit),
            Column("gain", Kind.FLOAT, unit),
            Column("worst", Kind.FLOAT, unit, title="worst sample", priority=5),
            Column("worst_sample", Kind.INT, title="sample", priority=6),
            Column("time", Kind.DURATION, "ms", priority=2),
            Column("time_cost", Kind.DURATION, "ms", title="time cost"),
            Column("time_cost_percent", Kind.FLOAT, "%", title="of int8", priority=2),
            Column("time_spread", Kind.DURATION, "ms", title="±", priority=3),
            Column("size", Kind.BYTES, priority=5),
            Column("size_cost", Kind.INT, "bytes", title="size cost", priority=4),
            Column("verdict"),
            Column("detail", priority=7),
        )
        return Table.of_cells(
            columns,
            rows,
            title="Kept in float",
            notes=self._notes(),
            breaks=frozenset(breaks),
        )

    def _notes(self) -> tuple[str, ...]:
        samples = f"{self.samples:,} {'sample' if self.samples == 1 else 'samples'}"
        rounds = len(next(iter(self.times.values()), ()))
        notes = [
            f"{self.metric.name} against the float model in PyTorch, of the worst output, "
            f"{samples} taken as one.",
            f"Times: {rounds} interleaved rounds on the first sample; a cost below its ± may be "
            "noise.",
        ]
        failed = sum(one.failure is not None for one in self.variants.values())
        if failed:
            notes.append(
                f"{failed} of {len(self.variants)} variants failed; the column detail says why."
            )
        if self.tolerance is None:
            return (*notes, "Give a tolerance to search for a small set that reaches it.")
        wanted = f"{self.tolerance:g}{' ' + self.metric.unit if self.metric.unit else ''}"
        if self.chosen is None:
            best = joined(self.groups, self.best)["selectors"]
            error = (self.variants[self.best] if self.best else self.int8).error
            number = "no number" if error is None else f"{error:.4g}"
            return (
                *notes,
                f"No set that was measured reaches {wanted}. The best, {number}: "
                f"{_arguments(best) or 'int8 throughout'}",
            )
        if not self.chosen:
            return (*notes, f"int8 reaches {wanted}: nothing need be kept in float.")
        return (
            *notes,
            f"A small set that reaches {wanted}, not provably the smallest; exported anew and "
            "measured as a whole in the last row:",
            _arguments(self.keep_float),
        )


def gain(metric: Metric, number: float | None, base: float | None) -> float | None:
    """Return the improvement of a number over the int8 model's, in the metric's own unit."""
    if number is None or base is None:
        return None
    if number == base:
        return 0.0
    difference = number - base if metric.better == "higher" else base - number
    return difference if difference == difference else None


def _row(
    found: Sensitivity,
    name: str | Key,
    variant: Variant,
    kept: Iterable[int] | None,
    times: Mapping[Any, Any],
) -> dict[str, Any]:
    """name: the role, or the key of a variant. kept: the groups in float; None for all."""
    is_int8 = name == "int8"
    parts = joined(found.groups, kept or ())
    what = " + ".join(parts["selectors"]) or ("everything" if kept is None else "nothing")
    sizes = variant.size, found.int8.size
    row = {
        "what": what,
        "role": name if isinstance(name, str) else "variant",
        "keep_float": list(parts["selectors"]),
        "nodes": list(parts["names"]),
        "modules": list(parts["modules"]),
        "source": ", ".join(parts["sources"]) or None,
        found.metric.name: variant.error,
        "gain": None if is_int8 else gain(found.metric, variant.error, found.int8.error),
        "worst": variant.worst,
        "worst_sample": variant.worst_sample,
        **dict.fromkeys(("time", "time_cost", "time_cost_percent", "time_spread")),
        "size": variant.size,
        "size_cost": None if is_int8 or None in sizes else sizes[0] - sizes[1],  # type: ignore[operator]
        "verdict": verdict(found, variant, is_int8=is_int8),
        "detail": variant.detail or None,
    }
    # The median of the rounds; the median difference to the int8 model in the same round, and half
    # the interquartile range of these differences.
    mine, base = times.get(name), times.get("int8")
    if mine is not None and base is not None:
        row["time"] = float(np.median(mine))
        if not is_int8:
            low, cost, high = np.percentile(mine - base, [25, 50, 75])
            row["time_cost"] = float(cost)
            row["time_cost_percent"] = float(100 * cost / np.median(base))
            row["time_spread"] = float((high - low) / 2)
    return row


def verdict(found: Sensitivity, variant: Variant, *, is_int8: bool = False) -> str:
    """Judge a variant in a few words."""
    if variant.failure is not None:
        return FAILURES[variant.failure]
    if found.tolerance is not None and reaches(found.metric, variant.error, found.tolerance):
        return "good enough"
    if is_int8:
        return "as it is" if found.tolerance is None else "not good enough"
    base = found.int8.error
    difference = gain(found.metric, variant.error, base)
    if difference is None:
        return "no number"
    threshold = abs(base) * _SMALL if base is not None and np.isfinite(base) else 0.0
    if abs(difference) <= (_SMALL_DB if found.metric.unit == "dB" else threshold):
        return "no gain"
    return "helps" if difference > 0 else "worse"


def _arguments(selectors: Iterable[str]) -> str:
    return " ".join(f"-X {shlex.quote(f'keep_float={text}')}" for text in selectors)
