"""Find where an error enters: compare each stage of a model, from the eager module to the device,
with the stage before, operator by operator.

Each step measures the operator's own error: the earlier stage computes the operator from the later
stage's operands, and the results are compared. The limits come from `analysis.numerics.limits`,
with two exceptions:

- Quantization changes numbers by design. An operator is wrong there when its error is more than
  `QUANTIZATION_SHARE` of its result, both as root mean squares: a tenth with 8 bits, the
  rounding error of numbers with a largest value of 44 times their root mean square.
- Where both stages quantize, numbers next to the middle between two steps may be rounded to either
  side: `TIES` of the elements of a result are left out, those with the largest errors. The rest has
  the tolerance of the dtype.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any

import numpy as np

from etscope.analysis.matching.graph_alignment import is_quantization
from etscope.analysis.metrics import Metric, measure
from etscope.analysis.numerics.diagnose import Recomputed, Subgraphs
from etscope.analysis.numerics.error_location import WrongPart
from etscope.analysis.numerics.limits import (
    Judged,
    Rules,
    agreeing,
    difference,
    exceeds,
    judge,
    screened,
    tolerated,
)
from etscope.analysis.numerics.rows import FINE, WRONG, Narrowed, Numerics, guilty_call
from etscope.analysis.program.source_location import lines_of, module_path, short_lines
from etscope.model.graph import Graph, Node, NodeValue, SourceLine
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown
from etscope.units import listed

EAGER, EXPORTED, QUANTIZED = "eager", "exported", "quantized"
EDGE, PASSES, DEVICE = "edge", "passes", "device"
EXPORT, QUANTIZATION, DECOMPOSITION = "export", "quantization", "decomposition"
LOWERING, KERNEL = "lowering", "kernel"

QUANTIZATION_SHARE = {8: 0.1, 4: 0.2}  # by the largest number of bits that it is for
TIES = 1e-3
_SHOWN = 3  # operators of a step that a sentence names
_LINES = 6  # of an operator that a sentence names

# The values of the later stage of a node, as (element, array).
LaterValues = Callable[[str, int], Collection[tuple[int | None, Any]]]
# The later values of each earlier node: its own element, and the later node with its element.
Places = Mapping[str, Sequence[tuple[int | None, str, int | None]]]


@dataclass(frozen=True, slots=True, eq=False)
class StageError:
    """The error of an operator in one step, compared with the stage before.

    node: the node in the stage before. local: the operator's own error. limit: the largest
    acceptable local error. total: the error between the later and the earlier stage's values, each
    computed from the model's inputs. All are in the metric; None where nothing can be compared.
    excess: the local error divided by the limit, as root mean squares. verdict: "wrong", "fine", or
    another verdict from `analysis.numerics.rows`. lines: the lines of Python that compute the value
    since the last values that both stages have.
    """

    node: str
    local: float | None
    total: float | None
    limit: float | None
    excess: float
    verdict: str
    lines: tuple[SourceLine, ...] = ()
    part: WrongPart | None = None
    is_delegate: bool = False

    @property
    def rank(self) -> tuple[bool, float]:
        """Return a key for sorting errors: the worse of two errors has the larger key."""
        return self.verdict == WRONG, self.excess


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is compared with the one before it.

    step: what made it from the stage before. compared, of: how many of its values were compared,
    out of how many. what: the kind of these values, "operators", "modules" or "logged values".
    """

    name: str
    step: str
    compared: int
    of: int
    what: str = "operators"
    output: float | None = None  # the worst total error of the model's outputs

    def __str__(self) -> str:
        return f"{self.name} {self.compared:,} of {self.of:,} {self.what}"


@dataclass(frozen=True, slots=True, eq=False)
class StageRow(Shown):
    """An operator in all stages.

    node, op: its node in the first graph that has it. errors: its errors by the name of the stage.
    causes: a more specific name of the step, by the name of the stage ("decomposition" for a part
    of lowering).
    """

    node: str
    op: str
    module: str | None
    lines: tuple[SourceLine, ...]
    errors: Mapping[str, StageError]
    causes: Mapping[str, str]

    def wrong_in(self, stages: Sequence[Stage]) -> tuple[str, ...]:
        """The steps where the operator is wrong, in order."""
        return tuple(
            self.causes.get(stage.name, stage.step)
            for stage in stages
            if stage.name in self.errors and self.errors[stage.name].verdict == WRONG
        )


@dataclass(frozen=True)
class NumericStages(Shown):
    """The operators of a model in all stages, in order of execution.

    first: the name of the first stage, which the second is compared with. absent: why stages are
    missing. doubts: reasons why the comparison may mislead. device: the diagnosis of the device's
    run.
    """

    method: str
    metric: Metric
    first: str
    stages: tuple[Stage, ...]
    rows: tuple[StageRow, ...]
    device: Numerics
    absent: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    narrowed: Narrowed | None = None

    @cached_property
    def wrong(self) -> Mapping[str, tuple[StageRow, ...]]:
        """The operators that are wrong in a step, by the step, in order of the steps."""
        found: dict[str, list[StageRow]] = {}
        for stage in self.stages:
            for row in self.rows:
                error = row.errors.get(stage.name)
                if error is not None and error.verdict == WRONG:
                    found.setdefault(row.causes.get(stage.name, stage.step), []).append(row)
        return {step: tuple(rows) for step, rows in found.items()}

    @property
    def enters_in(self) -> str | None:
        """The first step with a wrong operator; None without one."""
        return next(iter(self.wrong), None)

    @property
    def first_wrong(self) -> StageRow | None:
        step = self.enters_in
        return None if step is None else self.wrong[step][0]

    @property
    def is_fine(self) -> bool:
        """True if no operator is wrong in any step, and the device has no stray NaN."""
        return not self.wrong and self.device.is_fine

    @property
    def verdict(self) -> str:
        """A sentence that names the step and the operator where the error enters."""
        step, row = self.enters_in, self.first_wrong
        if step is None or row is None:
            if not self.device.is_fine:
                return self.device.verdict
            steps = ", ".join(dict.fromkeys(stage.step for stage in self.stages))
            return "; ".join(filter(None, (f"no operator is wrong in {steps}", self._costly)))
        return f"the error enters in {step}, at {self._told(row, step)}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences: the verdict, other steps with wrong operators, the outputs, what is
        absent, coverage.
        """
        notes = [self.verdict, *(() if self.narrowed is None else self.narrowed.notes)]
        notes += self.device.causes
        for step, rows in self.wrong.items():
            if step == self.enters_in:
                if rows[1:]:
                    others = listed([*map(_place, rows[1:])], _SHOWN)
                    notes.append(f"wrong in {step}, too: {others}")
            else:
                count = "" if len(rows) == 1 else f", the first of {len(rows)}"
                notes.append(
                    f"another error enters in {step}, at {self._told(rows[0], step)}{count}"
                )
        known = [stage for stage in self.stages if stage.output is not None]
        if known:
            each = ", ".join(
                f"{stage.name} {_number(stage.output, self.metric)}" for stage in known
            )
            notes.append(f"error of the model's outputs, each stage against the one before: {each}")
        notes += self.device.design_notes
        notes += [self._costly] if self.enters_in is not None and self._costly else []
        notes += () if self.device.faults else self.doubts
        notes += self.absent
        notes.append("compared: " + "; ".join(map(str, self.stages)))
        if self.narrowed is None and guilty_call(self.device) is not None:
            notes.append("the wrong delegate call can be narrowed down to a line here: --narrow")
        elif self.narrowed is None and self.device.coverage.hidden is not None:
            notes.append(self.device.coverage.hidden)
        return tuple(notes)

    @cached_property
    def _costly(self) -> str:
        """A sentence with the operators that quantization costs most; empty without one."""
        errors = [(row.errors.get(QUANTIZED), row) for row in self.rows]
        known = [
            (error.local, row)
            for error, row in errors
            if error is not None and error.local not in (None, self.metric.perfect)
        ]
        known.sort(key=lambda one: self.metric.badness(one[0]), reverse=True)
        if not known:
            return ""
        most = "; ".join(
            f"{row.op} of {_place(row)}, {_number(error, self.metric)}"
            for error, row in known[:_SHOWN]
        )
        return f"quantization costs most at {most} (what to keep in float: etscope sensitivity)"

    def _told(self, row: StageRow, step: str) -> str:
        """The place of an operator, its error in a step, and the limit."""
        stage = next(s for s in self.stages if row.causes.get(s.name, s.step) == step)
        error = row.errors[stage.name]
        what = "the delegate call" if error.is_delegate else row.op
        if error.part is not None:
            return f"{_place(row, error)}: of {what} {error.part}"
        return (
            f"{_place(row, error)}: {what} has {_number(error.local, self.metric)}, and "
            f"{_number(error.limit, self.metric)} is allowed"
        )

    def table(self, sort: str = "run") -> Table:
        """A row for each operator; sort: "run", order of execution, or "error", the worst first."""
        rows: Sequence[StageRow] = self.rows
        if sort == "error":
            rows = sorted(
                rows,
                key=lambda row: max((e.rank for e in row.errors.values()), default=(False, 0.0)),
                reverse=True,
            )
        unit = self.metric.unit or None
        errors = {
            Column(stage.name, Kind.FLOAT, unit): [_of(row, stage, "local") for row in rows]
            for stage in self.stages
        }
        details = {}
        for stage in self.stages:
            for name, kind, priority in (
                ("total", Kind.FLOAT, 4), ("limit", Kind.FLOAT, 5), ("verdict", Kind.TEXT, 5)
            ):  # fmt: skip
                column = Column(
                    f"{stage.name}_{name}",
                    kind,
                    unit if kind is Kind.FLOAT else None,
                    priority=priority,
                )
                details[column] = [_of(row, stage, name) for row in rows]
        wrong = [row.wrong_in(self.stages) for row in rows]
        return Table.of(
            {
                Column("op"): [row.op for row in rows],
                Column("node", priority=3): [row.node for row in rows],
                **errors,
                **details,
                Column("wrong_in", title="wrong in"): [", ".join(steps) or None for steps in wrong],
                Column("module", Kind.PATH, priority=2): [row.module for row in rows],
                Column("source", Kind.PATH): [short_lines(row.lines[:1]) or None for row in rows],
            },
            title=f"{self.metric.title} of {self.method}, from {self.first} on: each stage against "
            "the one before",
            notes=self.notes,
        )


def worst_of(found: Sequence[NumericStages]) -> NumericStages:
    """Merge the stages of several samples: the worst error of each operator and stage counts."""
    first = found[0]
    if len(found) == 1:
        return first
    rows: dict[tuple[str, str], StageRow] = {}
    for one in found:
        for row in one.rows:
            key = row.node, row.op
            known = rows.setdefault(key, row)
            errors = {**row.errors, **known.errors}
            for name, error in row.errors.items():
                if error.rank > errors[name].rank:
                    errors[name] = error
            rows[key] = replace(known, errors=errors, causes={**known.causes, **row.causes})
    outputs = [
        [other.output for one in found for other in one.stages if other.name == stage.name]
        for stage in first.stages
    ]
    stages = tuple(
        replace(stage, output=first.metric.worst(known))
        for stage, known in zip(first.stages, outputs, strict=True)
    )
    doubts = dict.fromkeys(doubt for one in found for doubt in one.doubts)
    return replace(
        first,
        stages=stages,
        rows=tuple(rows.values()),
        device=next((one.device for one in found if not one.device.is_fine), first.device),
        doubts=(f"of each operator the worst of {len(found)} samples", *doubts),
    )


def _of(row: StageRow, stage: Stage, name: str) -> Any:
    error = row.errors.get(stage.name)
    return None if error is None else getattr(error, name)


def _place(row: StageRow, error: StageError | None = None) -> str:
    """ "layers.0.mlp (model.py:31)", or the node where the module is not known."""
    lines = row.lines[:1]
    if error is not None and error.lines:
        lines = error.lines[:_LINES]
    at = ", ".join(f"{PurePath(line.file).name}:{line.line}" for line in lines)
    if error is not None and error.lines[_LINES:]:
        at += f" and {len(error.lines) - _LINES} more lines"
    return (row.module or row.node) + (f" ({at})" if at else "")


def _number(value: float | None, metric: Metric) -> str:
    if value is None:
        return "nothing to compare"
    if value == metric.perfect:
        return "no error"
    return metric.text(value)


# -- comparing a stage


@dataclass(frozen=True, slots=True)
class Step:
    """A comparison of a stage with the one before.

    name: the step's name. earlier: the earlier stage's graph, which is computed again. later: the
    later stage's graph, None for the eager model. places: for each node of the earlier graph, the
    later graph's value. tolerance: the worst acceptable local error, in the metric; None for the
    usual tolerance.
    """

    name: str
    earlier: Graph
    later: Graph | None
    places: Places
    metric: Metric
    tolerance: float | None = None

    def errors(self, items: Iterable[Recomputed], later: LaterValues) -> list[StageError]:
        """Compare the values of both stages, for the nodes in `places`, as they come."""
        subgraphs = Subgraphs(self.earlier, self.places)
        theirs = None
        if self.later is not None:
            recorded = {path for found in self.places.values() for _, path, _ in found}
            theirs = Subgraphs(self.later, recorded)
        found: list[StageError] = []
        for item in items:
            node = self.earlier.calls[item.name]
            inside = [self.earlier.calls[path] for path in subgraphs.of(item.name).nodes]
            for (element, value), place in zip(
                later(item.name, item.loop_pass), self.places[item.name], strict=False
            ):
                expected = _element(item.local, element)
                reference = _element(item.reference, element)
                if np.shape(value) != np.shape(expected) or not np.size(expected):
                    continue
                other = []
                if theirs is not None and self.later is not None:
                    other = [self.later.calls[path] for path in theirs.of(place[1]).nodes]
                wide = partial(lambda item, element: _element(item.wide, element), item, element)
                judged = self._judged(expected, value, wide, inside, other)
                found.append(
                    StageError(
                        item.name,
                        judged.error,
                        difference(self.metric, reference, value),
                        judged.limit,
                        judged.excess,
                        WRONG if judged.is_wrong else FINE,
                        lines_of([node, *inside]),
                        judged.part,
                    )
                )
        return found

    def _judged(
        self,
        expected: Any,
        value: Any,
        wide: Callable[[], Any],
        inside: Sequence[Node],
        other: Sequence[Node],
    ) -> Judged:
        """Judge the local error. wide: computes what is expected in float64."""
        bits = _fewest_bits(other)
        if self.name == QUANTIZATION and bits is not None:
            return self._judged_quantized(expected, value, bits)
        if any("quantize" in node.op for node in (*inside, *other)):
            expected, value = _without_ties(expected, value)
            wide = lambda: None  # noqa: E731
        rules = Rules(self.tolerance, values=len(self.places))
        judged = screened(self.metric, expected, value, rules)
        return judged or judge(self.metric, expected, value, wide(), rules)

    def _judged_quantized(self, expected: Any, value: Any, bits: int) -> Judged:
        one, other = (np.asarray(part, np.float64) for part in agreeing(expected, value))
        share = next((s for b, s in sorted(QUANTIZATION_SHARE.items()) if bits <= b), 0.1)
        limit = self.tolerance
        if limit is None:
            limit = measure(self.metric, one, tolerated(one, share))
        error = measure(self.metric, one, other)
        size, off = (math.sqrt(float(np.mean(np.square(part)))) for part in (one, other - one))
        excess = off / (share * size) if size else (math.inf if off else 0.0)
        return Judged(error, None, limit, excess, 0.0, exceeds(self.metric, error, limit))


def _element(value: Any, element: int | None) -> Any:
    return value if value is None or element is None else value[element]


_RANGE = re.compile(r"-?\d+")


def _fewest_bits(nodes: Iterable[Node]) -> int | None:
    """The fewest bits that one of the nodes quantizes to, or goes back from; None without one."""
    found = []
    for node in nodes:
        if "quantize" not in node.op:
            continue
        arguments = dict(node.arguments)
        low, high = (arguments.get(name, "") for name in ("quant_min", "quant_max"))
        if _RANGE.fullmatch(low) and _RANGE.fullmatch(high):
            found.append(max(int(high) - int(low), 1).bit_length())
        else:
            found.append(8)
    return min(found, default=None)


def _without_ties(expected: Any, value: Any) -> tuple[Any, Any]:
    """Both without the elements that rounding to the other side may explain."""
    one, other = agreeing(expected, value)
    if one.dtype.kind in "b" or one.size < 2:
        return one, other
    count = max(math.ceil(TIES * one.size), 1)
    off = np.abs(one.astype(np.float64) - other.astype(np.float64)).reshape(-1)
    off = np.where(np.isnan(off), -1.0, off)  # NaN counts as a separate error
    worst = np.argpartition(off, one.size - count)[one.size - count :]
    replaced = other.reshape(-1).copy()
    replaced[worst] = one.reshape(-1)[worst]
    return one, replaced.reshape(other.shape)


def places_of(values: Mapping[NodeValue, NodeValue]) -> Places:
    """The later value of each earlier node, as `Step` takes them."""
    found: dict[str, list[tuple[int | None, str, int | None]]] = {}
    for one, other in values.items():
        found.setdefault(one.path, []).append((one.element, other.path, other.element))
    return found


def device_errors(found: Numerics) -> list[StageError]:
    return [
        StageError(
            node=row.pair.node,
            local=row.local,
            total=row.total,
            limit=row.limit,
            excess=row.excess,
            verdict=row.verdict,
            lines=row.lines,
            part=row.part,
            is_delegate=row.is_delegate,
        )
        for row in found.rows
    ]


# -- rows of all stages


class Rows:
    """Collects the errors of all stages by operator of the first graph that has it."""

    def __init__(self, graphs: Sequence[Graph], owners: Sequence[Mapping[str, str]]) -> None:
        """graphs: in order of the stages. owners: for each graph but the first, the node of the
        graph before that each node is a part of."""
        self._graphs, self._owners = graphs, owners
        self._errors: dict[tuple[int, str], dict[str, StageError]] = {}
        self._causes: dict[tuple[int, str], dict[str, str]] = {}
        self._order = [{path: at for at, path in enumerate(graph.calls)} for graph in graphs]

    def owner(self, graph: int, path: str) -> tuple[int, str]:
        """The first graph with an operator that contains a node, and that operator."""
        while graph and path in self._owners[graph - 1]:
            graph, path = graph - 1, self._owners[graph - 1][path]
        return graph, path

    def add(self, stage: str, graph: int, errors: Iterable[StageError]) -> None:
        """Add the errors of a stage, by nodes of a graph. The worst error of an operator counts."""
        for error in errors:
            known = self._errors.setdefault(self.owner(graph, error.node), {})
            if stage not in known or error.rank > known[stage].rank:
                known[stage] = error

    def blame(self, stage: str, graph: int, path: str, cause: str) -> None:
        """Name the cause of a stage's error more specifically, for one operator."""
        self._causes.setdefault(self.owner(graph, path), {})[stage] = cause

    def rows(self) -> tuple[StageRow, ...]:
        """The operators in order of execution. Quantizations of weights and inputs, which no
        operator of the first graph has, are left out unless they are wrong."""
        found = []
        for key in sorted(self._errors, key=self._position):
            graph, path = key
            node, errors = self._graphs[graph].calls[path], self._errors[key]
            is_wrong = any(error.verdict == WRONG for error in errors.values())
            if graph and is_quantization(node) and not is_wrong:
                continue
            found.append(
                StageRow(
                    node=path,
                    op=node.op,
                    module=module_path(node),
                    lines=lines_of([node])
                    or next((e.lines for e in errors.values() if e.lines), ()),
                    errors=errors,
                    causes=self._causes.get(key, {}),
                )
            )
        return tuple(found)

    def _position(self, key: tuple[int, str]) -> tuple[int, int, int]:
        """An operator that the first graph does not have stands after the last before it that is
        a part of one that it has."""
        graph, path = key
        if not graph:
            return self._order[0].get(path, 0), 0, 0
        return self._last_owned[graph].get(path, -1), graph, self._order[graph].get(path, 0)

    @cached_property
    def _last_owned(self) -> list[dict[str, int]]:
        """For the nodes of each graph, the last position in the first graph of an operator that
        they, or nodes before them, are a part of."""
        found = []
        for number, graph in enumerate(self._graphs):
            last, positions = -1, {}
            for path in graph.calls:
                positions[path] = last
                first, owner = self.owner(number, path)
                if not first:
                    last = max(last, self._order[0].get(owner, -1))
            found.append(positions)
        return found


__all__ = ["NumericStages", "Stage", "StageError", "StageRow"]
