"""The result of a diagnosis: a row for each value, and a verdict on all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Protocol

import numpy as np

from etscope.analysis.faults.faults import OTHER_WEIGHTS
from etscope.analysis.matching.matching import Coverage, Pair
from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.error_location import WrongPart
from etscope.analysis.numerics.explanations import Explanation
from etscope.analysis.numerics.limits import new_nan
from etscope.analysis.numerics.quantization import Quantization
from etscope.analysis.numerics.values import ValueComparison
from etscope.analysis.program.source_location import short_lines
from etscope.errors import UsageError
from etscope.model.finding import Finding, Severity, Sureness, remedies_of
from etscope.model.graph import SourceLine
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown
from etscope.units import listed

FINE, WRONG, INHERITED, BY_DESIGN = "fine", "wrong", "inherited", "by design"
SORTS = ("run", "error")
_OTHERS = 3  # wrong operators that the notes describe after the first


@dataclass(frozen=True, slots=True)
class NonFinite:
    """The counts of NaN and infinities in a device's value, and in the reference's.

    new_nan: NaN in elements where the reference has numbers.
    """

    nan: int
    infinite: int
    expected_infinite: int
    new_nan: int

    @classmethod
    def of(cls, value: Any, expected: Any) -> NonFinite | None:
        """Count NaN and infinities in a device's value; None if it has none."""
        nan, infinite = _non_finite(value)
        if not (nan or infinite):
            return None
        return cls(nan, infinite, _non_finite(expected)[1], new_nan(expected, value))

    @property
    def is_unexpected(self) -> bool:
        """True for NaN where the reference has none, and for more infinities than it has: a mask
        may be infinite."""
        return self.new_nan > 0 or self.infinite > self.expected_infinite

    def __str__(self) -> str:
        parts = [(self.nan, "NaN"), (self.infinite, "Inf")]
        return ", ".join(f"{count} {name}" for count, name in parts if count)


@dataclass(frozen=True, slots=True, eq=False)
class RowValues:
    """Comparisons of a device's value.

    local: against PyTorch's result from the device's own inputs. total: against the reference; None
    if it is the same, or did not run.
    """

    local: ValueComparison
    total: ValueComparison | None = None

    def behind(self, verdict: str) -> ValueComparison:
        """The most useful comparison: the operator's own error for a wrong value, else the error to
        the reference."""
        return self.local if verdict == WRONG or self.total is None else self.total


@dataclass(frozen=True, slots=True, eq=False)
class NumericsRow(Shown):
    """A value of the device, and where its error comes from.

    event, label: the names of the instruction, or of the operator inside a delegate. op: the node's
    operator. nodes: the nodes that compute the value from the last recorded values, the value's own
    node last; for a delegate's call, all of its nodes. reads: the nodes of those recorded values.
    inputs: the graph's inputs that are read directly. lines: the Python lines of these nodes, the
    node's own line first.

    total: the error of the device's value against the reference. quantization: for a quantized
    model, the error of the reference against the graph before quantization, if the record has that
    graph. local: the error against the value that PyTorch computes from the device's own inputs.
    inherited: the error of that value against the reference. noise: the rounding error in PyTorch;
    None where the value is fine even without it. limit: the allowed local error; if noise is None,
    it comes from the tolerance alone. All are in the metric; None where there is nothing to compare
    with. excess: the local error divided by the limit, as root mean squares. share: the share of
    elements that are clearly off.

    verdict: "wrong" if the local error exceeds the limit, or if a `part` of the value exceeds its
    own limit; "inherited" if neither does, but an earlier operator is wrong and its error shows
    here; "by design" if the error against the reference exceeds the limit because a backend
    computes something differently by design; else "fine". non_finite: None for a value without NaN
    and infinities. values: kept only for some rows, see `diagnose.KeptValues`. explanation: the
    fault; only the first wrong rows may have one.
    """

    pair: Pair
    loop_pass: int
    event: str
    label: str
    is_delegate: bool
    op: str
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    inputs: tuple[str, ...]
    lines: tuple[SourceLine, ...]
    module: str | None
    shape: tuple[int, ...]
    dtype: str
    total: float | None = None
    quantization: float | None = None
    local: float | None = None
    inherited: float | None = None
    noise: float | None = None
    limit: float | None = None
    excess: float = 0.0
    share: float = 0.0
    verdict: str = FINE
    part: WrongPart | None = None
    non_finite: NonFinite | None = None
    values: RowValues | None = None
    explanation: Explanation | None = None

    @property
    def order(self) -> tuple[int, int, bool, int]:
        """For sorting: the order of execution. The passes of a loop come one after the other."""
        pair = self.pair
        return self.loop_pass, pair.instruction, pair.delegate_id is None, pair.output

    @property
    def node(self) -> str:
        """The node, with the index of its value if it returns several: "split[1]"."""
        element = self.pair.element
        return self.pair.node if element is None else f"{self.pair.node}[{element}]"


@dataclass(frozen=True)
class Numerics(Shown):
    """The rows of a run in order of execution, and what they say.

    `run` is the dump's run. `doubts` say why the reference may have had other inputs than the
    device, `designs` what backends compute otherwise than PyTorch; `undocumented` are the backends
    with unknown arithmetic. `quantization` is the cost of quantization, if the record of a
    quantized model has the float graph. `faults` are the program's faults at the wrong operators:
    see `analysis.faults`. `failure` says where the reference failed, if it did: the values after
    that are not judged.
    """

    method: str
    reference: str
    run: int
    metric: Metric
    rows: tuple[NumericsRow, ...]
    coverage: Coverage
    doubts: tuple[str, ...] = ()
    designs: tuple[str, ...] = ()
    undocumented: tuple[str, ...] = ()
    quantization: Quantization | None = None
    faults: tuple[Finding, ...] = ()
    failure: str = ""

    @cached_property
    def wrong(self) -> tuple[NumericsRow, ...]:
        """The operators with a local error beyond the limit, in order of execution."""
        return tuple(row for row in self.rows if row.verdict == WRONG)

    @property
    def first(self) -> NumericsRow | None:
        return self.wrong[0] if self.wrong else None

    @cached_property
    def suspects(self) -> tuple[NumericsRow, ...]:
        """All of `wrong`, largest excess first."""
        return tuple(sorted(self.wrong, key=lambda row: row.excess, reverse=True))

    @cached_property
    def non_finite_origin(self) -> NumericsRow | None:
        """The first value with NaN or infinities that was computed from values without any. A value
        with more of them than the reference comes before one with the reference's NaN.
        """
        found = [(row, row.non_finite) for row in self.rows if row.non_finite is not None]
        unexpected = [row for row, counts in found if counts.is_unexpected]
        nan = [row for row, counts in found if counts.nan]
        return _first_of_flow(unexpected) or _first_of_flow(nan)

    @cached_property
    def stray_nan(self) -> NumericsRow | None:
        """The first value with NaN that are neither in the reference nor in the values it was
        computed from: a finding even where PyTorch computes NaN from the device's numbers, too."""
        found = [row for row in self.rows if row.non_finite and row.non_finite.new_nan]
        return _first_of_flow(found)

    @property
    def is_fine(self) -> bool:
        """True if no operator is wrong, every NaN is in the reference, too, and all values were
        judged."""
        return not self.wrong and self.stray_nan is None and not self.failure

    # -- for people

    def __repr__(self) -> str:
        return f"<Numerics of {self.method}: {self.verdict}>"

    @property
    def verdict(self) -> str:
        """A sentence that names the first wrong operator and its line of Python."""
        return f"{self.failure}; before it, {self._verdict}" if self.failure else self._verdict

    @property
    def _verdict(self) -> str:
        first, stray = self.first, self.stray_nan
        if first is None and stray is not None and stray.non_finite is not None:
            return (
                f"{described(stray)} has {stray.non_finite.new_nan} NaN where the reference "
                "has numbers, and PyTorch also computes NaN from the device's own inputs: "
                "these were wrong already"
            )
        if first is None:
            return (
                f"no operator goes wrong: {_values_are(len(self.rows))} what PyTorch "
                f"computes from the same inputs{self._worst_total()}"
            )
        where = None if first.values is None else first.values.local.concentration
        place = "" if where is None else f"; {where}"
        begin = f"{described(first)} is the first that goes wrong: computed from its own inputs, "
        if first.part is not None:
            return (
                f"{begin}{first.part}; as a whole it passes, its {self.metric.title} is "
                f"{self._value(first.local)}{place}"
            )
        floor = "" if first.noise is None else f" (noise floor {self._value(first.noise)})"
        return (
            f"{begin}its {self.metric.title} is {self._value(first.local)}, and "
            f"{self._value(first.limit)} is allowed{floor}{place}"
        )

    @property
    def what_it_is(self) -> str | None:
        """A sentence that explains the error of the first wrong operator; None if it is unknown, or
        if the program has a fault other than a wrong weight: see `causes`.
        """
        first = self.first
        if first is None or first.explanation is None:
            return None
        if any(_is_cause(fault) and fault.kind != OTHER_WEIGHTS for fault in self.faults):
            return None
        return f"what it is: {first.explanation}"

    @property
    def causes(self) -> tuple[str, ...]:
        """Sentences on the program's faults at wrong operators, and on what to do."""
        kinds = (("a known difference", "the cause")[_is_cause(fault)] for fault in self.faults)
        causes = zip(kinds, self.faults, strict=True)
        return (
            *(f"{kind}: {fault.sentence}".rstrip(".") for kind, fault in causes),
            *(f"to do: {remedy}".rstrip(".") for remedy in remedies_of(self.faults)),
        )

    @property
    def design_notes(self) -> tuple[str, ...]:
        """A sentence about the values that differ from the graph's by design, if there are any."""
        by_design = sum(row.verdict == BY_DESIGN for row in self.rows)
        if not by_design:
            return ()
        differ = " differs" if by_design == 1 else "s differ"
        return (f"{by_design} value{differ} from the graph's by design: {'; '.join(self.designs)}",)

    @property
    def notes(self) -> tuple[str, ...]:
        """The verdict, and further findings."""
        notes = [self.verdict]
        if self.what_it_is is not None:
            notes.append(self.what_it_is)
        notes += self.causes
        others = len(self.wrong) - 1
        if others > 0:
            listed = "; ".join(described(row) for row in self._others)
            more = f"; and {others - len(self._others)} more" if others > len(self._others) else ""
            notes.append(f"wrong by themselves, too: {listed}{more}")
        inherited = sum(row.verdict == INHERITED for row in self.rows)
        if inherited:
            notes.append(f"{_values_are(inherited)} wrong only because their inputs are")
        notes += self.design_notes
        origin = self.non_finite_origin
        if origin is not None and origin.non_finite is not None:
            expected = "" if origin.non_finite.is_unexpected else ", as in the reference"
            notes.append(f"{origin.non_finite} come from {described(origin)}{expected}")
        if self.quantization is not None:
            notes += self.quantization.notes
        notes += () if self.faults else self.doubts
        if self.undocumented:
            where = "by the values that it logged" if self.coverage.sees_inside else "at its border"
            notes.append(
                f"{' and '.join(self.undocumented)}: compared {where} with PyTorch's plain "
                "result, as its own arithmetic is unknown"
            )
        notes.append(str(self.coverage))
        if self.coverage.hidden is not None:
            notes.append(self.coverage.hidden)
        return tuple(notes)

    @property
    def named(self) -> tuple[NumericsRow, ...]:
        """The rows that the notes describe, each once."""
        listed = (self.first or self.stray_nan, *self._others, self.non_finite_origin)
        return tuple(dict.fromkeys(row for row in listed if row is not None))

    @property
    def _others(self) -> list[NumericsRow]:
        """The worst operators that are wrong, without the first."""
        return [row for row in self.suspects if row is not self.first][:_OTHERS]

    def table(self, sort: str = "run") -> Table:
        """One row for each value; sort: "run", order of execution, or "error", the worst first."""
        if sort not in SORTS:
            raise UsageError(f"numerics are sorted by {' or '.join(SORTS)}, not {sort!r}")
        rows: Sequence[NumericsRow] = self.rows
        if sort == "error":
            rows = sorted(rows, key=lambda row: (row.excess, row.verdict == WRONG), reverse=True)
        priorities = {"total": 0, "local": 0, "inherited": 1, "noise": 2, "limit": 2}
        titles = {"total": "backend"} if self.quantization is not None else {}
        if self.quantization is not None:
            priorities = {"quantization": 0, **priorities}
        return Table.of(
            {
                **value_columns(rows, node_priority=2),
                **{
                    Column(
                        name,
                        Kind.FLOAT,
                        unit=self.metric.unit,
                        title=titles.get(name, ""),
                        priority=priority,
                    ): [getattr(row, name) for row in rows]
                    for name, priority in priorities.items()
                },
                Column("excess", Kind.FLOAT, priority=5): [row.excess for row in rows],
                Column("verdict"): [row.verdict for row in rows],
                Column("part", title="wrong part", priority=5): [
                    None if row.part is None else str(row.part) for row in rows
                ],
                Column("explanation", title="what it is", priority=5): [
                    None if row.explanation is None else str(row.explanation) for row in rows
                ],
                Column("kind", title="kind of fault", priority=6): [
                    None if row.explanation is None else row.explanation.kind for row in rows
                ],
                Column("explained", Kind.SHARE, priority=6): [
                    None if row.explanation is None else row.explanation.explained for row in rows
                ],
                Column("non_finite", title="non-finite", priority=3): [
                    None if row.non_finite is None else str(row.non_finite) for row in rows
                ],
                Column("dtype", priority=5): [row.dtype for row in rows],
                Column("shape", Kind.LIST, priority=5): [list(row.shape) for row in rows],
                Column("nodes", Kind.LIST, priority=5): [list(row.nodes) for row in rows],
                **source_columns(rows, module_priority=3),
            },
            title=f"{self.metric.title} of {self.method} to {self.reference}",
            notes=self.notes,
        )

    def _value(self, number: float | None) -> str:
        if number is None:
            return "not known"
        if math.isnan(number):
            return "not a number (NaN)"
        return self.metric.text(number)

    def _worst_total(self) -> str:
        totals = [row for row in self.rows if row.total is not None]
        if not totals:
            return ""
        worst = max(totals, key=lambda row: self.metric.badness(row.total))
        return (
            f"; the worst {self.metric.title} to the reference is {self._value(worst.total)}, in "
            f"instruction {worst.pair.instruction}"
        )


def value_columns(rows: Sequence[NumericsRow], node_priority: int) -> dict[Column, list[Any]]:
    """Columns that identify the value of each row. Where the column of nodes may be hidden, the
    output tells the values of one instruction apart."""
    is_needed = node_priority > 2 and any(row.pair.output for row in rows)
    return {
        Column("instruction", Kind.INT): [row.pair.instruction for row in rows],
        Column("output", Kind.INT, priority=0 if is_needed else 5): [
            row.pair.output for row in rows
        ],
        Column("pass", Kind.INT, priority=5): [row.loop_pass for row in rows],
        Column("event", priority=5): [row.event for row in rows],
        Column("op"): [row.label or row.op for row in rows],
        Column("node", priority=node_priority): [row.node for row in rows],
    }


class _Placed(Protocol):
    @property
    def module(self) -> str | None: ...
    @property
    def lines(self) -> tuple[SourceLine, ...]: ...


def source_columns(rows: Sequence[_Placed], module_priority: int) -> dict[Column, list[Any]]:
    """Columns with the module and the lines of Python of each row."""
    return {
        Column("module", Kind.PATH, priority=module_priority): [row.module for row in rows],
        Column("source", Kind.PATH): [short_lines(row.lines) or None for row in rows],
        Column("sources", Kind.LIST, title="source lines", priority=8): [
            [str(line) for line in row.lines] for row in rows
        ],
    }


def _first_of_flow(rows: Sequence[NumericsRow]) -> NumericsRow | None:
    """The first that reads a value of none of them."""
    nodes = {row.pair.node for row in rows}
    return next((row for row in rows if nodes.isdisjoint(row.reads)), None)


def _non_finite(value: Any) -> tuple[int, int]:
    """The numbers of NaN and of infinities."""
    array = np.asarray(value)
    if value is None or array.dtype.kind in "biuO":
        return 0, 0
    finite = np.isfinite(array)
    if finite.all():
        return 0, 0
    nan = int(np.count_nonzero(np.isnan(array)))
    return nan, array.size - nan - int(np.count_nonzero(finite))


def _values_are(count: int) -> str:
    """ "1 value is", "24 values are"."""
    return f"{count} value is" if count == 1 else f"{count} values are"


def described(row: NumericsRow) -> str:
    """An operator by instruction, name, node, module and line; a delegate by all its lines."""
    what = "the delegate call" if row.is_delegate else row.label or row.op
    if row.pair.delegate_id is not None:
        what = f"{what} inside the delegate call"
    places = [f"node {row.node}"]
    if row.module:
        places.append(f"module {row.module}")
    if row.lines:
        places.append(listed([*map(str, row.lines)], 8) if row.is_delegate else str(row.lines[0]))
    return f"instruction {row.pair.instruction}, {what} ({', '.join(places)})"


# -- the place of a fault in a delegate call


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed(Shown):
    """The place of a fault in a wrong delegate call, found by exports with taps.

    call: the original row of the call. row: the wrong row in the last export that narrowed the
    fault down; the call itself if no export did; None if the fault does not show on this machine's
    runtime. lines, module: where the operators come from that may still have the fault; op, node:
    the last of these operators. taps: the nodes with taps in that export. vanished: True if the
    fault is gone with taps on all operators of the call. exports, runs: how many were made.
    failure: why an export or run failed, as text; None if none did.
    """

    call: NumericsRow
    row: NumericsRow | None
    lines: tuple[SourceLine, ...]
    module: str | None
    op: str
    node: str
    taps: tuple[str, ...]
    vanished: bool
    exports: int
    runs: int
    failure: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences with the line and the module, and how they were found."""
        cost = f"{_count(self.exports, 'export')}, {_count(self.runs, 'run')}"
        lines = _count(len(self.call.lines), "line")
        before = f"the delegate call of instruction {self.call.pair.instruction} ({lines})"
        if self.row is None and self.runs:
            return (
                f"{before} is right on the runtime of this machine, so it cannot be narrowed down "
                f"here ({cost}): export with taps (etscope export -X taps='op:*') and run that on "
                "the device",
            )
        gone = "the fault is gone: it is in how the operators are fused"
        if self.row is None or self.row is self.call:
            why = self.failure or "no tap divides the fault"
            if self.vanished:
                why = f"with a tap anywhere in it {gone}"
            return (f"{before} cannot be narrowed down ({cost}): {why}",)
        places = [self.op, f"node {self.node}", cost]
        if self.module:
            places.insert(0, f"module {self.module}")
        lines = ", ".join(f"{PurePath(line.file).name}:{line.line}" for line in self.lines)
        where = f"{lines or 'no known line'} ({', '.join(places)})"
        told = f"narrowed down: {before} goes wrong at {where}"
        if not self.vanished:
            return (told,)
        stays = f"with taps on {', '.join(self.taps)} alone it stays"
        return told, f"with taps on all operators of the call {gone}; {stays}"


def with_faults(found: Numerics, faults: Sequence[Finding]) -> Numerics:
    """Add the faults of the program that are at a wrong operator, other weights first: they are the
    cause of its error. A fault elsewhere is not named: these values do not show it."""
    at_wrong = [
        fault
        for fault in faults
        if fault.method == found.method and any(_may_cause(fault, row) for row in found.wrong)
    ]
    at_wrong.sort(key=lambda fault: fault.kind != OTHER_WEIGHTS)
    return replace(found, faults=tuple(at_wrong))


def _may_cause(fault: Finding, row: NumericsRow) -> bool:
    """True if a wrong value may come from a fault. One that only some values show is not the cause
    of a wrong call of many operators, unless the call has such values."""
    why = fault.explanation
    if why is None or all(site.instruction != row.pair.instruction for site in why.sites):
        return False
    is_nan = row.local is not None and math.isnan(row.local)
    is_shown = is_nan or row.non_finite is not None or len(row.nodes) == 1
    return is_shown or why.sureness is not Sureness.POSSIBLE


def _is_cause(fault: Finding) -> bool:
    """False for a difference too small to explain any error."""
    return fault.severity is not Severity.FACT


def guilty_call(found: Numerics) -> NumericsRow | None:
    """Return the first wrong row of a delegate call that covers several lines. Return None if there
    is none, or if a fault found in the program explains the error.
    """
    return None if why_not_narrowed(found) else next(_guilty_calls(found))


def why_not_narrowed(found: Numerics) -> str:
    """Return the reason why no call is narrowed down, as a sentence; "" if one is."""
    if any(map(_is_cause, found.faults)):
        return "not narrowed down: a fault of the program explains the wrong values"
    if next(_guilty_calls(found), None) is not None:
        return ""
    if any(row.is_delegate for row in found.wrong):
        return "not narrowed down: no wrong delegate call has operators of several known lines"
    return "not narrowed down: no delegate call is wrong"


def _guilty_calls(found: Numerics) -> Iterator[NumericsRow]:
    return (row for row in found.wrong if row.is_delegate and len(row.lines) > 1)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
