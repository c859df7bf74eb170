"""The tables of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from etscope.analysis.profile.source_location import short_lines
from etscope.errors import MissingDataError, UsageError
from etscope.model.table import Column, Kind, Table

if TYPE_CHECKING:
    from etscope.analysis.numerics.rows import NumericsRow
    from etscope.evaluation._evaluation import Evaluation
    from etscope.evaluation._samples import SampleResult
    from etscope.evaluation._statistics import OperatorStatistics
    from etscope.evaluation._task import Task

SORTS = ("run", "error")


def operators_table(found: Evaluation, sort: str) -> Table:
    """See `Evaluation.operators_table`."""
    if sort not in SORTS:
        raise UsageError(f"operators are sorted by {' or '.join(SORTS)}, not {sort!r}")
    operators: Sequence[OperatorStatistics] = found.operators
    if sort == "error":
        badness = found.metric.badness
        operators = sorted(
            operators, key=lambda one: (one.wrong, one.nan, badness(one.local.worst)), reverse=True
        )
    rows = [operator.row for operator in operators]
    columns = [
        Column("instruction", Kind.INT),
        Column("output", Kind.INT, priority=5),
        Column("pass", Kind.INT, priority=5),
        Column("event", priority=5),
        Column("op"),
        Column("node", priority=3),
        Column("samples", Kind.COUNT, priority=1),
        Column("wrong", Kind.COUNT),
        Column("share", Kind.SHARE, title="out of limit"),
        Column("nan", Kind.COUNT, title="NaN", priority=2),
    ]
    values: dict[str, list[Any]] = {
        "instruction": [row.pair.instruction for row in rows],
        "output": [row.pair.output for row in rows],
        "pass": [row.loop_pass for row in rows],
        "event": [row.event for row in rows],
        "op": [row.label or row.op for row in rows],
        "node": [row.node for row in rows],
        "samples": [operator.samples for operator in operators],
        "wrong": [operator.wrong for operator in operators],
        "share": [operator.share for operator in operators],
        "nan": [operator.nan for operator in operators],
    }
    for kind, priority in (("local", 0), ("total", 2)):
        for part in ("mean", "median", "worst"):
            name = f"{kind}_{part}"
            lower = 2 if part == "mean" else 0
            columns.append(
                Column(name, Kind.FLOAT, unit=found.metric.unit, priority=priority + lower)
            )
            values[name] = [getattr(getattr(one, kind), part) for one in operators]
    columns += [
        Column("worst_sample", priority=1),
        Column("module", Kind.PATH, priority=4),
        Column("source", Kind.PATH),
        Column("sources", Kind.LIST, title="source lines", priority=8),
    ]
    values["worst_sample"] = [
        None if one.local.worst == found.metric.perfect else one.worst_sample for one in operators
    ]
    values["module"] = [row.module for row in rows]
    values["source"] = [short_lines(row.lines) or None for row in rows]
    values["sources"] = [[str(line) for line in row.lines] for row in rows]
    title = f"{found.metric.title} of {found.method} to {found.reference}, over samples"
    return Table(columns=tuple(columns), values=values, title=title, notes=found.notes)


def samples_table(found: Evaluation, count: int | None) -> Table:
    """See `Evaluation.samples_table`."""
    unit = found.metric.unit
    samples = [*found.worst_samples(count), *found.skipped[:count]]

    def of_operator(pick: Any) -> list[Any]:
        return [None if one.operator is None else pick(one.operator) for one in samples]

    columns = (
        Column("sample"),
        Column("number", Kind.INT, priority=4),
        Column("verdict"),
        Column("wrong", Kind.COUNT, title="wrong operators", priority=2),
        Column("output", Kind.FLOAT, unit=unit, title="outputs"),
        Column("flips", Kind.COUNT, priority=0 if found.task else 5),
        Column("instruction", Kind.INT, priority=3),
        Column("op", title="operator"),
        Column("node", priority=3),
        Column("local", Kind.FLOAT, unit=unit, priority=1),
        Column("limit", Kind.FLOAT, unit=unit, priority=2),
        Column("excess", Kind.FLOAT, priority=4),
        Column("source", Kind.PATH),
        Column("reason", priority=0 if found.skipped else 5),
    )
    values: dict[str, list[Any]] = {
        "sample": [one.name for one in samples],
        "number": [one.number for one in samples],
        "verdict": [one.verdict for one in samples],
        "wrong": [one.wrong for one in samples],
        "output": [one.output for one in samples],
        "flips": [one.flips for one in samples],
        "instruction": of_operator(lambda row: row.pair.instruction),
        "op": of_operator(_operator),
        "node": of_operator(lambda row: row.node),
        "local": of_operator(lambda row: row.local),
        "limit": of_operator(lambda row: row.limit),
        "excess": [one.excess for one in samples],
        "source": of_operator(lambda row: short_lines(row.lines) or None),
        "reason": [_reason(one) or None for one in samples],
    }
    title = f"The worst of {len(found.compared)} samples"
    return Table(columns=columns, values=values, title=title, notes=found.notes)


def _operator(row: NumericsRow) -> str:
    return row.label or row.op


def _reason(sample: SampleResult) -> str:
    return sample.reason.partition("\n")[0]


def flips_table(found: Evaluation, count: int | None) -> Table:
    """See `Evaluation.flips_table`."""
    task = _task(found)
    flips = task.flips[:count]
    has_labels = task.labelled > 0
    columns = (
        Column("sample"),
        Column("row", Kind.INT, priority=3),
        Column("reference", Kind.INT, title="class of the reference"),
        Column("device", Kind.INT, title="class on the device"),
        Column("label", Kind.INT, priority=0 if has_labels else 5),
        Column("reference_margin", Kind.FLOAT, title="margin of the reference"),
        Column("device_margin", Kind.FLOAT, title="margin on the device"),
        Column("in_top", Kind.BOOL, title=f"in the device's {task.top} best", priority=2),
    )
    values: dict[str, list[Any]] = {
        name: [getattr(flip, name) for flip in flips]
        for name in (
            "sample", "row", "reference", "device", "label", "reference_margin", "device_margin",
            "in_top",
        )
    }  # fmt: skip
    notes = tuple(task_notes(task))
    return Table(columns=columns, values=values, title="Samples with another class", notes=notes)


def _task(found: Evaluation) -> Task:
    if found.task is None:
        raise MissingDataError(
            "classes were not looked at", hint="ask for them: top=, labels= (--top, --labels)"
        )
    return found.task


def task_notes(task: Task) -> Iterator[str]:
    """Agreement and accuracy in words."""
    if task.rows:
        yield (
            f"top-1 agreement {_percent(task.agree, task.rows)}: {task.flipped} of {task.rows} have"
            f" another class; the reference's class is among the device's {task.top} best in "
            f"{_percent(task.agree_top, task.rows)}"
        )
    if task.undecided:
        yield f"{task.undecided} have no class: a score of the reference is NaN"
    if task.labelled:
        yield (
            f"accuracy {_percent(task.right, task.labelled)} (top-{task.top} "
            f"{_percent(task.right_top, task.labelled)}), of the reference "
            f"{_percent(task.reference_right, task.labelled)} (top-{task.top} "
            f"{_percent(task.reference_right_top, task.labelled)}), of {task.labelled} with a label"
        )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %"


def summary_table(found: Evaluation) -> Table:
    """See `Evaluation.summary_table`."""
    rows: list[tuple[str, int | float | None, float | None]] = []
    compared, total = len(found.compared), len(found.samples)
    rows.append(("samples compared", compared, compared / total))
    rows.append(("samples skipped", len(found.skipped), len(found.skipped) / total))
    rows.append(("samples with a wrong operator or NaN", len(found.findings),
                 len(found.findings) / compared))  # fmt: skip
    task = found.task
    if task is not None:
        for name, count, whole in (
            ("same class as the reference", task.agree, task.rows),
            (f"the reference's class in the {task.top} best", task.agree_top, task.rows),
            ("another class", task.flipped, task.rows),
            ("no class of the reference", task.undecided, task.rows + task.undecided),
            ("right on the device", task.right, task.labelled),
            (f"right in the {task.top} best on the device", task.right_top, task.labelled),
            ("right by the reference", task.reference_right, task.labelled),
            (f"right in the {task.top} best of the reference", task.reference_right_top,
             task.labelled),
        ):  # fmt: skip
            if whole:
                rows.append((name, count, count / whole))
    columns = (Column("what"), Column("count", Kind.COUNT), Column("share", Kind.SHARE))
    values = {
        name: [row[place] for row in rows] for place, name in enumerate(("what", "count", "share"))
    }
    title = f"{found.method} on a dataset"
    return Table(columns=columns, values=values, title=title, notes=found.notes)


__all__ = [
    "SORTS",
    "flips_table",
    "operators_table",
    "samples_table",
    "summary_table",
    "task_notes",
]
