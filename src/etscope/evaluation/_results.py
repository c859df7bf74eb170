"""Results of an evaluation: statistics of each operator, of each sample, and their tables."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.matching.matching import Coverage
from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.diagnose import value_key
from etscope.analysis.numerics.multi_run_tests import LEAST_SAMPLES, POWER, Deviation, Evidence
from etscope.analysis.numerics.quantization import OutputErrors, worst_error
from etscope.analysis.numerics.rows import WRONG as WRONG_ROW
from etscope.analysis.numerics.rows import (
    Numerics,
    NumericsRow,
    described,
    source_columns,
    value_columns,
)
from etscope.analysis.program.source_location import short_lines
from etscope.errors import MissingDataError, UsageError
from etscope.evaluation._classification import Prediction, Task
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown

# -- Errors of each operator over the samples: two floats for each compared value, and no tensor.


@dataclass(frozen=True, slots=True)
class Spread:
    """A metric over samples; numbers are None if no sample has one.

    count: how many samples have a number. mean: the mean of the finite numbers (an operator without
    any error has an infinite SQNR). median: the median of all; NaN counts as the worst. worst: NaN
    if there is one.
    """

    count: int
    mean: float | None
    median: float | None
    worst: float | None

    @classmethod
    def of(cls, numbers: Sequence[float], metric: Metric) -> Spread:
        values = np.asarray(numbers, np.float64)
        if not values.size:
            return cls(0, None, None, None)
        finite = values[np.isfinite(values)]
        badness = values if metric.better == "lower" else -values
        ranked = values[np.argsort(badness, kind="stable")]  # NaN last
        low, high = float(ranked[(len(ranked) - 1) // 2]), float(ranked[len(ranked) // 2])
        return cls(
            count=int(values.size),
            mean=float(finite.mean()) if finite.size else None,
            median=low if low == high else (low + high) / 2,
            worst=float(ranked[-1]),
        )


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """A value of the device over all samples that compared it.

    row: its row in the first sample, for its position in program and source. samples: how many
    samples compared it. wrong: in how many the operator's own error exceeds its limit. nan: in how
    many it has NaN where the reference has numbers. local, total: spreads of the operator's own
    error, and of the error against the reference. quantization: for a quantized model, the spread
    of the reference's error against the float graph. worst_sample: the sample with the worst own
    error. evidence: the result of all samples together; None for values that are only moved, and if
    a tolerance was given.
    """

    row: NumericsRow
    samples: int
    wrong: int
    nan: int
    local: Spread
    total: Spread
    quantization: Spread
    worst_sample: str
    evidence: Evidence | None = None

    @property
    def deviation(self) -> Deviation | None:
        """The deviation that all samples together show; None if they show none."""
        return None if self.evidence is None else self.evidence.wrong

    @property
    def share(self) -> float:
        """Share of the samples with an error above its limit."""
        return self.wrong / self.samples


@dataclass(slots=True)
class _Sums:
    row: NumericsRow
    samples: int = 0
    wrong: int = 0
    nan: int = 0
    numbers: Mapping[str, array[float]] = field(
        default_factory=lambda: {name: array("d") for name in ("local", "total", "quantization")}
    )
    worst: tuple[bool, float, float] | None = None
    worst_sample: str = ""


class Statistics:
    """Collects the diagnoses of samples, one after the other."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._sums: dict[Hashable, _Sums] = {}

    def add(self, sample: str, found: Numerics) -> None:
        for row in found.rows:
            sums = self._sums.setdefault(value_key(row), _Sums(row))
            sums.samples += 1
            sums.wrong += row.verdict == WRONG_ROW
            sums.nan += bool(row.non_finite and row.non_finite.new_nan)
            for name, numbers in sums.numbers.items():
                if (number := getattr(row, name)) is not None:
                    numbers.append(number)
            error = -math.inf if row.local is None else self._metric.badness(row.local)
            badness = row.verdict == WRONG_ROW, error, row.excess
            if sums.worst is None or badness > sums.worst:
                sums.worst, sums.worst_sample = badness, sample

    def operators(self, evidence: Mapping[Hashable, Evidence]) -> tuple[OperatorStatistics, ...]:
        """Return the statistics, in order of execution. evidence: the result of all samples
        together, by `value_key`.
        """
        return tuple(
            OperatorStatistics(
                row=sums.row,
                samples=sums.samples,
                wrong=sums.wrong,
                nan=sums.nan,
                **{name: Spread.of(one, self._metric) for name, one in sums.numbers.items()},
                worst_sample=sums.worst_sample,
                evidence=evidence.get(value_key(sums.row)),
            )
            for sums in sorted(self._sums.values(), key=lambda sums: sums.row.order)
        )


# -- Results of each sample: a row of a table, and no tensor.

FINE, WRONG, NAN, SKIPPED = "fine", "wrong", "nan", "skipped"


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The result of one sample.

    verdict: "wrong" if an operator is wrong; "nan" if none is, but there are NaN where the
    reference has numbers; "skipped" if it could not be compared; else "fine". wrong: how many
    operators are wrong. operator: the first operator that is wrong or made the NaN; in a fine
    sample, the operator nearest to its limit. excess: the largest own error of an operator divided
    by its limit, as root mean squares. output: the worst error of the program's outputs against the
    reference's, in the metric. side: for a quantized model, the errors of its outputs against the
    float graph's, and their causes; else None. flips: how many rows of scores have another class.
    doubts: why the inputs may not be the inputs of the run. reason: why the sample was skipped.
    """

    number: int
    name: str
    verdict: str
    wrong: int = 0
    operator: NumericsRow | None = None
    excess: float = 0.0
    output: float | None = None
    side: OutputErrors | None = None
    flips: int = 0
    doubts: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_finding(self) -> bool:
        """True if an operator is wrong, or made NaN."""
        return self.verdict in (WRONG, NAN)

    def cells(self) -> dict[str, Any]:
        row = self.operator
        return {
            "sample": self.name,
            "number": self.number,
            "verdict": self.verdict,
            "wrong": self.wrong,
            "quantization": None if self.side is None else self.side.quantization,
            "output": self.output,
            "flips": self.flips,
            "instruction": None if row is None else row.pair.instruction,
            "op": None if row is None else row.label or row.op,
            "node": None if row is None else row.node,
            "local": None if row is None else row.local,
            "limit": None if row is None else row.limit,
            "excess": self.excess,
            "source": None if row is None else short_lines(row.lines) or None,
            "reason": self.reason.partition("\n")[0] or None,
        }


def sample_result(
    number: int,
    name: str,
    found: Numerics,
    outputs: tuple[Sequence[Any], Sequence[Any]],
    predictions: Sequence[Prediction],
) -> SampleResult:
    """Return the result of a sample. outputs: the outputs of the reference, and of the device."""
    verdict = WRONG if found.wrong else (FINE if found.stray_nan is None else NAN)
    nearest = max(found.rows, key=lambda row: row.excess)
    return SampleResult(
        number=number,
        name=name,
        verdict=verdict,
        wrong=len(found.wrong),
        operator=found.first or found.stray_nan or nearest,
        excess=nearest.excess,
        output=worst_error(found.metric, *outputs),
        side=None if found.quantization is None else found.quantization.outputs,
        flips=sum(one.flipped for one in predictions),
        doubts=found.doubts,
    )


FRESH, SEQUENCE, DUMP = "fresh", "sequence", "dump"
_STATES = {
    FRESH: "each sample starts from the first state",
    SEQUENCE: "each sample goes on from the one before, on both sides",
    DUMP: "each run goes on from those before it since the model was loaded, on both sides",
}


_NEAREST = 3  # operators with a sentence on missing samples: more would hide other notes


@dataclass(frozen=True)
class Evaluation(Shown):
    """A method compared on a dataset, the device against the reference.

    operators: in order of execution. samples: in the order of the dataset, skipped ones included.
    task: None, unless classes were compared. coverage: the compared part of the first sample.
    state: for a model that keeps state, what a sample starts from (`_STATES`), else None. doubts:
    about the evaluation as a whole.
    """

    method: str
    reference: str
    metric: Metric
    operators: tuple[OperatorStatistics, ...]
    samples: tuple[SampleResult, ...]
    task: Task | None
    coverage: Coverage
    state: str | None = None
    doubts: tuple[str, ...] = ()

    @cached_property
    def compared(self) -> tuple[SampleResult, ...]:
        return tuple(sample for sample in self.samples if sample.verdict != SKIPPED)

    @cached_property
    def skipped(self) -> tuple[SampleResult, ...]:
        return tuple(sample for sample in self.samples if sample.verdict == SKIPPED)

    @cached_property
    def findings(self) -> tuple[SampleResult, ...]:
        """The samples with a wrong operator, or with NaN where the reference has numbers."""
        return tuple(sample for sample in self.samples if sample.is_finding)

    @cached_property
    def wrong(self) -> tuple[OperatorStatistics, ...]:
        """The operators that are wrong in a sample, in order of execution."""
        return tuple(operator for operator in self.operators if operator.wrong)

    @cached_property
    def deviating(self) -> tuple[OperatorStatistics, ...]:
        """The operators that are wrong in no single sample, but in all samples together, in
        order.
        """
        return tuple(one for one in self.operators if one.deviation is not None and not one.wrong)

    @property
    def is_finding(self) -> bool:
        """True if a sample is a finding, or an operator is wrong in all samples together."""
        return bool(self.findings or self.deviating)

    @property
    def is_fine(self) -> bool:
        """True if all samples were compared, without a finding."""
        return not self.is_finding and not self.skipped

    def worst_samples(self, count: int | None = 10) -> tuple[SampleResult, ...]:
        """The worst samples: findings by excess, then those with another class, then by the error
        of the program's outputs. None: all of them."""

        def badness(sample: SampleResult) -> tuple[bool, float, bool, float]:
            output = -math.inf if sample.output is None else self.metric.badness(sample.output)
            excess = sample.excess if sample.is_finding else 0.0
            return sample.is_finding, excess, sample.flips > 0, output

        return tuple(sorted(self.compared, key=badness, reverse=True)[:count])

    @property
    def verdict(self) -> str:
        """A sentence: the number of findings, and the operator that is wrong in most samples."""
        total = len(self.compared)
        if not self.findings and self.deviating:
            first = self.deviating[0]
            return (
                f"in no sample alone, but in all {total} together {described(first.row)} goes "
                f"wrong: {first.deviation}"
            )
        if not self.findings:
            return f"no operator goes wrong in {_samples(total)}"
        found = f"{len(self.findings)} of {_samples(total)} have"
        if not self.wrong:
            return f"{found} NaN where the reference has numbers"
        most = max(self.wrong, key=lambda operator: operator.wrong)
        row = described(most.row)
        return f"{found} an operator that goes wrong; in {_samples(most.wrong)} it is {row}"

    @property
    def notes(self) -> tuple[str, ...]:
        """The verdict, and further sentences."""
        notes = [self.verdict, *self._sides()]
        worst = self.worst_samples(1)
        if worst and worst[0].is_finding and worst[0].operator is not None:
            notes.append(f"worst: sample {worst[0].name}, {described(worst[0].operator)}")
        notes += self._evidence_notes()
        if self.task is not None:
            notes += task_notes(self.task)
        if self.skipped:
            first = self.skipped[0]
            notes.append(
                f"{_samples(len(self.skipped))} skipped, which is not a pass; the first is "
                f"{first.name}: {first.reason}"
            )
        doubted = [sample for sample in self.compared if sample.doubts]
        if doubted:
            notes.append(f"in {_samples(len(doubted))}: {doubted[0].doubts[0]}")
        if self.state is not None:
            notes.append(f"the model keeps state: {_STATES[self.state]}")
        notes += self.doubts
        notes.append(str(self.coverage))
        return tuple(notes)

    def _sides(self) -> Iterator[str]:
        """Say of a quantized model what of the error is quantization's."""
        sides = [one.side for one in self.compared if one.side is not None]
        shares = [side.share for side in sides if side.share is not None]
        parts = []
        for name, numbers in (
            ("of quantization", [side.quantization for side in sides]),
            ("of the backend", [side.backend for side in sides]),
        ):
            spread = Spread.of([x for x in numbers if x is not None], self.metric)
            if spread.median is not None and spread.worst is not None:
                unit = self.metric.unit
                parts.append(
                    f"{name} median {spread.median:.4g}, worst {spread.worst:.4g} {unit}".rstrip()
                )
            elif not parts:
                return
        of_whom = ""
        if shares:
            of_whom = f": {sum(shares) / len(shares):.0%} of the squared error is quantization's"
        yield f"{self.metric.title} of the outputs to the float graph, {'; '.join(parts)}{of_whom}"

    @cached_property
    def has_float(self) -> bool:
        """True if the samples were compared with the float graph of a quantized model, too."""
        return any(one.side is not None for one in self.compared)

    def _evidence_notes(self) -> Iterator[str]:
        """Yield sentences on what all samples together show, and on what more would show."""
        others = self.deviating[0 if self.findings else 1 :]
        if others:
            yield (
                f"in all samples together {len(others)} {'' if self.findings else 'more '}"
                f"go{'es' if len(others) == 1 else ''} wrong, the first is "
                f"{described(others[0].row)}: {others[0].deviation}"
            )
        added = [(one.row, one.evidence) for one in self.operators if one.evidence is not None]
        few = sum(not found.is_enough for _, found in added)
        if few:
            yield (
                f"{few} of {len(self.operators)} values have too few samples to be added up: "
                f"{LEAST_SAMPLES} at least"
            )
        near = [(row, found.nearest) for row, found in added if found.nearest is not None]
        for row, nearest in sorted(near, key=lambda pair: pair[1].log_p)[:_NEAREST]:
            needed = (
                "no number of samples would"
                if nearest.more is None
                else f"{nearest.more:,} more samples would show such an error, with a power of "
                f"{POWER:.0%} at least"
            )
            yield (
                f"this may be chance: {described(row)}, where the {nearest.test} of "
                f"{nearest.where} is off by {nearest.error:.3g} of the value's size; {needed}"
            )
        least = [found.told for _, found in added if found.told]
        if least and not self.deviating:
            yield (
                f"together, the samples show a mean error of {min(least):.1g} to {max(least):.1g} "
                f"of a value's size in a channel or row, by operator, with a power of at least "
                f"{POWER:.0%}"
            )
        sliced = sum(not found.by_element for _, found in added)
        if sliced:
            yield f"{sliced} large values are added up by channel and row, and not by element"

    # -- tables

    def operators_table(self, sort: str = "run") -> Table:
        """A row for each value of the device; sort: "run" (order of execution), or "error": most
        samples over the limit first, then the worst error."""
        if sort not in ("run", "error"):
            raise UsageError(f"operators are sorted by run or error, not {sort!r}")
        operators: Sequence[OperatorStatistics] = self.operators
        if sort == "error":
            badness = self.metric.badness
            operators = sorted(
                operators,
                key=lambda one: (
                    one.wrong,
                    one.deviation is not None,
                    one.nan,
                    badness(one.local.worst),
                ),
                reverse=True,
            )
        rows = [operator.row for operator in operators]
        unit = self.metric.unit
        statistics = {
            Column(f"{kind}_{part}", Kind.FLOAT, unit=unit, priority=priority): [
                getattr(getattr(one, kind), part) for one in operators
            ]
            for kind, priorities in (
                ("local", (2, 0, 0)),
                *((("quantization", (4, 2, 2)),) if self.has_float else ()),
                ("total", (4, 2, 2)),
            )
            for part, priority in zip(("mean", "median", "worst"), priorities, strict=True)
        }
        return Table.of(
            {
                **value_columns(rows, node_priority=3),
                Column("samples", Kind.COUNT, priority=1): [one.samples for one in operators],
                Column("wrong", Kind.COUNT): [one.wrong for one in operators],
                Column("share", Kind.SHARE, title="out of limit"): [one.share for one in operators],
                Column("nan", Kind.COUNT, title="NaN", priority=2): [one.nan for one in operators],
                Column("together", title="all samples together", priority=3): [
                    None if one.deviation is None else str(one.deviation) for one in operators
                ],
                Column("told", Kind.FLOAT, title="told mean error", priority=5): [
                    None if one.evidence is None else one.evidence.told for one in operators
                ],
                Column("more_samples", Kind.COUNT, title="samples missing", priority=5): [
                    None
                    if one.evidence is None or one.evidence.nearest is None
                    else one.evidence.nearest.more
                    for one in operators
                ],
                **statistics,
                Column("worst_sample", priority=1): [
                    None if one.local.worst == self.metric.perfect else one.worst_sample
                    for one in operators
                ],
                **source_columns(rows, module_priority=4),
            },
            title=f"{self.metric.title} of {self.method} to {self.reference}, over samples",
            notes=self.notes,
        )

    def samples_table(self, count: int | None = 10) -> Table:
        """The worst samples, then skipped ones."""
        unit = self.metric.unit
        quantization = Column("quantization", Kind.FLOAT, unit=unit)
        columns = (
            Column("sample"),
            Column("number", Kind.INT, priority=4),
            Column("verdict"),
            Column("wrong", Kind.COUNT, title="wrong operators", priority=2),
            *((quantization,) if self.has_float else ()),
            Column("output", Kind.FLOAT, unit, "backend" if self.has_float else "outputs"),
            Column("flips", Kind.COUNT, priority=0 if self.task else 5),
            Column("instruction", Kind.INT, priority=3),
            Column("op", title="operator"),
            Column("node", priority=3),
            Column("local", Kind.FLOAT, unit=unit, priority=1),
            Column("limit", Kind.FLOAT, unit=unit, priority=2),
            Column("excess", Kind.FLOAT, priority=4),
            Column("source", Kind.PATH),
            Column("reason", priority=0 if self.skipped else 5),
        )
        return Table.of_cells(
            columns,
            [one.cells() for one in (*self.worst_samples(count), *self.skipped[:count])],
            title=f"The worst of {len(self.compared)} samples",
            notes=self.notes,
        )

    def flips_table(self, count: int | None = None) -> Table:
        """The rows with another class on the device. Raises `MissingDataError` without classes."""
        task = self.task
        if task is None:
            raise MissingDataError(
                "classes were not compared",
                hint="compare classes with top= or labels= (--top, --labels)",
            )
        flips = tuple(dict.fromkeys((*task.flips, *task.float_flips)))[:count]
        floats = (
            Column("floats", Kind.INT, title="class in float"),
            Column("float_margin", Kind.FLOAT, title="margin in float", priority=1),
        )
        columns = (
            Column("sample"),
            Column("row", Kind.INT, priority=3),
            *(floats if task.float_rows else ()),
            Column("reference", Kind.INT, title="class of the reference"),
            Column("device", Kind.INT, title="class on the device"),
            Column("label", Kind.INT, priority=0 if task.labelled else 5),
            Column("reference_margin", Kind.FLOAT, title="margin of the reference"),
            Column("device_margin", Kind.FLOAT, title="margin on the device"),
            Column("in_top", Kind.BOOL, title=f"in the device's {task.top} best", priority=2),
        )
        content = {head: [getattr(flip, head.name) for flip in flips] for head in columns}
        return Table.of(content, title="Samples with another class", notes=tuple(task_notes(task)))

    def summary_table(self) -> Table:
        compared, total = len(self.compared), len(self.samples)
        counts = [
            ("samples compared", compared, total),
            ("samples skipped", len(self.skipped), total),
            ("samples with a wrong operator or NaN", len(self.findings), compared),
            ("operators wrong in all samples together", len(self.deviating), len(self.operators)),
        ]
        task = self.task
        if task is not None:
            if task.float_rows:
                counts += [
                    ("quantization gives another class", task.quantization_flips, task.float_rows),
                    ("right in float", task.float_right, task.labelled),
                    (f"right in the {task.top} best in float", task.float_right_top, task.labelled),
                ]
            counts += [
                ("same class as the reference", task.agree, task.rows),
                (f"the reference's class in the {task.top} best", task.agree_top, task.rows),
                ("another class", task.flipped, task.rows),
                ("no class of the reference", task.undecided, task.rows + task.undecided),
                ("right on the device", task.right, task.labelled),
                (f"right in the {task.top} best on the device", task.right_top, task.labelled),
                ("right by the reference", task.reference_right, task.labelled),
                (f"right in the {task.top} best of the reference", task.reference_right_top,
                 task.labelled),
            ]  # fmt: skip
        rows = [(name, count, count / whole) for name, count, whole in counts if whole]
        columns = (Column("what"), Column("count", Kind.COUNT), Column("share", Kind.SHARE))
        return Table.of_rows(columns, rows, title=f"{self.method} on a dataset", notes=self.notes)


def _samples(count: int) -> str:
    return f"{count} sample" if count == 1 else f"{count} samples"


def task_notes(task: Task) -> Iterator[str]:
    def accuracy(right: int, best: int) -> str:
        of_best = f"(top-{task.top} {_percent(best, task.labelled)})"
        return f"{_percent(right, task.labelled)} {of_best}"

    if task.rows:
        yield (
            f"top-1 agreement {_percent(task.agree, task.rows)}: {task.flipped} of {task.rows} have"
            f" another class; the reference's class is among the device's {task.top} best in "
            f"{_percent(task.agree_top, task.rows)}"
        )
    if task.undecided:
        yield f"{task.undecided} have no class: a score of the reference is NaN"
    if task.float_rows:
        yield (
            f"classes of the float graph: quantization changes {task.quantization_flips} of "
            f"{task.float_rows} ({_percent(task.quantization_flips, task.float_rows)}), and on the "
            f"device {task.float_rows - task.float_device_agree} are others"
        )
    if task.labelled and task.float_rows:
        yield (
            f"accuracy in float {accuracy(task.float_right, task.float_right_top)}, "
            f"quantized {accuracy(task.reference_right, task.reference_right_top)}, "
            f"on the device {accuracy(task.right, task.right_top)}, "
            f"of {task.labelled} with a label"
        )
    elif task.labelled:
        device = accuracy(task.right, task.right_top)
        reference = accuracy(task.reference_right, task.reference_right_top)
        yield f"accuracy {device}, of the reference {reference}, of {task.labelled} with a label"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %"
