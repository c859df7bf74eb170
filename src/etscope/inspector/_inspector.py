"""`Inspector` and `compare_results`: upstream's names, which forward to the analyses, diagnoses and
reports."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.metrics import DEFAULT_METRICS, find_metric, measure_all
from etscope.analysis.profile.rollup import module_total
from etscope.analysis.profile.scale import Scale, TimeConverter, block_samples
from etscope.analysis.profile.trace import UNAVAILABLE, Trace, warn_own_clock
from etscope.analysis.program.correlate import EDGE_GRAPH
from etscope.backends.arm.delegates import parse_vgf_neural_statistics_delegate_metadata
from etscope.errors import EtscopeWarning, FormatError, MissingDataError, UsageError
from etscope.etrecord import as_record
from etscope.formats.bytes.files import PathLike
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import EDGE, EXPORTED
from etscope.formats.program.bpte import BundledFile, read_program_file
from etscope.formats.program.pte import Program
from etscope.formats.run_json import DEBUG_BIN, SavedCall, dump_with_values
from etscope.inspector._display import draw_metric, show_frame
from etscope.inspector._event_signatures import (
    DebugEventSignature,
    EventSignature,
    InstructionEvent,
    InstructionEventSignature,
    ProfileEventSignature,
    RunSignature,
)
from etscope.model.event_table import FRAMEWORK_EVENTS, Block
from etscope.model.events import (
    Event,
    EventBlock,
    LazyEvent,
    LazyEventBlock,
    PerfData,
    ProgramOutput,
    Runs,
    blocks_frame,
)
from etscope.model.exported_graph import graph_from_record
from etscope.support.optional import available
from etscope.units import TimeScale

if TYPE_CHECKING:
    import pandas as pd

    from etscope.analysis.numerics.rows import Numerics
    from etscope.diagnosis.numeric_gap import Gap
    from etscope.diagnosis.stages import NumericStages
    from etscope.model.graph import Graph

__all__ = [
    "DebugEventSignature",
    "Event",
    "EventBlock",
    "EventBlocks",
    "EventSignature",
    "Inspector",
    "InstructionEvent",
    "InstructionEventSignature",
    "PerfData",
    "ProfileEventSignature",
    "RunSignature",
    "compare_results",
]

MetadataParser = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class EventBlocks:
    """Makes the events of a trace as upstream's objects, with fields that are read when needed.

    parse_metadata, convert_time: the user's functions for the events of delegates. bundle: has the
    outputs that test cases expect.
    """

    trace: Trace
    scale: Scale
    parse_metadata: MetadataParser | None = None
    convert_time: TimeConverter | None = None
    bundle: BundledFile | None = None

    def all(self) -> list[EventBlock]:
        """Return the blocks in the order of the trace."""
        return [
            LazyEventBlock(
                partial(self._load_of_block, block),
                name=block.name,
                source_time_scale=self.scale.source,
                target_time_scale=self.scale.target,
                bundled_input_index=None
                if block.bundled_input_index < 0
                else block.bundled_input_index,
                runs=block.runs.tolist(),
                method=self.trace.method_of(block),
            )
            for block in self.trace.blocks
        ]

    def _load_of_block(self, block: Block, name: str) -> Any:
        if name == "events":
            return self._events(block)
        if name == "reference_output":
            return self._reference(self.trace.method_of(block), block.bundled_input_index)
        outputs = self._runs(block, block.outputs)
        return outputs if name == "run_outputs" else outputs.first()

    def _events(self, block: Block) -> list[Event]:
        if self.convert_time is None:
            warn_own_clock(block, self.trace.meanings(block))
        attribution = self.trace.attribution(block)
        samples = block_samples(block, self.scale, self.convert_time)
        hierarchies: dict[int, dict[str, Any]] = {}  # by the `id` of a node
        events: list[Event] = []
        for index, key in enumerate(block.keys):
            found = attribution(key)
            recorded = [node.recorded or node for node in found.nodes]  # as upstream shows them
            for node in recorded:
                if id(node) not in hierarchies:
                    hierarchies[id(node)] = {f.key: (f.path, f.type) for f in node.modules}
            events.append(
                LazyEvent(
                    partial(self._load_of_event, block, index),
                    name=key.name,
                    perf_data=None if key.profile is None else PerfData(samples[index]),
                    op_types=found.op_types,
                    delegate_debug_identifier=key.delegate_id,
                    debug_handles=found.debug_handles,
                    num_outputs=found.num_outputs,
                    stack_traces={f"{node.name}_": node.stack_trace for node in recorded},
                    module_hierarchy={
                        f"{node.name}_": hierarchies[id(node)].copy() for node in recorded
                    },
                    is_delegated_op=key.delegate_id is not None,
                    delegate_backend_name=found.backend_id,
                    _instruction_id=key.instruction_id,
                    _delegate_metadata_parser=self.parse_metadata,
                    _delegate_time_scale_converter=self.convert_time,
                    occurrence=key.occurrence,
                    **({} if key.debug else {"debug_data": []}),  # nothing to load
                )
            )
        return events

    def _load_of_event(self, block: Block, index: int, name: str) -> Any:
        key = block.keys[index]
        if name == "_start_time":  # as in the dump: unsigned
            starts = block.starts[index].view(self.trace.dump.start.dtype)
            return None if key.profile is None else starts.tolist()
        if name == "_delegate_debug_metadatas":
            return [] if key.profile is None else self.trace.metadata(block, key.profile)
        values = self._runs(block, key.debug)
        return values if name == "debug_data_runs" else values.first()

    def _runs(self, block: Block, positions: tuple[int, ...]) -> Runs:
        count = len(block.runs) if positions else 0
        return Runs(count, lambda run: _outputs(self.trace.values(block, run, positions)))

    def _reference(self, method: str | None, index: int) -> ProgramOutput | None:
        """Return the expected outputs of a test case: the bundled program's (the index counts its
        cases), else the record's, which may have been made with the same bundle.

        Dumps of ExecuTorch 1.5 have -1 whatever ran: where there is one case, it is that, unless
        the run is known to have had other inputs.
        """
        if method is None:
            return None
        cases: Sequence[Any] | None = None
        if self.bundle is not None:
            suites = {suite.method: suite.cases for suite in self.bundle.suites}
            cases = [case.expected_outputs for case in suites.get(method, ())]
        elif self.trace.record is not None:
            cases = (self.trace.record.reference_outputs() or {}).get(method)
        if index < 0 and cases is not None and len(cases) == 1:
            calls = [call for call in self.trace.known_calls if call.method == method]
            sources = {call.inputs.source for call in calls if call.inputs is not None}
            if sources <= (set() if self.bundle is not None else {"record"}):
                index = 0
        if cases is None or not 0 <= index < len(cases) or not cases[index]:
            return None
        return _outputs(list(cases[index]))


def _outputs(values: list[Any]) -> ProgramOutput:
    """Return values as the caller gets them: torch tensors when torch is there, None for absent
    data."""
    torch = available("torch")
    return [_output(value, torch) for value in values]


def _output(value: Any, torch: Any) -> Any:
    if value is UNAVAILABLE:
        return None
    if isinstance(value, list):
        return [_output(item, torch) for item in value]
    if torch is None or not isinstance(value, np.ndarray):
        return value
    from etscope.bridge.tensors import tensor_from_numpy

    return tensor_from_numpy(value)


# Columns and rows that `print_data_tabular` and `save_data_to_tsv` leave out, as upstream's do.
NOT_PRINTED = [
    "raw",
    "delegate_debug_identifier",
    "stack_traces",
    "module_hierarchy",
    "debug_data",
]
HIDDEN_EVENT = "OPERATOR_CALL"
# The debugger ranks above the Inspector, so it is imported by name.
_DEBUGGER = "etscope.etdb.session"
_NOT_OPERATORS = {*FRAMEWORK_EVENTS, HIDDEN_EVENT, "JF_CALL", "MOVE_CALL", "FREE_CALL"}


class Inspector:
    """Performance and debug data of a run, linked to the Python code that it came from.

    Arguments:

    etdump_path, etdump_data: the ETDump as a file or as bytes; exactly one of them.
    etrecord: its ETRecord: a path, an `etscope` or an ExecuTorch `ETRecord`.
    source_time_scale: the unit of the runtime's clock. target_time_scale: the unit of the results.
    debug_buffer_path: the file of logged tensors (`buffer_path` is its older name).
    delegate_metadata_parser: a function that turns a delegate event's metadata (a list of bytes)
        into a list or dict, for `Event.delegate_debug_metadatas`.
    delegate_time_scale_converter: a function of (event name, time) that returns the time in the
        target scale, for events inside delegates, which may have another clock.
    enable_module_hierarchy: accepted for upstream's callers; modules are always there.
    reference_graph_name: the record's graph that events are linked to.
    program: the .pte or .bpte that ran, as a path, as bytes, or opened. It gives the operators if
        there is no record; a bundled program also gives the expected outputs of its cases.
    verify: refuse a record or program that does not belong to the dump.
    calls: the call of each run in the dump, in order; by default from the run.json that `etscope
        run` wrote.

    Raises `UsageError` for arguments that do not fit together, `CyclesError` for cycles on one side
    only, `FormatError` for a bad file, `MismatchError` for files that do not belong together.

    Attributes:

    event_blocks: list of `EventBlock`, the runs by what they executed.
    trace: the underlying trace, with the dump as columns (`trace.dump`), one row for each event.
    """

    def __init__(
        self,
        etdump_path: PathLike | None = None,
        etdump_data: bytes | None = None,
        etrecord: Any = None,
        source_time_scale: TimeScale | str = TimeScale.NS,
        target_time_scale: TimeScale | str = TimeScale.MS,
        debug_buffer_path: PathLike | None = None,
        delegate_metadata_parser: MetadataParser | None = None,
        delegate_time_scale_converter: TimeConverter | None = None,
        enable_module_hierarchy: bool = False,
        reference_graph_name: str = EDGE_GRAPH,
        *,
        buffer_path: PathLike | None = None,
        program: PathLike | bytes | Program | BundledFile | None = None,
        verify: bool = True,
        calls: Sequence[SavedCall] = (),
    ) -> None:
        self._scale = Scale(TimeScale.of(source_time_scale), TimeScale.of(target_time_scale))
        self._scale(0)  # raises for cycles and a unit of time
        if (etdump_path is None) == (etdump_data is None):
            raise UsageError(
                "Expecting exactly one of etdump_path or etdump_data to be specified.",
                hint="the second place is etdump_data, bytes: name the record, etrecord="
                if isinstance(etdump_data, (str, os.PathLike))
                else None,
            )
        if debug_buffer_path is not None and buffer_path is not None:
            raise UsageError("debug_buffer_path and buffer_path name the same file: pass one")
        debug_buffer_path = buffer_path if debug_buffer_path is None else debug_buffer_path
        self._convert_time = delegate_time_scale_converter
        self._etrecord = etrecord
        dump = read_etdump(etdump_data if etdump_path is None else etdump_path)  # type: ignore[arg-type]
        self._bundle: BundledFile | None = None
        if isinstance(program, BundledFile):
            self._bundle = program
            program = program.program()
        elif program is not None and not isinstance(program, Program):
            program, self._bundle = read_program_file(program)
        self.trace = Trace(
            dump=dump,
            record=None if etrecord is None else as_record(etrecord),
            debug_buffer=None if debug_buffer_path is None else DebugBuffer.open(debug_buffer_path),
            program=program,
            reference_graph=reference_graph_name,
            forced=not verify,
            calls=tuple(calls),
        )
        if verify:
            self.trace.verify()
        self._check_debug_buffer()
        self.event_blocks: list[EventBlock] = EventBlocks(
            self.trace,
            self._scale,
            delegate_metadata_parser,
            delegate_time_scale_converter,
            self._bundle,
        ).all()

    def _check_debug_buffer(self) -> None:
        """Warn of tensors without their debug buffer; raise `FormatError` for an empty one."""
        buffer = self.trace.debug_buffer
        if (buffer is not None and buffer.size) or not self.trace.refers_to_tensors:
            return
        if buffer is not None:
            raise FormatError(
                "the debug buffer is empty, and the ETDump refers to tensors", path=buffer.path
            )
        warnings.warn(
            "this ETDump refers to tensors, but no debug buffer was given: they are absent "
            "(pass debug_buffer_path)",
            EtscopeWarning,
            stacklevel=3,
        )

    # -- tables

    def to_dataframe(
        self, include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> pd.DataFrame:
        """The events of all blocks as a pandas DataFrame, one row each.

        Columns: event_block_name, event_name, raw (samples), p10, p50, p90, avg, min, max (with
        the unit in the header if `include_units`), op_types, delegate_debug_identifier,
        stack_traces, module_hierarchy, is_delegated_op, delegate_backend_name, debug_data,
        start_time; then the delegates' metadata if `include_delegate_debug_data`.

        Raises `MissingDataError` without any event.
        """
        return blocks_frame(self.event_blocks, include_units, include_delegate_debug_data)

    def print_data_tabular(
        self,
        file: IO[str] | None = None,
        include_units: bool = True,
        include_delegate_debug_data: bool = False,
    ) -> None:
        """Print the events as a grid to `file` (stdout), or display them in a notebook."""
        frame = self._printed_frame(include_units, include_delegate_debug_data)
        show_frame(frame, file, wanted_by="print_data_tabular")

    def save_data_to_tsv(
        self,
        file: PathLike | IO[str],
        include_units: bool = True,
        include_delegate_debug_data: bool = False,
    ) -> None:
        """Write what `print_data_tabular` prints as tab-separated values to a path or file."""
        frame = self._printed_frame(include_units, include_delegate_debug_data)
        frame.to_csv(file, sep="\t")

    def _printed_frame(
        self, include_units: bool, include_delegate_debug_data: bool
    ) -> pd.DataFrame:
        frame = self.to_dataframe(include_units, include_delegate_debug_data)
        frame = frame.drop(columns=NOT_PRINTED)
        hidden = frame["event_name"].str.contains(HIDDEN_EVENT, regex=False)
        shown: pd.DataFrame = frame[~hidden].reset_index(drop=True)
        return shown

    def write_tensorboard_artifact(
        self, path: PathLike, *, numerics: Sequence[Numerics] | None = None
    ) -> list[str]:
        """Write the graphs of the record and of the program, with the known times, memory and
        numeric errors of their nodes, and the tables, for ``tensorboard --logdir path``.

        numerics: results of `diagnose_numerics`, one for each method. None: computed here if there
        are a debug buffer and a record; a warning names what is missing.

        Each graph is a run in the folder `path`; returns the names of the runs. What was written
        there before is replaced.

        Raises `UsageError` without a record and a program, `MissingDependencyError` without the
        package tensorboard.
        """
        from etscope.reporting.tensorboard import numerics_if_known, write_tensorboard

        if numerics is None:
            numerics = numerics_if_known(self.trace, bundle=self._bundle)
        return write_tensorboard(
            path,
            self.trace,
            numerics=numerics,
            source=self._scale.source,
            target=self._scale.target,
        )

    # -- queries

    def find_total_for_module(self, module_name: str) -> float:
        """Return the average time of a module's operators in one run, in the target time scale.

        module_name: the module's path ("blocks.0.conv"), any run of its components ("conv"), or
        torch's name for it ("L__self___conv"). Inside a delegate call, its logged events count; a
        call without events counts as a whole if all of its operators are in the module. For an
        operator that ran in several blocks, the mean over all their runs counts.

        Raises `MissingDataError` when no module of that name is known, or when it ran only in
        delegate calls that other modules share and that no events divide; warns with
        `EtscopeWarning` when it ran in such calls, too.
        """
        profiles = [profile.every for profile in self.trace.profiles()]
        return module_total(profiles, module_name, self._scale)

    def get_op_list(
        self, event_block: str, show_delegated_ops: bool = True
    ) -> dict[str, list[Event]]:
        """The operators of the blocks called `event_block` ("Execute"), by op type.

        Each event stands under every op type behind it; an event with unknown op types under its
        own name. The framework's events and the calls around kernels are left out.

        Raises `MissingDataError` if the block does not exist.
        """
        blocks = [block for block in self.event_blocks if block.name == event_block]
        if not blocks:
            names = ", ".join(dict.fromkeys(block.name for block in self.event_blocks))
            raise MissingDataError(f"no event block {event_block!r}", hint=f"blocks are: {names}")
        table: dict[str, list[Event]] = {}
        for event in (event for block in blocks for event in block.events):
            if not event.name or event.name in _NOT_OPERATORS:
                continue
            if event.is_delegated_op and not show_delegated_ops:
                continue
            for op in dict.fromkeys(event.op_types) or (event.name,):
                table.setdefault(op, []).append(event)
        return table

    def get_vgf_neural_statistics(self) -> list[dict[str, Any]]:
        """The neural statistics that Arm's VGF backend logged, one dict a record; see
        `etscope.backends.arm.delegates`. Empty when no event has any."""
        return [
            record
            for block in self.event_blocks
            for event in block.events
            for record in parse_vgf_neural_statistics_delegate_metadata(
                event.raw_delegate_debug_metadatas
            )
        ]

    def get_exported_program(self, graph: str | None = None) -> Any:
        """The record's `ExportedProgram` called `graph`; the edge program by default (a dict of
        them, by method, when there are several). Needs torch and executorch.

        Raises `MissingDataError` without a record, or when it has no such graph.
        """
        if self.trace.record is None:
            raise MissingDataError(
                "no exported program without an ETRecord", hint="pass etrecord= to the Inspector"
            )
        from etscope.etrecord import as_etrecord

        record = as_etrecord(self._etrecord)
        if graph in (None, EDGE_GRAPH, EDGE):
            return record.edge_dialect_program
        programs: dict[str, Any] = dict(record.graph_map or {})
        if record.exported_program is not None:
            programs[EXPORTED] = record.exported_program
        if graph in programs:
            return programs[graph]
        raise MissingDataError(
            f"the record has no graph {graph!r}",
            hint="its graphs are: " + ", ".join((EDGE_GRAPH, *programs)),
        )

    @property
    def op_graph_dict(self) -> Mapping[str, Graph] | None:
        """The record's graphs by name, as `etscope.model.graph.Graph`; None without a record.

        The edge program of "forward", or of the only method, is there by upstream's name too,
        "edge_dialect_graph_module".
        """
        record = self.trace.record
        if record is None:
            return None
        graphs = {name: graph_from_record(record, name) for name in record.graph_names}
        methods = record.edge_methods
        main = methods[0] if len(methods) == 1 else "forward"
        if main in methods:
            graphs[EDGE_GRAPH] = graphs[f"{EDGE}/{main}"]
        return graphs

    # -- values against a reference

    def calculate_numeric_gap(
        self,
        distance: Any,
        disable_debug_handle_valdiation: bool = False,
        reference_graph: str | None = None,
        *,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
    ) -> pd.DataFrame:
        """Compare the values that the device logged with a graph of the ETRecord, computed by
        PyTorch on the same inputs. `numeric_gap` returns the same with more detail.

        distance: "MSE", "L1", "SNR", or another metric of `etscope.analysis.metrics`; or a
            `NumericalComparatorBase`.
        disable_debug_handle_valdiation: compare with the exported program even if parts of the edge
            program do not say which of its nodes they come from.
        reference_graph: "exported_program", "edge_dialect_exported_program" or another graph of the
            record; by default the exported program, where the edge program leads back to it.
        method: "forward" by default, or the only one that ran.
        run: the number of the method's run, from 0; by default the first run with values.
        inputs: the inputs of that run; by default its bundled test case's, or the record's
            representative inputs.

        Columns: aot_debug_handle, aot_ops (nodes of the reference graph), aot_intermediate_output,
        runtime_ops, runtime_debug_handle, runtime_intermediate_output, gap (a list: one number for
        each pass of a loop) and stacktraces (by node). One row for each output of an instruction,
        in the order of the reference; with a comparator, outputs of one operator share a row, as
        tuples and a gap of several numbers. Values are tensors in a temporary file.

        Raises `NumericGapError` when values, record, inputs or the reference graph are missing, or
        nothing can be compared; `UsageError` for an unknown distance.
        """
        from etscope.diagnosis.numeric_gap import calculate
        from etscope.diagnosis.numerics import RunToCompare

        if getattr(distance, "inspector", self) is None:  # upstream's comparators look at theirs
            distance.inspector = self
        asked = RunToCompare(
            reference_graph=reference_graph,
            method=method,
            run=run,
            inputs=inputs,
            bundle=self._bundle,
        )
        return calculate(
            self._trace_with_values, distance, asked, best_effort=disable_debug_handle_valdiation
        )

    def numeric_gap(
        self,
        metrics: Sequence[str] = ("mse",),
        reference_graph: str | None = None,
        *,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
        disable_debug_handle_validation: bool = False,
    ) -> Gap:
        """Do the comparison of `calculate_numeric_gap` with several metrics, and report its
        coverage: what was compared, and why everything else was not. No values are kept.
        """
        from etscope.diagnosis.numeric_gap import gap_of, metric_of
        from etscope.diagnosis.numerics import RunToCompare

        asked = RunToCompare(
            reference_graph=reference_graph,
            method=method,
            run=run,
            inputs=inputs,
            bundle=self._bundle,
        )
        measured = [metric_of(name) or "" for name in metrics]
        return gap_of(
            self._trace_with_values, measured, asked, best_effort=disable_debug_handle_validation
        )

    def diagnose_numerics(
        self,
        metric: str = "sqnr",
        *,
        tolerance: float | None = None,
        reference_graph: str | None = None,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
        previous: Sequence[Any] | None = None,
        values: str | None = None,
    ) -> Numerics:
        """Find the operators that compute wrong numbers, and their lines of Python.

        Each logged value has three errors: the total one to the reference, the operator's own, and
        the inherited one.

        metric: a metric from `etscope.analysis.metrics`. tolerance: the worst acceptable error in
        that metric; by default the usual tolerance of the type. Rounding is always allowed in
        addition. reference_graph: the edge program by default. method, run, inputs: as for
        `calculate_numeric_gap`. previous: for a model that keeps state, the inputs of each run
        since the model was loaded, in order, up to this run; by default the inputs of the test
        cases, or this run's for all, with a warning if that is a guess. values: selects the rows
        that keep `.values` (distribution, error by channel, worst elements, quantized range); by
        default the worst rows, the first wrong ones, and the outputs.

        `.verdict` names the first operator that is wrong, `.what_it_is` its fault; `.first`,
        `.suspects` and `.non_finite_origin` are rows, `.table()` has all;
        `etscope.analysis.numerics.limits` says what is allowed.

        Raises the errors of `numeric_gap`.
        """
        from etscope.diagnosis.numerics import RunToCompare, numerics_of

        asked = RunToCompare(
            metric=metric,
            tolerance=tolerance,
            reference_graph=reference_graph,
            method=method,
            run=run,
            inputs=inputs,
            previous=previous,
            bundle=self._bundle,
        )
        return numerics_of(self._trace_with_values, asked, values=values)

    @property
    def _trace_with_values(self) -> Trace:
        """Return the trace with logged values: a saved run has them in a separate dump, as logging
        them takes time."""
        path = self.trace.dump.path
        other = None if path is None else dump_with_values(str(path))
        if other in (None, str(path)) or self.trace.refers_to_tensors:
            return self.trace
        buffer = self.trace.debug_buffer
        beside = Path(other).with_name(DEBUG_BIN)
        if buffer is None and beside.is_file():
            buffer = DebugBuffer.open(beside)
        return replace(self.trace, dump=read_etdump(other), debug_buffer=buffer)

    def numeric_stages(
        self,
        metric: str = "sqnr",
        *,
        tolerance: float | None = None,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
        model: Any = None,
    ) -> NumericStages:
        """Find the step that introduces an error: compare each stage of the model with the stage
        before, operator by operator. The stages are the eager model, the exported and the quantized
        program, the edge program, and the device, as far as the record has their graphs.

        metric, tolerance, method, run, inputs: as for `diagnose_numerics`. model: the
        `torch.nn.Module` that was exported; if it takes keyword or nested arguments, a
        tuple of the module and example inputs.

        `.verdict` names the step and the operator, `.wrong` has the wrong operators by step, and
        `.table()` has all operators with a column for each stage.
        `etscope.search.numerics.model_stages` exports and runs a model, and compares its stages.

        Raises the errors of `diagnose_numerics`, and `NumericGapError` for a stage none of
        whose values corresponds to a value of the stage before.
        """
        from etscope.diagnosis.numerics import RunToCompare
        from etscope.diagnosis.stage_comparison import EagerModel, numeric_stages

        module, example = model if isinstance(model, tuple) else (model, None)
        asked = RunToCompare(
            metric=metric,
            tolerance=tolerance,
            method=method,
            run=run,
            inputs=inputs,
            bundle=self._bundle,
        )
        eager = None if module is None else EagerModel.of(module, example)
        return numeric_stages(self._trace_with_values, asked, eager)

    # -- reports

    def report(
        self,
        path: PathLike | None = None,
        *,
        title: str | None = None,
        numerics: bool | None = None,
        inputs: Any = None,
        method: str | None = None,
    ) -> Any:
        """Write the report, one HTML file that opens anywhere without network: times by operator,
        module, line and graph node, memory, numerics. "-" is standard output. Without a path,
        return it as a widget for a notebook (an `etscope.reporting.notebook.ReportWidget`).

        numerics: compare logged values with a reference; None does so when both are there. inputs:
        the run's inputs, as for `diagnose_numerics`. method: the method with the values to compare;
        None for "forward" or the only method that ran.

        Raises `UsageError` for a path that cannot be written, `MissingDependencyError` if the
        installation lacks the files of the report page, or anywidget for a widget, and with
        `numerics=True` what `diagnose_numerics` raises.
        """
        from etscope.reporting.report import ReportOptions, report_document
        from etscope.views.output import open_output
        from etscope.views.page import page_html

        if path is None:  # raises before the long work
            from etscope.reporting.notebook import ReportWidget

        options = ReportOptions(
            source_unit=self._scale.source.value,
            unit=self._scale.target.value,
            numerics=numerics,
            inputs=None if inputs is None else lambda *_: inputs,
            method=method,
        )
        document = report_document(
            self.trace, options, title=title, bundle=self._bundle, convert=self._convert_time
        )
        if path is None:
            return ReportWidget(document)
        with open_output(path) as out:
            out.write(page_html(document))
        return None

    def __repr__(self) -> str:
        return f"<Inspector {self.trace.headline}>"

    def _repr_html_(self) -> str | None:
        """The page that a notebook shows: the times of the methods and their longest operators."""
        from etscope.views.tables.results import html_of

        return html_of(self.trace, self._scale)

    def debug(self, inputs: Any = None) -> Any:
        """A session of ETDB (an `etscope.etdb.Session`) on this dump, its record and debug buffer.

        inputs: what the reference is run on, as the model takes it; by default the record's.
        Each command is a method of the session, and `execute` takes lines; see docs/how-to/etdb.md.
        """
        return importlib.import_module(_DEBUGGER).session_of_trace(
            self.trace, inputs=inputs, source_unit=self._scale.source.value
        )


def compare_results(
    reference_output: Sequence[Any],
    run_output: Sequence[Any],
    metrics: Sequence[str] | None = None,
    plot: bool = False,
) -> dict[str, list[float | None]]:
    """The metrics of each output of a run against its reference.

    reference_output, run_output: outputs in order (tensors, arrays or numbers). metrics: names of
    `etscope.analysis.metrics.METRICS`; by default snr, mse and cosine_similarity. plot: also draw
    each metric's values by output, write them to ``<metric>_output_plot.png`` in the current folder
    and, in a notebook, show them; needs matplotlib. No window is opened.

    Returns metric -> one value for each output, None for a pair that is not of numbers. NaN
    and infinities have the results of ``docs/reference/metrics.md``; types may differ.

    Raises `MissingDataError` when there is nothing to compare, `UsageError` for an unknown metric,
    and when the numbers of outputs or their shapes differ.
    """
    for which, outputs in (("reference", reference_output), ("run", run_output)):
        if isinstance(outputs, (str, bytes)) or hasattr(outputs, "__array__"):
            raise UsageError(f"give a list of {which} outputs, not a {type(outputs).__name__}")
        if not outputs:
            raise MissingDataError(
                f"there are no {which} outputs to compare",
                hint="record outputs: a bundled program's ETRecord has references, a debug "
                "buffer has the run's outputs",
            )
    if len(reference_output) != len(run_output):
        raise UsageError(
            f"the run has {len(run_output)} outputs, the reference {len(reference_output)}"
        )
    if isinstance(metrics, str):
        raise UsageError(f"give a list of metrics, not {metrics!r}", hint=f"write [{metrics!r}]")
    if metrics is not None and not metrics:
        raise UsageError("no metric is named", hint="leave metrics out for the default ones")
    names = [find_metric(name).name for name in (DEFAULT_METRICS if metrics is None else metrics)]
    results: dict[str, list[float | None]] = {name: [] for name in names}
    for index, (reference, value) in enumerate(zip(reference_output, run_output, strict=True)):
        try:
            measured = measure_all(names, reference, value)
        except UsageError as error:
            raise UsageError(f"output {index}: {error.message}", hint=error.hint) from error
        for name, values in results.items():
            values.append(measured[name])
    if plot:
        for name, values in results.items():
            draw_metric(name, values, wanted_by="compare_results(plot=True)")
    return results
