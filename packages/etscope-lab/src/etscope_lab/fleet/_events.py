"""Convert a dump to rows of both tables, column by column, without Python code per event."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etscope.analysis.profile.calls import RunCalls, inferred_calls, recorded_calls
from etscope.analysis.profile.counted import slow_runs
from etscope.analysis.profile.profile import identity
from etscope.analysis.profile.trace import Trace, runs_of
from etscope.analysis.program.correlate import Attribution, handle_list
from etscope.analysis.program.program import is_of_one_length
from etscope.backends.registry.decoders import meanings
from etscope.errors import FormatError
from etscope.formats.app_report import check_runtime
from etscope.formats.bytes.files import open_source
from etscope.formats.etdump.reader import ETDump, EventKind, read_etdump
from etscope.model.event_table import (
    EXECUTE,
    KERNEL_PREFIX,
    LOAD_METHOD,
    Block,
    EventKey,
    EventTable,
    Quantity,
    execution_numbers,
    find_blocks,
    framework_ticks,
)
from etscope.model.statistics import statistic
from etscope.units import TimeScale
from etscope.views.tables.cells import without_surrogates
from etscope_lab.fleet._dataset import EVENT_FIELDS, EVENTS, arrow_schema, arrow_type
from etscope_lab.fleet._derived import EventWork, Leaves, event_work
from etscope_lab.fleet._sources import (
    Record,
    Source,
    is_url,
    matching_record,
    open_record,
    open_url,
)
from etscope_lab.fleet.run_metadata import UNKNOWN, RunMetadata, run_metadata

# -- Events apart from their times.
#
# They are the same for every dump of a program; a dump only adds its times.

_KEPT = 64  # patterns in memory
TEXTS = ("method", "block", "kind", "name", "op", "delegate", "module", "source")


@dataclass(frozen=True, eq=False)
class Pattern:
    """The events of a program without their times: K rows, one for each event of each block.

    It is made once for all dumps that logged the same sequences with the same record.

    methods: the method of each block, None if unknown. backends: the backends of each block's
    delegate events. program_methods: all known methods of the program. of_one_length: methods with
    inputs of the same shapes in every call. texts: [K] dictionary arrays by column. instruction:
    [K] int32 with nulls. handles: [K] lists of int32. work: the work of the events.
    """

    methods: tuple[str | None, ...]
    backends: tuple[Mapping[EventKey, str | None], ...]
    program_methods: tuple[str, ...]
    of_one_length: tuple[str, ...]
    texts: dict[str, Any]
    instruction: Any
    handles: Any
    work: EventWork


_patterns: OrderedDict[tuple[str, str | None], Pattern] = OrderedDict()
_lock = Lock()


def pattern_of(dump: ETDump, fingerprint: str, record: str | None) -> Pattern:
    """The pattern of a dump of that fingerprint with the record at that path.

    Raises `MismatchError` when they do not belong together, and the errors of reading the record.
    """
    with _lock:
        if (found := _patterns.get((fingerprint, record))) is not None:
            _patterns.move_to_end((fingerprint, record))
            return found
    # Phases belong to a dump's runs, not to its events.
    runs = np.arange(dump.num_runs)
    unknown = RunCalls(runs, (None,) * len(runs), np.full(len(runs), -1), np.zeros_like(runs))
    trace = Trace(dump, record=None if record is None else open_record(record), chosen=unknown)
    trace.verify()
    handles = [handle_list(found.debug_handles) or None for found in trace.attributions]
    made = Pattern(
        methods=trace.events.methods,
        backends=tuple(
            {block.keys[index]: backend(block.keys[index]) for index in trace.meanings(block)}
            for block in trace.blocks
            for backend in [trace.backend_of(block)]
        ),
        program_methods=tuple(trace.methods),
        of_one_length=tuple(
            method.name
            for method in (() if trace.recorded_program is None else trace.recorded_program.methods)
            if is_of_one_length(method)
        ),
        texts=_columns_of_text(trace),
        instruction=pa.array([event.key.instruction for event in trace.events.events], pa.int32()),
        handles=pa.array(handles, arrow_type("ints")),
        work=event_work(trace),
    )
    with _lock:
        _patterns[fingerprint, record] = made
        while len(_patterns) > _KEPT:
            _patterns.popitem(last=False)
    return made


def _columns_of_text(trace: Trace) -> dict[str, Any]:
    """Return the columns `TEXTS` of a trace's events, as dictionaries of pyarrow."""
    events = trace.events
    methods = [events.methods[block] for block in events.block.tolist()]
    of_rows = {  # as tables show it: what is inside a call has the module of the call, if no own
        (profile.method, identity(row.event)): row.attribution
        for profile in trace.profiles()
        for row in profile.rows
        if row.event is not None and row.kind != "unaccounted"
    }
    attributions = [
        of_rows.get((method, identity(event.key)), own)
        for event, method, own in zip(events.events, methods, trace.attributions, strict=True)
    ]
    phases = {  # events inside delegates that contain other events
        (block, meaning.parent)
        for block, meaning in zip(events.block.tolist(), events.meaning, strict=True)
        if meaning is not None and meaning.adds
    }
    kernels = {  # what a call runs is named by its kernel, if no node is known
        (block, event.key.instruction): event.key.name.removeprefix(KERNEL_PREFIX)
        for event, block in zip(events.events, events.block.tolist(), strict=True)
        if event.key.role == "kernel"
    }
    rows = [
        {
            "method": method,
            "block": event.block.name,
            **_texts(
                event.key,
                "delegated" if meaning is not None else event.key.role,
                found,
                kernels.get((block, event.key.instruction)),
            ),
            **({"kind": "phase"} if (block, event.index) in phases else {}),
        }
        for event, block, method, meaning, found in zip(
            events.events, events.block.tolist(), methods, events.meaning, attributions, strict=True
        )
    ]
    texts = {}
    for name in TEXTS:
        values = [None if row[name] is None else without_surrogates(row[name]) for row in rows]
        texts[name] = pa.array(values, pa.string()).dictionary_encode()
    return texts


def fingerprint_of(blocks: Sequence[Block]) -> str:
    """SHA-256 of the sequences of events of a dump's blocks."""
    hashed = hashlib.sha256()
    for block in blocks:
        hashed.update(repr((block.name, block.bundled_input_index, block.keys)).encode())
    return hashed.hexdigest()


def constant(value: str | None, length: int) -> Any:
    """One value, `length` times, as a dictionary array."""
    if value is None:
        return pa.nulls(length, arrow_type("text"))
    index = pa.array(np.zeros(length, np.int32))
    return pa.DictionaryArray.from_arrays(index, pa.array([without_surrogates(value)], pa.string()))


def _texts(
    key: EventKey, kind: str, found: Attribution, kernel: str | None
) -> dict[str, str | None]:
    """The values of text columns; op is the name to add times up by, "conv+relu" if fused. kernel:
    the name of that in a call."""
    op: str | None = None
    if kind == "delegate":
        op = found.backend_id
    elif kind == "control":
        op = key.name
    elif kind in ("call", "kernel", "delegated"):
        op = "+".join(dict.fromkeys(found.op_types)) or None
        if op is None:
            op = kernel if kind == "call" else key.name.removeprefix(KERNEL_PREFIX)
            op = re.sub(r" #\d+$", "", op or key.name)
    lines = [str(line) for line in found.lines]
    more = f" +{len(lines) - 1}" if len(lines) > 1 else ""
    return {
        "kind": kind,
        "name": key.name,
        "op": op,
        "delegate": found.backend_id if kind in ("delegate", "delegated") else None,
        "module": found.module,
        "source": lines[0] + more if lines else None,
    }


# -- Rows.

Ints = npt.NDArray[np.int64]
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
UNITS = tuple(_NS)


@dataclass(frozen=True, slots=True)
class Options:
    """Options for all dumps of a collect.

    unit: the unit of their clocks, one of `UNITS`. records: the records to choose from. named: True
    if the only record was given for all dumps, so each dump must match it.
    """

    labels: Mapping[str, str]
    unit: str
    collected_at: datetime
    records: tuple[Record, ...] = ()
    named: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows of a dump. events: a `pyarrow.Table`; None of a result without a dump. row: its row
    in the table of dumps. partition: model and month.
    """

    events: Any
    row: dict[str, Any]
    partition: tuple[str, str]


def content_of(source: Source) -> tuple[Any, str]:
    """The bytes of a dump and their SHA-256; of a result without one, None and its unique text.
    Raises the errors of reading it."""
    if not source.has_dump:
        return None, str(source.sha256)
    given = open_url(source.url) if is_url(source.url) else source.url
    buffer = open_source(given, "ETDump").buffer
    return buffer, hashlib.sha256(buffer).hexdigest()


def take(source: Source, buffer: Any, dump_id: str, options: Options) -> Taken:
    """Return the rows of a dump, or the row of a result without one.

    Raises the errors of reading the dump, its run.json, its record and the log of its app, and
    `MismatchError` if that log belongs to another run.
    """
    known = run_metadata(source, options.labels)
    if not source.has_dump:
        constants = _constants(known, dump_id, known.program_sha256, options)
        nothing = {"has_dump": False, "path": source.url, "bytes": 0, "etrecord": None, "events": 0}
        row = {**constants, **known.columns(), **nothing, **source.columns}
        return Taken(None, row, _partition(known))
    dump = read_etdump(buffer)
    blocks = find_blocks(dump)
    fingerprint = fingerprint_of(blocks)
    record: Record | None
    if source.etrecord is not None:
        record = Record(source.etrecord, known.program_sha256)
    elif options.named:
        record = options.records[0]
    else:
        record = matching_record(dump, fingerprint, options.records, known.program_sha256)
    if record is not None and known.model == UNKNOWN:
        known = run_metadata(source, options.labels, record.path)
    pattern = pattern_of(dump, fingerprint, None if record is None else record.path)
    told = zip(blocks, pattern.backends, strict=True)
    decoded = tuple(meanings(block, backends.get) for block, backends in told)
    numbers = execution_numbers(dump, blocks, pattern.methods)
    table = EventTable(dump, blocks, pattern.methods, decoded, numbers)
    calls = _calls_of_runs(table, pattern, known)
    program = known.program_sha256 or (None if record is None else record.program_sha256)
    constants = _constants(known, dump_id, program, options)
    counted = _counted_runs(table, pattern, calls, is_warmed_up=bool(known.saved.warmup))
    totals = _totals(table, counted, _NS[options.unit])
    if known.app is not None:
        check_runtime(known.app, totals["execute_ns"])
    events = _arrow_events(table, pattern, calls, counted, _NS[options.unit], known, constants)
    row = {
        **constants,
        **known.columns(),
        "has_dump": True,
        "fingerprint": fingerprint,
        **totals,
        "path": source.url,
        "bytes": dump.size,
        "etrecord": None if record is None else record.path,
        "events": len(table.row),
        **source.columns,
    }
    return Taken(events, row, _partition(known))


def _partition(known: RunMetadata) -> tuple[str, str]:
    return known.model, f"{known.recorded_at:%Y-%m}"


def _constants(
    known: RunMetadata, dump_id: str, program: str | None, options: Options
) -> dict[str, Any]:
    """The columns that a dump and all of its events have."""
    return {
        "dump_id": dump_id,
        "recorded_at": known.recorded_at,
        "collected_at": options.collected_at,
        "device": known.device,
        "program_sha256": program,
    }


def _calls_of_runs(table: EventTable, pattern: Pattern, known: RunMetadata) -> RunCalls:
    """Return the executions of a dump as calls of a language model: as recorded, else inferred from
    the dump."""
    noted = known.calls
    blocks: dict[str | None, list[Block]] = {}
    for block, method in zip(table.blocks, pattern.methods, strict=True):
        if block.executions:
            blocks.setdefault(method, []).append(block)
    runs = [run for of_it in blocks.values() for block in of_it for run in block.runs.tolist()]
    if noted is not None and len(noted) == len(runs):
        return recorded_calls(np.array(sorted(runs), np.int64), noted)
    return inferred_calls(table.dump, blocks, pattern.program_methods, pattern.of_one_length)


def _counted_runs(
    table: EventTable, pattern: Pattern, calls: RunCalls, *, is_warmed_up: bool
) -> npt.NDArray[np.bool_]:
    """The runs of a dump that count, as in its profiles; bool [runs of the dump]."""
    phase = dict(zip(calls.run.tolist(), calls.phase, strict=True))
    totals: dict[tuple[str | None, str | None], dict[int, int]] = {}
    executing = [block for block in table.blocks if block.executions]
    for block, method in zip(table.blocks, pattern.methods, strict=True):
        ticks = block.ticks[list(block.executions)].sum(axis=0).tolist() if block.executions else ()
        for run, total in zip(block.runs.tolist(), ticks, strict=bool(block.executions)):
            totals.setdefault((method, phase.get(run)), {})[run] = total
    has_several_inputs = len({block.bundled_input_index for block in executing}) > 1
    counted = np.ones(table.dump.num_runs, np.bool_)
    for (method, its_phase), of_run in totals.items():
        is_shared = its_phase is not None and [one for _, one in totals].count(its_phase) > 1
        if is_shared or (has_several_inputs and method not in pattern.of_one_length):
            continue
        runs = np.array(sorted(of_run), np.int64)
        total = np.array([of_run[run] for run in runs.tolist()], np.int64)
        its_calls = None if its_phase is None else calls.of_runs(runs)
        counted[runs] = slow_runs(total, its_calls, is_warmed_up=is_warmed_up).counted
    return counted


def _ns(ticks: npt.NDArray[Any], factor: int) -> Ints:
    if len(ticks) and int(ticks.max()) > (2**63 - 1) // factor:
        raise FormatError(
            f"a time of {int(ticks.max())} ticks is beyond 64 bits of nanoseconds",
            hint="--source-unit sets the unit of the clock",
        )
    return ticks.astype(np.int64) * factor


def _arrow_events(
    table: EventTable,
    pattern: Pattern,
    calls: RunCalls,
    counted: npt.NDArray[np.bool_],
    factor: int,
    known: RunMetadata,
    constants: Mapping[str, Any],
) -> Any:
    """Return the rows of `events` as a `pyarrow.Table`. counted: see `_counted_runs`. factor: ns of
    a tick of the dump."""
    count = len(table.row)
    call = table.call
    event = pa.array(table.event)
    leaves = Leaves.of(table)
    own_clock = ~table.where(lambda meaning: meaning.adds)
    is_number = ~table.where(lambda meaning: meaning.is_time)
    has_value = is_number & table.where(lambda one: one.quantity is not Quantity.INSTANT)
    is_estimate = np.array([one is not None and one.is_estimate for one in table.meaning], np.bool_)
    values = table.ticks * np.where(is_estimate, factor, 1)[table.event]
    threads = known.saved.count("threads")
    columns: dict[str, Any] = {name: values.take(event) for name, values in pattern.texts.items()}
    columns |= {
        "run": pa.array(table.run, pa.int32()),
        "iteration": pa.array(call, pa.int32(), mask=call < 0),
        **_phases(table, calls),
        "counted": pa.array(counted[table.run]),
        "instruction_id": pattern.instruction.take(event),
        "debug_handles": pattern.handles.take(event),
        "leaf": pa.array(leaves.of_rows() & (call >= 0)),
        "own_clock": pa.array(own_clock[table.event]),
        "value": pa.array(values.astype(np.float64), mask=~has_value[table.event]),
        **{name: cells.take(event) for name, cells in _told_by_backends(table).items()},
        **{name: cells.take(event) for name, cells in pattern.work.columns().items()},
        **pattern.work.limits(known.calibration, threads, table.event, table.ticks * factor),
        "start_ns": pa.array(_ns(table.start, factor)),
        "duration_ns": pa.array(_ns(table.ticks, factor), mask=is_number[table.event]),
    }
    for field in EVENT_FIELDS:
        if field.name in constants:
            value = constants[field.name]
            if field.type == "time":
                columns[field.name] = pa.repeat(pa.scalar(value, pa.timestamp("us")), count)
            else:
                columns[field.name] = constant(value, count)
    ordered = [columns[field.name] for field in EVENT_FIELDS]
    events = pa.Table.from_arrays(ordered, schema=arrow_schema(EVENTS))
    return leaves.with_rests(events, pattern.work.flops, factor)


def _phases(table: EventTable, calls: RunCalls) -> dict[str, Any]:
    """Return the columns of the rows, [N], that come from a run's call of a language model."""
    number = np.full(table.dump.num_runs, len(calls.run))  # of the run's call; the last is none
    number[calls.run] = np.arange(len(calls.run))
    of_row = number[table.run]
    names = list(dict.fromkeys([*table.phases, *calls.phases]))
    of_block = np.array([names.index(name) for name in table.phases], np.int32)
    of_call = [-1 if name is None else names.index(name) for name in calls.phase]
    phase = np.array([*of_call, -1], np.int32)[of_row]
    phase = np.where(phase < 0, of_block[table.block[table.event]], phase)
    position, tokens = np.append(calls.position, -1)[of_row], np.append(calls.tokens, 0)[of_row]
    texts = pa.array([without_surrogates(name) for name in names], pa.string())
    return {
        "phase": pa.DictionaryArray.from_arrays(pa.array(phase), texts),
        "position": pa.array(position, pa.int32(), mask=position < 0),
        "tokens": pa.array(tokens, pa.int32(), mask=tokens == 0),
    }


def _told_by_backends(table: EventTable) -> dict[str, Any]:
    """Return the columns of events, [K], from delegates' decoders; null for other events."""
    decoded = table.meaning
    units = [None if one is None else one.unit_in(TimeScale.NS.value) for one in decoded]
    quantities = [None if one is None else one.quantity.value for one in decoded]
    columns = [
        None
        if one is None or not one.columns
        else [(name, without_surrogates(str(value))) for name, value in one.columns.items()]
        for one in decoded
    ]
    return {
        "quantity": pa.array(quantities, pa.string()).dictionary_encode(),
        "unit": pa.array(units, pa.string()).dictionary_encode(),
        "backend_columns": pa.array(columns, arrow_type("pairs")),
    }


def _totals(table: EventTable, counted: npt.NDArray[np.bool_], factor: int) -> dict[str, Any]:
    """Counts and times of a dump. counted: see `_counted_runs`. factor: ns of a tick of the
    dump."""
    dump = table.dump
    kinds = np.bincount(dump.kind, minlength=len(EventKind))
    execute = framework_ticks(table.blocks, EXECUTE) * factor
    executing = [runs_of(block, np.flatnonzero(counted)) for block in table.blocks]
    usual = framework_ticks([block for block in executing if block.executions], EXECUTE) * factor
    # Loading a method includes its initialisation: the two are not added up.
    load = framework_ticks(table.blocks, LOAD_METHOD)
    load = (load if len(load) else framework_ticks(table.blocks, "Method::init")) * factor
    return {
        "methods": sorted({method for method in table.methods if method is not None}) or None,
        "runs": dump.num_runs,
        "executions": sum(len(block.runs) for block in table.blocks if block.executions),
        "counted": sum(len(block.runs) for block in executing if block.executions),
        "values": int(kinds[EventKind.DEBUG]),
        "allocations": int(kinds[EventKind.ALLOCATION]),
        "load_ns": int(load.sum()) if len(load) else None,
        "execute_ns": int(execute.sum()) if len(execute) else None,
        "p50_ns": statistic(usual, "p50") if len(usual) else None,
    }
