"""Match vendor profiler files to delegate calls.

A file belongs to calls of its backend. Among several, the node names in the file decide, then the
order if there is one file for each call; else the user has to choose. Times on the runtime's clock
stay where they happened; all others start with the call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import handle_list
from etscope.analysis.program.source_location import common_module, lines_of, user_lines
from etscope.backends.arm.debug_json import KIND as ARM_DEBUG
from etscope.backends.registry.tool_files import BackendFile, ImportedRow
from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.model.event_table import Block, EventKey, Ints
from etscope.model.graph import Node, SourceLine
from etscope.units import TimeScale, scale_factor

# The call that the user names, None if none, and the file.
Given = tuple[str | None, BackendFile]
_HINT = "choose one: --with CALL=FILE, where CALL is {}"


@dataclass(frozen=True)
class DelegateCall:
    """An instruction that calls a delegate, and when it ran.

    run, start, ticks: int64, one element for each time; start and ticks of the dump's clock.
    """

    method: str | None
    instruction: int | None
    backend: str | None
    block: Block
    key: EventKey
    run: Ints
    start: Ints
    ticks: Ints

    @property
    def title(self) -> str:
        """Name it for readers: "QnnBackend #0 of forward"."""
        of = "" if self.method is None else f" of {self.method}"
        return f"{self.backend or 'delegate'} #{self.instruction}{of}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a user may choose it by, the most specific first."""
        number = str(self.instruction)
        found = [f"{self.method}:{number}"] if self.method else []
        return (*found, number, *([self.backend] if self.backend else []))


@dataclass(frozen=True)
class PlacedRow:
    """A row of a file, with its nodes in the record."""

    row: ImportedRow
    nodes: tuple[Node, ...] = ()
    own_lines: tuple[SourceLine, ...] = ()

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        return lines_of(self.nodes) or self.own_lines

    @property
    def module(self) -> str | None:
        return common_module(self.nodes) if self.nodes else self.row.module

    @property
    def handles(self) -> list[int]:
        return list(dict.fromkeys(n.debug_handle for n in self.nodes if n.debug_handle is not None))


@dataclass(frozen=True)
class PlacedFile:
    """A file with its calls: one call, or all calls of an inference together.

    reason: how the match is known, for readers. on_runtime_clock: its times are on the runtime's
    clock.
    """

    file: BackendFile
    calls: tuple[DelegateCall, ...]
    reason: str
    rows: tuple[PlacedRow, ...]
    on_runtime_clock: bool = False
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return Path(self.file.path).name


def delegate_calls(trace: Trace) -> list[DelegateCall]:
    """Return the delegate calls of all methods, in the order of their first run."""
    parts: dict[tuple[str | None, int | None], list[tuple[Block, int]]] = {}
    for block in trace.blocks:
        for index in block.profiled if block.executions else ():
            key = block.keys[index]
            if key.role == "delegate":
                parts.setdefault((trace.method_of(block), key.instruction), []).append(
                    (block, index)
                )
    found = []
    for (method, instruction), places in parts.items():
        block, index = places[0]
        key = block.keys[index]
        run, start, ticks = (
            np.concatenate(columns).astype(np.int64)
            for columns in zip(*((b.runs, b.starts[i], b.ticks[i]) for b, i in places), strict=True)
        )
        order = np.argsort(start, kind="stable")
        found.append(
            DelegateCall(
                method,
                instruction,
                trace.shown_at(block)(key).backend_id,
                block,
                key,
                run[order],
                start[order],
                ticks[order],
            )
        )
    return sorted(found, key=lambda call: int(call.start[0]))


def place_files(
    trace: Trace, given: Sequence[Given], source: TimeScale = TimeScale.NS
) -> list[PlacedFile]:
    """Match each file to its calls in the trace.

    source: the unit of the dump's clock.

    Raises `MissingDataError` for a dump without delegate calls, `MismatchError` for a file of
    another backend or another time, and `UsageError` if several calls are possible.
    """
    calls = delegate_calls(trace)
    if given and not calls:
        raise MissingDataError(
            "the dump has no delegate call for --with",
            hint="pass the dump of a run with a delegate, at a profiling level that logs events",
        )
    known = {id(call): _CallNames(trace, call) for call in calls}
    chosen = [_chosen(name, file, calls) for name, file in given]
    placed: list[PlacedFile] = []
    for number, (name, file) in enumerate(given):
        candidates = chosen[number]
        alike = [
            other
            for other, (said, one) in enumerate(given)
            if said is None and one.kind == file.kind and chosen[other] == candidates
        ]
        order = alike.index(number) if name is None and len(alike) == len(candidates) else None
        if file.has_host_clock:
            on_clock = _by_time(trace, file, candidates, source, name is not None)
            if on_clock:
                placed += on_clock
                continue
        placed += _by_call(file, candidates, known, name is not None, order)
    # Arm's map of a call translates the names in Vela's files.
    maps: dict[int, dict[str, PlacedRow]] = {}
    for one in placed:
        if one.file.kind == ARM_DEBUG:
            rows = _joined(one, known[id(one.calls[0])], {}).rows
            maps.setdefault(id(one.calls[0]), {}).update((row.row.name, row) for row in rows)
    return [
        _joined(
            one,
            known[id(one.calls[0])],
            {} if one.file.kind == ARM_DEBUG else maps.get(id(one.calls[0]), {}),
        )
        for one in placed
    ]


def _chosen(
    name: str | None, file: BackendFile, calls: Sequence[DelegateCall]
) -> Sequence[DelegateCall]:
    """Return the possible calls of a file: the calls that the user names, else the calls of its
    backend."""
    label = f"{file.kind} {file.path}"
    if name is not None:
        named = [call for call in calls if name.removeprefix("#") in call.names]
        if not named:
            raise UsageError(
                f"the dump has no delegate call {name!r}",
                hint="the calls are: " + ", ".join(f"{c.names[0]} ({c.title})" for c in calls),
            )
        calls = named
    if not file.backends:
        return calls
    possible = [call for call in calls if call.backend is None or call.backend in file.backends]
    if not possible:
        ran = ", ".join(dict.fromkeys(str(call.backend) for call in calls))
        raise MismatchError(
            (f"{label} is from {' or '.join(file.backends)}, but this run has delegates of: {ran}"),
            hint="pass the dump and the record of the file's program",
        )
    return possible


def _by_time(
    trace: Trace,
    file: BackendFile,
    calls: Sequence[DelegateCall],
    source: TimeScale,
    is_said: bool,
) -> list[PlacedFile]:
    """Match a trace to the calls that contain its events; return nothing if it is on another clock.

    is_said: the user names the call. Two clocks that start at 0 may overlap by chance: a trace
    without events in the named call is on another clock.
    """
    spans, between = file.spans, file.between
    if spans is None or between is None or not len(spans) or source is TimeScale.CYCLES:
        return []
    factor = scale_factor(source, TimeScale.US)
    first, last = spans.start.min(), (spans.start + spans.duration).max()
    runs = [
        (
            block.starts[index].min() / factor,
            (block.starts[index] + block.ticks[index]).max() / factor,
        )
        for block in trace.blocks
        for index in block.executions
    ]
    if not any(begins <= last and first <= ends for begins, ends in runs):
        return []
    found = []
    for call in calls:
        begins = call.start / factor
        intervals = list(zip(begins.tolist(), (begins + call.ticks / factor).tolist(), strict=True))
        part = between(intervals)
        if part.rows:
            reason = "its events are inside this call, on the runtime's clock"
            rows = tuple(map(PlacedRow, part.rows))
            found.append(PlacedFile(part, (call,), reason, rows, on_runtime_clock=True))
    if not found and not is_said:
        raise MismatchError(
            f"{file.kind} {file.path} covers the time of this dump, but none of its events is "
            "inside a delegate call. Events around a call, or between calls, do not count.",
            hint="if the file uses another clock, name its call: --with CALL=FILE",
        )
    inside = sum(len(one.file.spans or ()) for one in found)
    if found and (left := len(spans) - inside):
        note = (
            f"{left:,} of the file's {len(spans):,} spans are outside delegate calls and not shown."
        )
        found[0] = replace(found[0], notes=(note,))
    return found


def _by_call(
    file: BackendFile,
    calls: Sequence[DelegateCall],
    known: Mapping[int, _CallNames],
    is_said: bool,
    order: int | None,
) -> list[PlacedFile]:
    """Match a file without a common clock to one call, or to all calls together."""

    def at(call: DelegateCall, reason: str, part: BackendFile = file) -> PlacedFile:
        return PlacedFile(part, (call,), reason, tuple(map(PlacedRow, part.rows)))

    if file.of_inference and not is_said and len({call.method for call in calls}) == 1:
        reason = f"its numbers cover all calls of {calls[0].backend or 'the delegate'}"
        rows, logged = tuple(map(PlacedRow, file.rows)), file.calls_per_inference
        notes: tuple[str, ...] = ()
        if logged is not None and logged != len(calls):
            notes = (
                f"Delegate calls per inference: {logged:g} in this log, {len(calls)} in the "
                "dump. The log may be from another program.",
            )
        return [PlacedFile(file, tuple(calls), reason, rows, notes=notes)]
    if len(calls) == 1:
        backend = calls[0].backend if file.backends else None
        only = "the only delegate call" if backend is None else f"the only call of {backend}"
        if file.backends and backend is None:
            only += "; its backend is unknown without an ETRecord or program"
        return [at(calls[0], "as --with says" if is_said else only)]
    names = [name for row in file.rows for name in row.nodes]
    scores = [sum(bool(known[id(call)].find((name,))) for name in names) for call in calls]
    best = max(scores)
    if best and scores.count(best) == 1:
        reason = f"{best} of its {len(names)} node names are in this call"
        return [at(calls[scores.index(best)], reason)]
    if order is not None:
        return [at(calls[order], f"file {order + 1} of {len(calls)} of this kind")]
    parts = None if file.split is None else file.split(len(calls))
    if parts is not None:
        return [
            at(call, f"in order: one table for each of the {len(calls)} calls", part)
            for call, part in zip(calls, parts, strict=True)
        ]
    raise UsageError(
        f"{file.kind} {file.path} matches {len(calls)} calls: "
        + ", ".join(call.title for call in calls),
        hint=_HINT.format(" or ".join(call.names[0] for call in calls)),
    )


class _CallNames:
    """The names in the dump and the record for the nodes and events of a call."""

    def __init__(self, trace: Trace, call: DelegateCall) -> None:
        self._trace, self._call = trace, call

    @cached_property
    def has_nodes(self) -> bool:
        return any(self._nodes.values())

    @cached_property
    def _nodes(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes of each name. Names come from the record's delegate map, from nodes and their
        origins, and from events of the dump, which may have no nodes."""
        trace, call = self._trace, self._call
        found: dict[str, tuple[Node, ...]] = {}
        if call.method is not None and trace.record is not None:
            symbols = trace.symbols(call.method)
            number = -1 if call.instruction is None else call.instruction
            nodes = trace.shown_at(call.block)(call.key).nodes
            made: dict[str, dict[int, Node]] = {}
            for node in nodes:
                for origin in node.all_origins():
                    made.setdefault(origin.name, {})[id(node)] = node
            found.update((name, tuple(of.values())) for name, of in made.items())
            found.update((node.name, (node,)) for node in nodes)
            delegate = symbols.delegates.get(number)
            for name, handles in {} if delegate is None else delegate.handles.items():
                found[name] = symbols.nodes_of(handle_list(handles)) or found.get(name, ())
        for index, meaning in trace.meanings(call.block).items():
            if call.block.keys[index].instruction == call.instruction:
                for name in (meaning.name, str(meaning.identifier)):
                    found.setdefault(name, ())
        return found

    def find(self, names: Collection[str]) -> str | None:
        """Return the first known name."""
        return next((name for name in names if name in self._nodes), None)

    def nodes_of(self, name: str) -> tuple[Node, ...]:
        return self._nodes[name]


def _joined(placed: PlacedFile, known: _CallNames, debug: Mapping[str, PlacedRow]) -> PlacedFile:
    """Join the rows to nodes of the record by name. debug: the rows of Arm's map by name."""
    rows, wanted, matched, contradicted = [], 0, 0, 0
    for one in placed.rows:
        names = one.row.nodes
        through = next((debug[name] for name in names if name in debug), None)
        if through is not None:
            one = PlacedRow(replace(one.row, module=through.module), through.nodes, through.lines)
        name = known.find(names)
        nodes = known.nodes_of(name) if name is not None and through is None else one.nodes
        own = user_lines(one.row.lines) or one.own_lines
        if nodes and own:
            # Folders may differ between machines.
            told, places = (
                {(Path(line.file).name, line.line) for line in lines}
                for lines in (own, lines_of(nodes))
            )
            if places and not told & places:
                nodes, name = (), None
                contradicted += 1
        wanted += bool(names)
        matched += name is not None or through is not None
        rows.append(PlacedRow(one.row, nodes, own))
    notes = placed.notes
    if wanted:
        notes = (*notes, _names_note(matched, wanted, contradicted, known.has_nodes))
    return replace(placed, rows=tuple(rows), notes=notes)


def _names_note(matched: int, wanted: int, contradicted: int, has_nodes: bool) -> str:
    if contradicted and not matched:
        return (
            "The file's lines of Python differ from the lines of the record's nodes: the "
            "file is from another program, or another version of the source. No name was "
            "joined to a node."
        )
    if matched:
        return f"{matched:,} of the file's {wanted:,} names are in this call."
    if not has_nodes:
        return f"The file's {wanted:,} names are unknown: add the ETRecord to see their nodes."
    return (
        f"None of the file's {wanted:,} names is in this call: the file is from another "
        "program, or has names that a compiler made (with Vela's files, pass Arm's "
        "debug.json, too)."
    )
