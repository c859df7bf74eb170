"""The runs of a trace's methods: their values, the state before them, and their matching with a
graph."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from etscope.analysis.matching.matching import Coverage, Matching, Pair, Unpaired, match
from etscope.analysis.profile.calls import RunCalls
from etscope.analysis.profile.logged_run import LoggedRun, logged_run, unfolded
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import EDGE_GRAPH, MethodSymbols, method_symbols
from etscope.errors import MismatchError, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE
from etscope.formats.run_json import DEBUG_BIN, SavedCall, call_of_run
from etscope.model.event_table import Block
from etscope.model.graph import Graph

RECORD_HINT = (
    "run the program with debug_level='intermediate_outputs' (--debug-level), and pass the debug "
    "buffer that it writes"
)

NO_RECORD_HINT = "pass etrecord=: the ETRecord of the program's export"

INPUTS_HINT = "pass the inputs that ran: inputs= (--inputs)"

_LOADS = "Program::load_method"


class OtherInputsError(MismatchError):
    """The reference's inputs are not the inputs of the run: every compared value would look
    wrong.
    """


class MethodRun(NamedTuple):
    """A run of a method: its block, its position among the block's runs, its number in the dump."""

    block: Block
    position: int
    number: int

    @property
    def has_values(self) -> bool:
        """True if the run logged values of operators."""
        return any(key.debug for key in self.block.keys)

    def outputs(self, trace: Trace) -> list[Any]:
        """The logged outputs of the method, the tensors of lists one by one."""
        return unfolded(trace.values(self.block, self.position, self.block.outputs))


def runs_of(trace: Trace, method: str) -> list[MethodRun]:
    """The runs of a method, in the order of the dump.

    If several methods log the same events, the logged values decide.
    """
    found = [
        MethodRun(block, position, int(number))
        for block in trace.blocks
        if block.executions and method_by_values(trace, block) == method
        for position, number in enumerate(block.runs)
    ]
    return sorted(found, key=lambda run: run.number)


def method_by_values(trace: Trace, block: Block) -> str | None:
    """The method of a block's runs. If several methods log the same events, the values decide."""
    method, others = trace.method_of(block), trace.also_fitting(block)
    if method is None or not others or trace.record is None:
        return method
    return max(
        (method, *others),
        key=lambda name: len(
            TracedMethod(trace, name).match(logged_run(trace, block, 0, name)).pairs
        ),
    )


def method_that_ran(trace: Trace, method: str | None) -> str:
    """Return `method`; by default the only one that ran, or "forward"."""
    if method is not None:
        return method
    ran = methods_that_ran(trace)
    if len(ran) == 1:
        return ran[0]
    if "forward" in ran:
        return "forward"
    if not ran:
        raise NumericGapError(
            "the ETDump has no run of any method of the record",
            hint="methods of the record: " + (", ".join(trace.methods) or "none"),
        )
    raise UsageError(
        f"several methods ran: {', '.join(ran)}", hint="choose one (method=, --method)"
    )


def methods_that_ran(trace: Trace) -> list[str]:
    """Names of the methods with runs in the dump."""
    return [name for name in trace.methods if runs_of(trace, name)]


def run_of_call(trace: Trace, chosen: RunCalls) -> tuple[str, MethodRun]:
    """Return the first of some calls of a trace that logged values: its method, and its run.

    Raises `NumericGapError` when none of them did.
    """
    methods = {trace.method_of(block) for block in trace.blocks if block.executions}
    every = {
        run.number: (method, run)
        for method in sorted(str(name) for name in methods if name is not None)
        for run in runs_of(trace, method)
    }
    for number in chosen.run.tolist():
        if number in every and every[number][1].has_values:
            return every[number]
    have = [
        call
        for call, number in enumerate(trace.calls_of_runs.run.tolist())
        if number in every and every[number][1].has_values
    ]
    numbers = ", ".join(map(str, have[:6])) + (", …" if len(have) > 6 else "")
    raise NumericGapError(
        "the ETDump has no values of operators of "
        + ("this call" if len(chosen.run) == 1 else "these calls"),
        hint=f"there are values of the calls {numbers}; generate with -X values_at=A..B for others"
        if have
        else RECORD_HINT,
    )


def check_record(trace: Trace, wanted_by: str) -> None:
    """Raise `NumericGapError` without a record. wanted_by: how the message begins, such as "a
    diagnosis needs".
    """
    if trace.record is None:
        raise NumericGapError(f"{wanted_by} an ETRecord", hint=NO_RECORD_HINT)


def check_values(trace: Trace) -> None:
    """Raise `NumericGapError` when the values of the dump's tensors cannot be read, `FormatError`
    when the debug buffer is too short for them."""
    if trace.debug_buffer is None:
        path = trace.dump.path
        beside = None if path is None else Path(path).with_name(DEBUG_BIN)
        known = beside is not None and beside.is_file()
        raise NumericGapError(
            "the logged values are in the debug buffer, which is missing",
            hint="pass debug_buffer_path= (--debug-buffer)"
            + (f": it may be {beside}" if known else f"; {RECORD_HINT}"),
        )
    trace.check_debug_buffer()


class PairedValues:
    """The logged values of the matched pairs, and for each pair that cannot be compared the
    reason.
    """

    def __init__(self, logged: LoggedRun, matching: Matching) -> None:
        self.matching = matching
        self.records = {record.instruction_id: record for record in logged.instructions}
        self._logged = logged
        self._seen: set[Pair] = set()
        self._failed: dict[Pair, Unpaired] = {}

    def value(self, pair: Pair, loop_pass: int, expected: Any) -> Any | None:
        """The logged value in the shape of `expected`; None if it cannot be compared with it."""
        self._seen.add(pair)
        passes = self._logged.values(pair)
        if loop_pass >= len(passes):
            self._fail(
                pair, f"the loop ran {len(passes)} times here and more often in the reference"
            )
            return None
        value, shape = passes[loop_pass], np.shape(expected)
        if np.shape(value) != shape:
            if not pair.is_view or np.size(value) != np.size(expected):
                logged_shape = list(np.shape(value))
                self._fail(pair, f"logged as {logged_shape}, but {list(shape)} in the reference")
                return None
            value = np.reshape(value, shape)
        if np.size(expected) == 0:
            self._fail(pair, "it has no elements", "empty")
            return None
        return value

    def compared(
        self, reference: Iterable[tuple[str, Any]]
    ) -> Iterator[tuple[Pair, int, Any, Any]]:
        """Run the reference; yield (pair, pass of a loop, reference value, logged value) of each
        value that can be compared."""
        passes: Counter[Pair] = Counter()
        for name, value in reference:
            for pair in self.matching.by_node.get(name, ()):
                expected = value if pair.element is None else value[pair.element]
                loop_pass = passes[pair]
                passes[pair] += 1
                actual = self.value(pair, loop_pass, expected)
                if actual is not None:
                    yield pair, loop_pass, expected, actual

    def _fail(self, pair: Pair, reason: str, kind: str = "differs") -> None:
        self._failed[pair] = Unpaired(
            reason,
            kind,
            instruction=pair.instruction,
            output=pair.output,
            op=self.records[pair.instruction].label
            if pair.delegate_id is None
            else str(pair.delegate_id),
        )

    def coverage(self) -> Coverage:
        """The coverage of the comparison, after the reference has ended."""
        for pair in self.matching.pairs:
            if pair not in self._seen:
                self._fail(pair, f"the reference did not run {pair.node}: it took another branch")
        compared = [pair for pair in self.matching.pairs if pair not in self._failed]
        named = {pair.node for pair in compared}
        lost = {
            pair.node: Unpaired(reason.reason, reason.kind, node=pair.node)
            for pair, reason in self._failed.items()
            if pair.node not in named
        }
        return Coverage(
            pairs=len(compared),
            outputs=(*self.matching.unpaired_outputs, *self._failed.values()),
            nodes=(*self.matching.unpaired_nodes, *lost.values()),
            paired_nodes=len(named),
            sees_inside=any(pair.delegate_id is not None for pair in compared),
        )


@dataclass(frozen=True, slots=True)
class Sequences:
    """The runs of a method, grouped by the load that they follow.

    doubt: the reason why the grouping may be wrong; None if the dump shows it.
    """

    runs: tuple[tuple[MethodRun, ...], ...]
    doubt: str | None = None

    def before(self, run: MethodRun) -> tuple[MethodRun, ...]:
        """The earlier runs of the same load; the run continues their state."""
        for sequence in self.runs:
            if any(one.number == run.number for one in sequence):
                return tuple(one for one in sequence if one.number < run.number)
        return ()


class TracedMethod:
    """A method of a trace: its runs and their calls, its edge program, and the matching of its runs
    with a graph of the record."""

    def __init__(self, trace: Trace, name: str) -> None:
        self.trace, self.name = trace, name

    @cached_property
    def runs(self) -> list[MethodRun]:
        return runs_of(self.trace, self.name)

    def run(self, wanted: int | MethodRun | None) -> MethodRun:
        """Choose a run that logged values.

        wanted: a run, or its number among the method's runs, from 0; by default the first with
        values.

        Raises `NumericGapError` for a method that did not run or logged nothing, `UsageError` for a
        number out of range.
        """
        runs = [wanted] if isinstance(wanted, MethodRun) else self.runs
        if not runs:
            blocks = [block for block in self.trace.blocks if block.executions]
            ran = sorted({name for name in map(self.trace.method_of, blocks) if name is not None})
            raise NumericGapError(
                f"the ETDump has no run of the method {self.name!r}",
                hint="methods that ran: " + (", ".join(ran) or "none"),
            )
        if isinstance(wanted, int):
            if not 0 <= wanted < len(runs):
                times = f"{len(runs)} time" + ("" if len(runs) == 1 else "s")
                raise UsageError(
                    f"the method {self.name!r} ran {times}: run {wanted} does not exist"
                )
            runs = [runs[wanted]]
        for candidate in runs:
            if candidate.has_values:
                return candidate
        raise NumericGapError("the ETDump has no values of operators", hint=RECORD_HINT)

    @cached_property
    def call_of(self) -> Callable[[MethodRun], SavedCall | None]:
        """Return a function that finds the saved call of a run; it returns None for an unknown
        call.
        """
        known = self.trace.known_calls
        if not known:
            return lambda _: None
        numbers = [one.number for one in self.runs]
        mine = [call for call in known if call.method == self.name]
        if len(mine) == len(numbers) and all(call.runs == 1 for call in mine):  # of a generation
            return lambda run: mine[bisect_left(numbers, run.number)]
        return lambda run: call_of_run(mine, self.name, bisect_left(numbers, run.number))

    @cached_property
    def sequences(self) -> Sequences:
        """The runs, grouped by the load that they follow.

        The runtime logs that a method was loaded, but not which one. If several methods ran, each
        is assumed to be loaded once, unless loads outnumber methods.
        """
        runs, blocks = self.runs, self.trace.blocks
        loads = sorted(
            int(number)
            for block in blocks
            if any(key.name == _LOADS for key in block.keys)
            for number in block.runs
        )
        if runs and not any(load < runs[0].number for load in loads):
            doubt: str | None = (
                "the dump does not show when the model was loaded: the first run is assumed to "
                "start from the initial state"
            )
            # A core comes with all calls since the load.
            return Sequences((tuple(runs),), None if self.trace.known_calls else doubt)
        methods = {self.trace.method_of(block) for block in blocks if block.executions}
        if len(methods) > 1:
            doubt = (
                f"methods were loaded {len(loads)} times, and the dump does not say which: the "
                f"state of {self.name!r} is assumed to continue from its first run"
            )
            return Sequences((tuple(runs),), doubt if len(loads) > len(methods) else None)
        found: list[list[MethodRun]] = []
        last = -1
        for run in runs:
            if not found or any(last < load < run.number for load in loads):
                found.append([])
            found[-1].append(run)
            last = run.number
        return Sequences(tuple(map(tuple, found)))

    @cached_property
    def symbols(self) -> MethodSymbols:
        """The symbols of the method with its edge graph, whatever graph the trace shows.

        Raises `NumericGapError` without a record.
        """
        record = self.trace.record
        if record is None:
            raise NumericGapError(
                "without an ETRecord the values cannot be matched with nodes", hint=NO_RECORD_HINT
            )
        if self.trace.reference_graph in (EDGE_GRAPH, EDGE):
            return self.trace.symbols(self.name)
        return method_symbols(record, self.name)

    def logged(self, run: MethodRun) -> LoggedRun:
        return logged_run(self.trace, run.block, run.position, self.name)

    def match(self, logged: LoggedRun, graph: Graph | None = None) -> Matching:
        """Match a run with a graph of the record, by default the edge program's."""
        symbols = self.symbols
        if symbols.graph is None:
            raise NumericGapError(
                "the record has no graphs, so the values cannot be matched with nodes",
                hint=NO_RECORD_HINT,
            )
        own = symbols.graph if graph is None or graph.name == symbols.graph.name else graph
        # Runs of the same events that logged the same types are matched alike.
        types = tuple(
            (key, *specs)
            for table in (logged.specs, logged.delegated_specs)
            for key, specs in table.items()
        )
        return self.trace.once(
            ("matching", self.name, own.name, logged.block.keys, types),
            lambda: match(
                own,
                symbols,
                logged.instructions,
                logged.specs,
                delegated=logged.delegated_specs,
                outputs=logged.outputs,
            ),
        )
