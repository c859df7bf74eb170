"""The comparisons of a report, or of stored ones: `etscope diff` of its profiles, two by two.

The page shows these verdicts and rows unchanged: it computes neither statistics nor an alignment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from etscope.analysis.comparison.changes import MethodDiff, RunTotals, total_changes
from etscope.analysis.comparison.diff import check_comparable, diff_profiles
from etscope.analysis.comparison.diff_table import diff_table, shown_changes
from etscope.analysis.comparison.graph_pairs import pair_graphs
from etscope.analysis.comparison.program_report import program_diff_report
from etscope.analysis.comparison.programs import diff_programs
from etscope.analysis.comparison.waterfall import GROUPINGS, headline, parts_table, waterfall
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.correlate import Attribution
from etscope.errors import MismatchError, reading
from etscope.model.event_table import Clock, Meaning, Quantity
from etscope.model.graph import ModuleFrame, Node, SourceLine
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale, scale_factor
from etscope.views.page.elements import Json, section_document, table_document
from etscope.views.page.method import ShownMethod
from etscope.views.page.run import ReportRun

# Compare each profile with each up to this number, else each with the first: the pairs grow with
# the square of the profiles.
MOST_EACH = 4

_COLUMNS = (
    "event", "verdict", "status", "before", "after", "change", "relative", "interval", "module",
    "source", "op_types", "reason", "kind",
)  # fmt: skip
_SUMS = (
    "verdict", "status", "before", "after", "change", "of_change", "relative", "interval",
    "rows_before", "rows_after", "reason",
)  # fmt: skip
_TITLES = {"before": "A", "after": "B", "change": "B - A"}


def comparison_documents(
    methods: Sequence[Sequence[ShownMethod]], facts: Sequence[RunTotals] | None = None
) -> list[Json]:
    """Return the `ComparisonDoc`s of pairs of profiles, with the earlier profile as A; then of the
    same pairs with A and B exchanged. methods, facts: the methods and the facts of each run.
    """
    found = []
    pairs = list(_pairs(methods))
    for sides in [*pairs, *((later, earlier) for earlier, later in pairs)]:
        runs = [run for run, _ in sides]
        shown = [methods[run][method] for run, method in sides]
        if shown[0].scale != shown[1].scale:
            found.append(
                {
                    "a": list(sides[0]),
                    "b": list(sides[1]),
                    "verdict": None,
                    "headline": ["Times in different units cannot be compared."],
                    "notes": [],
                    "table": None,
                    "sums": [],
                }
            )
            continue
        diff = diff_profiles(shown[0].profile, shown[1].profile)
        if facts is not None and runs[0] != runs[1]:
            more = total_changes(facts[runs[0]], facts[runs[1]], diff.method)
            diff = replace(diff, beside=tuple(more))
        found.append(_document(sides, diff, shown))
    return found


_Place = tuple[int, int]  # a run, and its method
_Of = TypeVar("_Of")


def _pairs(methods: Sequence[Sequence[ShownMethod]]) -> Iterator[tuple[_Place, _Place]]:
    """Yield the profiles to compare.

    Two runs: profiles of the same method and phase; without any in common, the profiles of two runs
    that have one each. One run: its methods, but not its phases, which do different work.
    """
    names = [
        {
            (shown.profile.method, shown.profile.phase): (run, number)
            for number, shown in enumerate(shown_methods)
        }
        for run, shown_methods in enumerate(methods)
    ]
    ran = [run for run, found in enumerate(names) if found]
    if len(ran) == 1:
        alone = [place for (_, phase), place in names[ran[0]].items() if phase is None]
        yield from _few(alone)
        return
    for one, other in _few(ran):
        common = [name for name in names[one] if name in names[other]]
        for name in common:
            yield names[one][name], names[other][name]
        if not common and len(names[one]) == len(names[other]) == 1:
            yield next(iter(names[one].values())), next(iter(names[other].values()))


def _few(found: Sequence[_Of]) -> Iterator[tuple[_Of, _Of]]:
    if len(found) <= MOST_EACH:
        yield from itertools.combinations(found, 2)
    else:
        yield from ((found[0], other) for other in found[1:])


def _document(sides: tuple[_Place, _Place], diff: MethodDiff, shown: Sequence[ShownMethod]) -> Json:
    scale = shown[0].scale
    doubts = []
    try:
        check_comparable(diff.sides.before, diff.sides.after, diff.alignment)
    except MismatchError as error:
        doubts = [f"{error.message[:1].upper()}{error.message[1:]}."]
    sums = {by: waterfall(diff, by) for by in GROUPINGS}
    return {
        "a": list(sides[0]),
        "b": list(sides[1]),
        "verdict": diff.verdict.value,
        "headline": [*doubts, *headline(diff, scale, sums)],
        "notes": list(diff.notes),
        "table": table_document(_rows(diff, shown)),
        "sums": [
            table_document(_shown(parts_table(diff, scale, found), (by, *_SUMS)))
            for by, found in sums.items()
        ],
    }


def _rows(diff: MethodDiff, shown: Sequence[ShownMethod]) -> Table:
    """Return the table of `etscope diff` with the rows of both profiles."""
    table = diff_table(diff, shown[0].scale, with_words=False)
    places = [{id(row): number for number, row in enumerate(method.rows)} for method in shown]
    rows: list[list[int | None]] = [[], []]
    for change in shown_changes(diff, "change")[0]:
        pair = change.pair
        for side, row in enumerate((None, None) if pair is None else (pair.before, pair.after)):
            rows[side].append(None if row is None else places[side][id(row)])
    for side, method in enumerate(shown):
        rows[side] += [len(method.rows) - 2, len(method.rows) - 1]  # unaccounted and total
    more = {Column(f"row_{letter}", Kind.INT, priority=9): rows[n] for n, letter in enumerate("ab")}
    found = _shown(table, _COLUMNS)
    return replace(
        found,
        columns=(*found.columns, *more),
        values={**found.values, **{column.name: cells for column, cells in more.items()}},
    )


def _shown(table: Table, names: Sequence[str]) -> Table:
    """Return the columns `names`, in the page's words: sides A and B, and a number for `relative`,
    so that it is sorted as one."""
    columns = [
        Column("relative", Kind.SHARE)
        if column.name == "relative"
        else replace(column, title=_TITLES.get(column.name, column.title), priority=0)
        for column in table.select(names).columns
    ]
    cells = (table.values[name] for name in ("relative", "ratio"))
    relatives = [None if text is None else ratio - 1 for text, ratio in zip(*cells, strict=True)]
    return replace(
        table,
        columns=tuple(columns),
        values={**{name: table.values[name] for name in names}, "relative": relatives},
        notes=(),
    )


# -- Programs.


def program_documents(runs: Sequence[ReportRun]) -> list[Json]:
    """Return the `ProgramComparisonDoc` of each later program with the first one. Runs of the same
    program are skipped."""
    sides = [run.side if len(runs) > 1 else None for run in runs]
    known = [(run, side) for run, side in enumerate(sides) if side is not None]
    found = []
    for run, other in known[1:]:
        at, first = known[0]
        # Whether each record is its program's is known from the run, or was not to be checked.
        diff = diff_programs(first, other, force=True)
        if diff.identical and not (runs[at].trace is None and runs[run].trace is None):
            continue
        report = program_diff_report(diff)
        views = [[shown.view for shown in runs[one].graphs] for one in (at, run)]
        pairs = () if diff.identical else pair_graphs(diff, *views)
        found.append(
            {
                "a": at,
                "b": run,
                "identical": diff.identical,
                "summary": list(report.summary),
                "sections": [section_document(section) for section in report.sections],
                "graphs": [
                    {
                        "key": pair.after.key,
                        "title": pair.after.title,
                        "a": [node.before for node in pair.nodes],
                        "b": [node.after for node in pair.nodes],
                        "status": [node.status for node in pair.nodes],
                        "what": [list(node.what) for node in pair.nodes],
                    }
                    for pair in pairs
                ],
            }
        )
    return found


# -- Runs of stored documents.


def compared_documents(runs: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the comparisons of runs from their stored documents; raise `FormatError` for a
    document that is not a run.

    A document holds all that a comparison needs: the times of each run, and the modules, operators
    and lines of its rows. Rows whose single runs were left out have their average in each run, and
    do not get a verdict.
    """
    with reading("report", None):
        units = [TimeScale.of(str(run["unit"])) for run in runs]
        scales = [Scale(unit if unit is TimeScale.CYCLES else TimeScale.NS, unit) for unit in units]
        methods = [
            [
                ShownMethod(number, _profile(method, run["source"], scale), scale)
                for number, method in enumerate(run["methods"])
            ]
            for run, scale in zip(runs, scales, strict=True)
        ]
        return comparison_documents(methods)


def _profile(method: Mapping[str, Any], source: Mapping[str, Any], scale: Scale) -> MethodProfile:
    """Return the profile of a `Method`: its rows but for the two that close it."""
    factor = scale_factor(scale.source, scale.target)
    values, depth = method["rows"]["values"], method["rows"]["depth"]
    rows: list[Row] = []
    instruction: int | None = None
    for number in range(len(values["event"]) - 2):
        instruction = instruction if depth[number] else values["instruction"][number]
        rows.append(_row(method, source, number, instruction, factor))
    return MethodProfile(
        method=method["name"],
        runs=np.array(method["runIndex"], dtype=np.int64),
        total=_whole(method["totals"], factor),
        rows=tuple(rows),
        load={},
        traced=False,
    )


def _row(
    method: Mapping[str, Any],
    source: Mapping[str, Any],
    number: int,
    instruction: int | None,
    factor: float,
) -> Row:
    """Return a row of a `Method`. factor: ticks in a unit of its times."""
    cells = {name: column[number] for name, column in method["rows"]["values"].items()}
    samples, count = method["samples"][number], len(method["totals"])
    calls = np.zeros(count, dtype=np.int64)
    if samples is None:
        samples = [cells["avg"] or cells["value"]] * count
    else:
        calls = np.array([sample is not None for sample in samples], dtype=np.int64)
    lines = [
        SourceLine(source["files"][line["file"]], line["line"], line["function"], line["text"])
        for line in (source["lines"][index] for index in method["links"]["lines"][number])
    ]
    ops, module = cells["op_types"] or (), cells["module"]
    # An event has the lines of its nodes: one each, in the form of a traceback.
    traces = [f'  File "{line.file}", line {line.line}, in {line.function}\n' for line in lines]
    frames = () if module is None else (ModuleFrame(module, module, ""),)
    nodes = tuple(
        Node(op, "call_function", op, op, modules=frames, stack_trace=trace)
        for op, trace in itertools.zip_longest(
            ops or ("",), traces[: len(ops)] if ops else traces, fillvalue=""
        )
    )
    is_inherited = not ops and module is not None
    meaning = None
    if cells["kind"] == "delegated":
        meaning = Meaning(
            cells["event"],
            cells["delegate_debug_identifier"] or "",
            quantity=Quantity.INTERVAL if cells["value"] is None else Quantity.COUNTER,
            clock=Clock.RUNTIME if cells["share"] is not None else Clock.DEVICE,
            unit=cells["unit"],
        )
    return Row(
        kind=cells["kind"],
        name=cells["event"],
        ticks=_whole([sample or 0.0 for sample in samples], factor),
        calls=calls,
        instruction_id=instruction,
        delegate_id=cells["delegate_debug_identifier"],
        attribution=Attribution(
            nodes=nodes if ops else (),
            inherited=nodes if is_inherited else (),
            backend_id=cells["backend"],
            stack=() if is_inherited else tuple(lines[:1]),
        ),
        depth=method["rows"]["depth"][number],
        meaning=meaning,
        leaf=cells["leaf"],
    )


def _whole(times: Sequence[float], factor: float) -> Ticks:
    return np.rint(np.asarray(times, dtype=np.float64) * factor).astype(np.int64)
