"""`PerfData`, `Event` and `EventBlock`: the public view of a dump's events, with upstream's names.

They are made on demand from the columns of the dump; see `etscope.model.event_table`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.errors import MissingDataError, UsageError
from etscope.model.statistics import statistic, summarize_rows
from etscope.model.table import object_column
from etscope.support.optional import require
from etscope.support.shown import Shown
from etscope.units import TimeScale

if TYPE_CHECKING:
    import pandas as pd


# DataFrames have upstream's columns, order and dtypes. Building them column by column computes the
# statistics of all events of a block together.

STATISTICS = ("p10", "p50", "p90", "avg", "min", "max")
# The columns after these: attributes of `Event`.
_ATTRIBUTES = (
    "op_types", "delegate_debug_identifier", "stack_traces", "module_hierarchy",
    "is_delegated_op", "delegate_backend_name", "debug_data", "start_time",
)  # fmt: skip
# Plain attributes, not lists or mappings; None stays None, the same as upstream.
_SCALARS = ("delegate_debug_identifier", "is_delegated_op", "delegate_backend_name")
# From this many op types on, an event shows them as a short text.
_LONG_LIST = 5


def blocks_frame(
    blocks: Sequence[EventBlock], include_units: bool, include_delegate_debug_data: bool
) -> pd.DataFrame:
    """Return one row for each event of each block. Raises `MissingDataError` for blocks without
    events."""
    pandas = require("pandas", wanted_by="to_dataframe")
    if not any(block.events for block in blocks):
        raise MissingDataError(
            "no events: the dump does not have profiling or debug events for a DataFrame",
            hint="run the program with the event tracer on, then read its dump",
        )
    frames = []
    filled = (block for block in blocks if block.events)
    for scale, group in groupby(filled, lambda block: block.target_time_scale):
        units = f" ({scale.value})" if include_units else ""
        some = [(block.name, block.events) for block in group]
        names = np.repeat([name for name, _ in some], [len(events) for _, events in some])
        frame = events_frame([events for _, events in some], units, event_block_name=names)
        if include_delegate_debug_data:
            frame = _with_metadata(frame, [event for _, events in some for event in events])
        frames.append(frame)
    return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)


def events_frame(groups: Sequence[Sequence[Event]], units: str, **first: Any) -> pd.DataFrame:
    """Return one row for each event. groups: blocks; first: the columns before the others."""
    pandas = require("pandas", wanted_by="to_dataframe")
    events = [event for group in groups for event in group]
    columns: dict[str, Any] = {
        **first,
        "event_name": [event.name for event in events],
        "raw": [event.perf_data.raw if event.perf_data else None for event in events],
    }
    # Each block by itself: the runs of one may be many times those of another.
    parts = [statistics_columns([event.perf_data for event in group]) for group in groups]
    for name in STATISTICS:
        columns[name + units] = np.concatenate([part[name] for part in parts])
    columns.update((name, [getattr(event, name) for event in events]) for name in _ATTRIBUTES)
    columns["op_types"] = [_op_types(types) for types in columns["op_types"]]
    for name in _SCALARS:
        if None in columns[name]:  # which pandas would make NaN
            columns[name] = pandas.Series(object_column(columns[name]), dtype=object)
    table: pd.DataFrame = pandas.DataFrame(columns)
    return table


def event_row(event: Event, units: str) -> dict[str, Any]:
    """Return an event in the form of upstream's `Event.asdict`: list-like cells are in a list."""
    perf = event.perf_data
    row: dict[str, Any] = {"event_name": event.name, "raw": [perf.raw if perf else None]}
    row.update((name + units, getattr(perf, name) if perf else None) for name in STATISTICS)
    for name in _ATTRIBUTES:
        value = getattr(event, name)
        row[name] = value if name in _SCALARS else [value]
    row["op_types"] = [_op_types(event.op_types)]
    return row


def _op_types(op_types: list[str]) -> list[str] | str:
    if len(op_types) < _LONG_LIST:
        return op_types
    return f"['{op_types[0]}', '{op_types[1]}' ... '{op_types[-1]}'] ({len(op_types)} total)"


def statistics_columns(perf_data: Sequence[PerfData | None]) -> dict[str, Any]:
    """Return columns of p10 … max; NaN for an event without samples."""
    counts = np.array([perf.count if perf else 0 for perf in perf_data], dtype=np.int64)
    has_sample = np.arange(counts.max(initial=0)) < counts[:, None]
    samples = np.zeros(has_sample.shape)
    samples[has_sample] = np.concatenate([np.zeros(0), *(p.values for p in perf_data if p)])
    return dict(summarize_rows(samples, has_sample, STATISTICS))


def _with_metadata(frame: pd.DataFrame, events: Sequence[Event]) -> pd.DataFrame:
    """Return `frame` with columns of the delegates' metadata on the right, if any."""
    pandas = require("pandas", wanted_by="to_dataframe")
    rows: list[dict[str, Any]] = []
    for event in events:
        metadata = event.delegate_debug_metadatas
        if not metadata:
            rows.append({})
        elif isinstance(metadata, list):
            rows.append({"delegate_debug_metadata": metadata})
        elif isinstance(metadata, dict):
            rows.append(metadata)
        else:
            raise UsageError(
                f"Unexpected type for delegate_debug_metadata: {type(metadata)}",
                hint="the delegate_metadata_parser must return a list or a dict",
            )
    if not any(rows):
        return frame
    joined: pd.DataFrame = pandas.concat([frame, pandas.DataFrame(rows)], axis=1)
    return joined


# A tensor (torch's if torch is installed, else numpy's), a scalar, or a list of tensors; None for a
# tensor without its debug buffer.
InferenceOutput = Any
ProgramOutput = list[InferenceOutput]
DelegateMetadata = list[Any] | dict[str, Any]


class PerfData:
    """Samples of one event, one value for each run, in the Inspector's target time scale.

    Statistics come from numpy: percentiles interpolate linearly, `std` is the population's. Without
    samples, all but `sum` and `count` are NaN.
    """

    __slots__ = ("_raw", "values")

    def __init__(self, raw: Sequence[float] | npt.NDArray[np.float64]) -> None:
        self.values: npt.NDArray[np.float64] = np.asarray(raw, dtype=np.float64)
        self._raw: list[float] | None = raw if isinstance(raw, list) else None

    @property
    def raw(self) -> list[float]:
        """The samples as a list of floats."""
        if self._raw is None:
            self._raw = self.values.tolist()
        return self._raw

    @property
    def p10(self) -> float:
        return statistic(self.values, "p10")

    @property
    def p50(self) -> float:
        return statistic(self.values, "p50")

    @property
    def p90(self) -> float:
        return statistic(self.values, "p90")

    @property
    def avg(self) -> float:
        return float(np.mean(self.values)) if self.count else math.nan

    @property
    def min(self) -> float:
        return float(np.min(self.values)) if self.count else math.nan

    @property
    def max(self) -> float:
        return float(np.max(self.values)) if self.count else math.nan

    @property
    def std(self) -> float:
        return float(np.std(self.values)) if self.count else math.nan

    @property
    def sum(self) -> float:
        return float(np.sum(self.values))

    @property
    def count(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PerfData):
            return NotImplemented
        return bool(np.array_equal(self.values, other.values, equal_nan=True))

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        if not self.count:
            return "PerfData(count=0)"
        return (
            f"PerfData(count={self.count}, avg={self.avg:.6g}, p50={self.p50:.6g}, "
            f"min={self.min:.6g}, max={self.max:.6g})"
        )


class Runs(Sequence[ProgramOutput]):
    """Values of each run of a block, loaded on access. `runs[i]` is the block's run i."""

    def __init__(self, count: int, load: Callable[[int], ProgramOutput]) -> None:
        self._count = count
        self._load = load

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._load(i) for i in range(*index.indices(self._count))]
        position = index + self._count if index < 0 else index
        if not 0 <= position < self._count:
            raise IndexError(f"run {index} of a block of {self._count} runs")
        return self._load(position)

    def first(self) -> ProgramOutput:
        """The values of the first run; none if the runs do not have values."""
        return self._load(0) if self._count else []

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a form with the values for copies and pickles: loading needs an open file."""
        return Runs, (self._count, list(self).__getitem__)


# Defaults of fields that lazy subclasses load: a factory leaves no class attribute behind.


def _nothing() -> None:
    return


def _no_runs() -> Runs:
    return Runs(0, lambda _: [])


class _Lazy:
    """Attributes that load on first access, and are ordinary ones afterwards.

    A dump may have thousands of events, and users read few of them.
    """

    _LOADED: frozenset[str]

    def __init__(self, load: Callable[[str], Any] | None = None, **fields: Any) -> None:
        """Make an instance with the values `fields`. `load` returns the value of each other
        attribute; `dataclasses.replace` passes all fields and no `load`."""
        self.__dict__.update(fields, _load=load)

    def __getattr__(self, name: str) -> Any:
        if name not in self._LOADED:
            # Python also comes here after an AttributeError in a property: raise that one again.
            return object.__getattribute__(self, name)
        value = self.__dict__["_load"](name)
        setattr(self, name, value)
        return value

    def __getstate__(self) -> dict[str, Any]:
        """Return a form with everything for copies and pickles: loading needs open files."""
        loaded = {name: getattr(self, name) for name in self._LOADED}
        return {**self.__dict__, **loaded, "_load": None}


def _same_fields(first: Any, second: Any) -> bool:
    """Return whether two instances are equal in each compared field, tensors by value."""
    return all(
        _same(getattr(first, item.name), getattr(second, item.name))
        for item in fields(first)
        if item.compare
    )


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are equal, tensors and arrays as a whole; NaN equals NaN."""
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(_same(a, b) for a, b in pairs)
    if hasattr(first, "shape") and hasattr(second, "shape"):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        return bool(((first == second) | ((first != first) & (second != second))).all())
    return bool(first == second or (first != first and second != second))


@dataclass
class Event(Shown):
    """One execution of an operator, or a step of the framework, that the runtime logged.

    name: the name of the profiling event ("native_call_add.out", "DELEGATE_CALL"); a delegate's
        event has its identifier as name; empty if there is only debug data.
    perf_data: samples over the block's runs; None without a profiling event.
    op_types: types of the graph nodes behind the event ("aten.convolution.default").
    delegate_debug_identifier: the backend's own id of an event inside a delegate.
    debug_handles: handles of the nodes behind the event: an int, or several for a delegate call.
    num_outputs: outputs of a delegate call.
    stack_traces: node name -> its Python stack trace.
    module_hierarchy: node name -> {key: (module path, module type)}, outermost first.
    is_delegated_op: whether a delegate logged the event.
    delegate_backend_name: the backend of a delegate call or of an event inside one.
    debug_data: the logged values of the event's instruction in the block's first run.
    debug_data_runs: the same for every run of the block.
    occurrence: 0, 1, 2… if a run has the same event several times, as in a loop.
    instruction_id: index of the instruction in the method's chain.
    """

    name: str
    perf_data: PerfData | None = None
    op_types: list[str] = field(default_factory=list)
    delegate_debug_identifier: int | str | None = None
    debug_handles: int | Sequence[int] | None = None
    num_outputs: int = 1
    stack_traces: dict[str, str | None] = field(default_factory=dict)
    module_hierarchy: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_delegated_op: bool | None = None
    delegate_backend_name: str | None = None
    _delegate_debug_metadatas: list[Any] = field(default_factory=list)
    debug_data: ProgramOutput = field(default_factory=list)
    _instruction_id: int | None = None
    _delegate_metadata_parser: Callable[[list[Any]], DelegateMetadata] | None = None
    _delegate_time_scale_converter: Callable[[Any, Any], Any] | None = None
    _start_time: list[int | float] | None = field(default_factory=_nothing)
    debug_data_runs: Runs = field(default_factory=_no_runs, compare=False, repr=False)
    occurrence: int = 0

    def __eq__(self, other: object) -> bool:
        return _same_fields(self, other) if isinstance(other, Event) else NotImplemented

    @property
    def instruction_id(self) -> int | None:
        return self._instruction_id

    @property
    def start_time(self) -> list[int | float] | None:
        """Start of each sample, unscaled, in the source time scale."""
        return self._start_time

    @property
    def raw_delegate_debug_metadatas(self) -> list[Any]:
        """Metadata of each sample as bytes ("" for none); an empty list without any metadata."""
        return self._delegate_debug_metadatas

    @cached_property
    def delegate_debug_metadatas(self) -> DelegateMetadata:
        """Result of the Inspector's `delegate_metadata_parser` for the raw metadata."""
        if not self.is_delegated_op or self._delegate_metadata_parser is None:
            return self._delegate_debug_metadatas
        return self._delegate_metadata_parser(self._delegate_debug_metadatas)

    def asdict(self, _units: str = "") -> dict[str, Any]:
        """The row of this event in `to_dataframe`, with values for a one-row frame."""

        return event_row(self, _units)

    def to_dataframe(self, _units: str = "") -> pd.DataFrame:
        """A DataFrame of one row."""

        return events_frame([[self]], _units)


class LazyEvent(_Lazy, Event):
    """An `Event` that loads its values from the dump on access."""

    _LOADED = frozenset(
        {"debug_data", "debug_data_runs", "_delegate_debug_metadatas", "_start_time"}
    )


@dataclass
class EventBlock(Shown):
    """The runs of a dump with the same sequence of events, and these events.

    Loading is one block, each branch of a control flow another. `runs` are the indices of its runs
    in the dump, parallel to the samples of each event.

    name: "Default" for loading, "Execute" for a method's runs.
    bundled_input_index: the case of the bundled program; None if not recorded.
    run_output: the program's outputs in the block's first run; `run_outputs` has every run's.
    reference_output: the expected outputs of that case, or of the only one; None if unknown.
    method: the executed method, if an ETRecord or program shows it.
    """

    name: str
    events: list[Event] = field(default_factory=list)
    source_time_scale: TimeScale = TimeScale.NS
    target_time_scale: TimeScale = TimeScale.MS
    bundled_input_index: int | None = None
    run_output: ProgramOutput | None = field(default_factory=_nothing)
    reference_output: ProgramOutput | None = field(default_factory=_nothing)
    run_outputs: Runs = field(default_factory=_no_runs, compare=False, repr=False)
    runs: Sequence[int] = field(default=(), compare=False, repr=False)
    method: str | None = None

    def __eq__(self, other: object) -> bool:
        return _same_fields(self, other) if isinstance(other, EventBlock) else NotImplemented

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def event(self, name: str) -> Event:
        """Return the first event called `name`. Raises `MissingDataError` for another name."""
        for event in self.events:
            if event.name == name:
                return event
        names = ", ".join(dict.fromkeys(event.name for event in self.events))
        raise MissingDataError(f"no event {name!r} in block {self.name!r}", hint=f"it has: {names}")

    def to_dataframe(
        self, include_units: bool = False, include_delegate_debug_data: bool = False
    ) -> pd.DataFrame:
        """A DataFrame with one row for each event; see `Inspector.to_dataframe`."""

        return blocks_frame([self], include_units, include_delegate_debug_data)


class LazyEventBlock(_Lazy, EventBlock):
    """An `EventBlock` that builds its events and outputs on first access."""

    _LOADED = frozenset({"events", "run_output", "run_outputs", "reference_output"})
