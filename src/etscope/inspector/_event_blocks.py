"""The events of a trace as upstream's objects, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from etscope.analysis.profile.scale import Scale, TimeConverter, block_samples
from etscope.analysis.profile.trace import UNAVAILABLE, Trace, warn_own_clock
from etscope.formats.program.bpte import BundledFile
from etscope.model.event_table import Block
from etscope.model.events import (
    Event,
    EventBlock,
    LazyEvent,
    LazyEventBlock,
    PerfData,
    ProgramOutput,
    Runs,
)
from etscope.optional import available

MetadataParser = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class EventBlocks:
    """Makes the `EventBlock` of each block of a trace.

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
        if block.own_clock and self.convert_time is None:
            warn_own_clock(block.own_clock)
        attribution = self.trace.attribution(block)
        samples = block_samples(block, self.scale, self.convert_time)
        events: list[Event] = []
        for index, key in enumerate(block.keys):
            found = attribution(key)
            events.append(
                LazyEvent(
                    partial(self._load_of_event, block, index),
                    name=key.name,
                    perf_data=None if key.profile is None else PerfData(samples[index]),
                    op_types=found.op_types,
                    delegate_debug_identifier=key.delegate_id,
                    debug_handles=found.debug_handles,
                    num_outputs=found.num_outputs,
                    stack_traces={f"{node.name}_": node.stack_trace for node in found.nodes},
                    module_hierarchy={
                        f"{node.name}_": {f.key: (f.path, f.type) for f in node.modules}
                        for node in found.nodes
                    },
                    is_delegated_op=key.delegate_id is not None,
                    delegate_backend_name=found.backend_id,
                    _instruction_id=key.instruction_id,
                    _delegate_metadata_parser=self.parse_metadata,
                    _delegate_time_scale_converter=self.convert_time,
                    occurrence=key.occurrence,
                )
            )
        return events

    def _load_of_event(self, block: Block, index: int, name: str) -> Any:
        key = block.keys[index]
        if name == "_start_time":  # as in the dump: unsigned
            rows = None if key.profile is None else block.column(key.profile)
            return None if rows is None else self.trace.dump.start[rows].tolist()
        if name == "_delegate_debug_metadatas":
            return [] if key.profile is None else self.trace.metadata(block, key.profile)
        values = self._runs(block, key.debug)
        return values if name == "debug_data_runs" else values.first()

    def _runs(self, block: Block, positions: tuple[int, ...]) -> Runs:
        count = len(block.runs) if positions else 0
        return Runs(count, lambda run: _outputs(self.trace.values(block, run, positions)))

    def _reference(self, method: str | None, index: int) -> ProgramOutput | None:
        """Return the expected outputs of a test case: those of the bundled program, whose cases the
        index counts, else those of the record, which may have been made with the same bundle."""
        if method is None or index < 0:
            return None
        cases: Sequence[Any] | None = None
        if self.bundle is not None:
            suites = {suite.method: suite.cases for suite in self.bundle.suites}
            cases = [case.expected_outputs for case in suites.get(method, ())]
        elif self.trace.record is not None:
            cases = (self.trace.record.reference_outputs() or {}).get(method)
        if cases is None or index >= len(cases) or not cases[index]:
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
