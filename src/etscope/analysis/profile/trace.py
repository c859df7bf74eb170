"""A dump with its record, program and debug buffer: the base of the Inspector, commands and views.

A `Trace` opens lazily: blocks are found when it is made, graphs are parsed when an event's
attribution is asked for, tensors are read when their values are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.matching.export import Export
from etscope.analysis.matching.run_nodes import RunNodes
from etscope.analysis.profile.calls import RunCalls, inferred_calls, recorded_calls
from etscope.analysis.profile.counted import counted
from etscope.analysis.profile.profile import MethodProfile, load_ticks, method_profile
from etscope.analysis.program.compatibility import (
    Observed,
    differs_from_labels,
    differs_from_record,
    doubt,
    instruction_labels,
)
from etscope.analysis.program.correlate import (
    EDGE_GRAPH,
    UNATTRIBUTED,
    Attribution,
    MethodSymbols,
    attribute,
    branch_nodes,
    method_symbols,
    record_methods,
)
from etscope.analysis.program.program import InstructionRecord, is_of_one_length
from etscope.analysis.program.vulkan_calls import with_vulkan_handles
from etscope.analysis.program.xnnpack_events import (
    InnerEvents,
    attributed,
    inner_events,
    unexplained,
)
from etscope.backends.registry.decoders import meanings
from etscope.errors import EtscopeWarning, FormatError, MismatchError, MissingDataError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import DebugValue, ETDump, EventKind, TensorRef, logged_values
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.generation import InputType, program_input_types
from etscope.formats.json_values import JsonValue
from etscope.formats.program.ptd import ExternalData
from etscope.formats.program.pte import Program
from etscope.formats.program.scalar_type import numpy_dtype
from etscope.formats.run_json import (
    SavedCall,
    SavedRun,
    executions_of,
    saved_calls,
    saved_executions,
    saved_generation,
    saved_methods,
    saved_run,
)
from etscope.model.event_table import (
    KERNEL_PREFIX,
    Block,
    EventKey,
    EventTable,
    Meaning,
    execution_numbers,
    find_blocks,
)
from etscope.model.exported_graph import graph_from_record
from etscope.support.lazy import MadeOnce
from etscope.support.shown import Shown

__all__ = ["Trace", "runs_of"]

_EXECUTE = "Execute"  # the name of the runtime's runs of a method


# -- The attribution of a method's events, from its record and its program.


def attribution_of(
    symbols: MethodSymbols,
    instructions: Sequence[InstructionRecord],
    labels: Sequence[str],
    inner: InnerEvents | None = None,
) -> Callable[[EventKey], Attribution]:
    """Return the function that attributes the events of a method.

    instructions: the program's instructions, empty without a program. labels: the labels of the
        instructions, to find branches.
    inner: the operators behind events inside delegates.
    """
    branches = branch_nodes(labels, symbols)
    delegated = inner or {}

    def attribution(key: EventKey) -> Attribution:
        found = attribute(key, symbols)
        instruction = key.instruction
        if instruction is None:
            return found
        if key.delegate_id is not None:
            operator = delegated.get((instruction, key.delegate_id))
            return found if operator is None else attributed(found, operator, symbols)
        if instruction in branches:
            node = branches[instruction]
            found = replace(found, nodes=(node,), debug_handles=node.debug_handle)
        if 0 <= instruction < len(instructions):
            record = instructions[instruction]
            found = replace(
                found,
                backend_id=found.backend_id or record.backend_id,
                operator=record.operator,
                inputs=tuple(map(str, record.read)),
                outputs=tuple(map(str, record.written)),
                bytes_read=record.bytes_read,
                bytes_written=record.bytes_written,
                stack=record.stack,
            )
        return found

    return attribution


class _Unavailable:
    """Stands for a logged tensor without its debug buffer."""

    def __repr__(self) -> str:
        return "<no debug buffer>"


UNAVAILABLE = _Unavailable()


@dataclass(frozen=True)
class Trace(MadeOnce, Shown):
    """A dump, with its debug buffer, record and program if they were given.

    `forced`: use the record even if the runs contradict it. `calls`: the call of each run in the
    dump, in order; by default from the run.json that `etscope run --save` wrote. `chosen`: the
    selected executions of the dump; see `only`. `all_runs`: the profiles include warm-up and
    disturbed runs. `ran`: facts about the run, by default from the run.json next to the dump.
    `data`: the program's .ptd files.
    """

    dump: ETDump
    record: RecordView | None = None
    debug_buffer: DebugBuffer | None = None
    program: Program | None = None
    reference_graph: str = EDGE_GRAPH
    forced: bool = False
    calls: tuple[SavedCall, ...] = ()
    chosen: RunCalls | None = None
    all_runs: bool = False
    ran: SavedRun | None = None
    data: tuple[ExternalData, ...] = ()

    @property
    def headline(self) -> str:
        """The dump's path, the number of its runs and the methods that ran."""
        methods = dict.fromkeys(str(one.method) for one in self.profiles() if one.method)
        of = f" of {', '.join(methods)}" if methods else ""
        return f"{self.dump.path or 'in memory'}: {self.dump.num_runs} runs{of}"

    @property
    def trace(self) -> Trace:
        """The trace itself. `Export` has the same property, which is None."""
        return self

    @cached_property
    def export(self) -> Export:
        """The program, the record and the .ptd files, without the run."""
        return Export(self.program, self.record, self.data)

    @property
    def needed_record(self) -> RecordView:
        """The record. Raises `MissingDataError` without one."""
        return self.export.needed_record

    @cached_property
    def saved_run(self) -> SavedRun | None:
        """The run.json that `etscope run --save` wrote next to the dump; None without one."""
        return saved_run(self.dump.path) if self.ran is None else self.ran

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The selected runs, grouped by their events, and by method and phase where these are
        known.
        """
        phases = self.run_phases
        parts = [
            part
            for block in self._all_blocks
            for part in _split(block, lambda run: phases.get(run, ""))
        ]
        if self.chosen is not None:
            wanted = set(self.chosen.run.tolist())
            parts = [
                runs_of(one, wanted) for one in parts if not wanted.isdisjoint(one.runs.tolist())
            ]
        return tuple(parts)

    @cached_property
    def _all_blocks(self) -> tuple[Block, ...]:
        """All runs of the dump by events, and by method where it was noted when they ran."""
        known = self._known_methods
        return tuple(
            part
            for block in find_blocks(self.dump)
            for part in _split(block, lambda run: known.get(run, ""))
        )

    @cached_property
    def executions(self) -> list[int]:
        """The runs of the dump that executed a method, by index, without runs that loaded."""
        return [run for run in range(self.dump.num_runs) if self.dump.run_name_of(run) == _EXECUTE]

    # -- the calls of a language model

    @cached_property
    def calls_of_runs(self) -> RunCalls:
        """The selected executions of the dump, as calls of a language model."""
        if self.chosen is not None:
            return self.chosen
        noted = saved_generation(self.dump.path)
        runs = self.executions
        if noted is not None and len(noted[1]) == len(runs):
            return recorded_calls(np.array(runs, np.int64), noted[1])
        by_method: dict[str | None, list[Block]] = {}
        for block in self._all_blocks:
            if block.executions:
                by_method.setdefault(self.method_of(block), []).append(block)
        return inferred_calls(self.dump, by_method, self.methods, self._of_one_length)

    @cached_property
    def _of_one_length(self) -> frozenset[str]:
        """The methods of which the program shows that each call has inputs of one size."""
        program = self.recorded_program
        methods = () if program is None else program.methods
        return frozenset(method.name for method in methods if is_of_one_length(method))

    @cached_property
    def run_phases(self) -> Mapping[int, str]:
        """The known phases of the dump's runs, by run."""
        calls = self.calls_of_runs
        return {
            run: phase
            for run, phase in zip(calls.run.tolist(), calls.phase, strict=True)
            if phase is not None
        }

    def only(self, phase: str | None = None, calls: range | None = None) -> Trace:
        """Return the trace of only some executions: the executions of a phase, or the calls with
        these numbers in the dump, counted from 0. All of these runs count, also warm-up; times of
        loading are left out.

        Raises `MissingDataError` if no call is known to be of the phase, `UsageError` for numbers
        beyond the last call.
        """
        chosen = self.calls_of_runs.chosen(phase, calls)
        return replace(self, chosen=chosen, all_runs=self.all_runs or calls is not None)

    @cached_property
    def known_calls(self) -> tuple[SavedCall, ...]:
        """`calls`, or the calls in the run.json next to the dump. Raises as `saved_calls`."""
        return self.calls or saved_calls(self.dump.path, self._input_types)

    def _input_types(self, method: str) -> Sequence[InputType | None]:
        """Return the types of a method's inputs by the program or the record; () without them."""
        program = self.recorded_program
        if program is not None:
            return program_input_types(program, method)
        name = f"{EDGE}/{method}"
        if self.record is None or name not in self.record.graph_names:
            return ()
        graph = graph_from_record(self.record, name)
        found: list[InputType | None] = []
        for name in (one for one in graph.inputs if one not in graph.parameters):
            node = graph.by_name.get(name)
            spec = None if node is None or not node.outputs else node.outputs[0].tensor
            last = spec.shape[-1] if spec is not None and spec.shape else None
            size = last if isinstance(last, int) else None
            found.append(None if spec is None else InputType(numpy_dtype(spec.dtype), size))
        return found

    @cached_property
    def _known_methods(self) -> Mapping[int, str]:
        """The methods of runs that were noted when they ran, by index in the dump."""
        methods = executions_of(self.calls) or saved_executions(self.dump.path)
        if not methods:
            return {}
        runs = self.executions
        return dict(zip(runs, methods, strict=True)) if len(runs) == len(methods) else {}

    @cached_property
    def events(self) -> EventTable:
        every = self._all_blocks
        return EventTable(
            dump=self.dump,
            blocks=self.blocks,
            methods=tuple(map(self.method_of, self.blocks)),
            meanings=tuple(map(self.meanings, self.blocks)),
            run_calls=execution_numbers(self.dump, every, map(self.method_of, every)),
            run_phases=self.run_phases,
        )

    @cached_property
    def attributions(self) -> tuple[Attribution, ...]:
        """The attribution of each of `events.events`. Events of delegates have their backend, if it
        is known.
        """
        of = {id(block): (self.shown_at(block), self.backend_of(block)) for block in self.blocks}
        found: list[Attribution] = []
        for event, meaning in zip(self.events.events, self.events.meaning, strict=True):
            shown_at, backend_of = of[id(event.block)]
            shown = shown_at(event.key)
            if meaning is not None and shown.backend_id is None:
                shown = replace(shown, backend_id=backend_of(event.key))
            found.append(shown)
        return tuple(found)

    @cached_property
    def recorded_program(self) -> Program | None:
        """Return the program: the given one, or the one in the record."""
        return self.export.recorded_program

    # -- which method a block ran

    @cached_property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The instructions of each method, from the program or the record; empty without both."""
        if self.program is not None:
            return {m.name: instruction_labels(m) for m in self.program.methods}
        fingerprints = None if self.record is None else self.record.fingerprints
        if fingerprints is None:
            return {}
        return {name: method.instructions for name, method in fingerprints.methods.items()}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """All methods that the record or the program has."""
        recorded = () if self.record is None else record_methods(self.record)
        return tuple(dict.fromkeys((*self.labels, *recorded)))

    def _observed(self, block: Block) -> Observed:
        """The logged facts about a block's instructions."""
        return self.once(("observed", id(block)), lambda: Observed.of(block))

    @cached_property
    def _fitting(self) -> Mapping[int, tuple[str, ...]]:
        """For each run of the dump the methods that it fits, the chosen one first: one that no
        block of other events was taken for.

        Blocks of the same events (of several bundled inputs) are of one method: nothing
        distinguishes them.
        """
        ran = {call.method for call in self.calls} or saved_methods(self.dump.path)
        possible = [method for method in self.methods if method in ran] or self.methods
        likely: dict[tuple[EventKey, ...], list[str]] = {}
        for block in self._all_blocks:
            if block.keys not in likely:
                methods = possible if block.executions else ()
                agreeing = [m for m in methods if self.disagreement(block, m) is None]
                if self.forced:
                    agreeing = agreeing or list(methods)
                without = [m for m in agreeing if self.doubt(block, m) is None]
                likely[block.keys] = self._likeliest(block, without or agreeing)
        fitting: dict[tuple[EventKey, ...], tuple[str, ...]] = {}
        taken: set[str] = set()
        for keys in sorted(likely, key=lambda keys: len(likely[keys])):  # those with a choice last
            fitting[keys] = tuple(sorted(likely[keys], key=lambda name: (name in taken, name)))
            taken.update(fitting[keys][:1])
        found: dict[int, tuple[str, ...]] = {}
        for block in self._all_blocks:
            known = self._known_methods.get(int(block.runs[0]))
            is_told = known is not None and (known in fitting[block.keys] or not self.methods)
            fits = (known,) if known is not None and is_told else fitting[block.keys]
            found.update(dict.fromkeys(block.runs.tolist(), fits))
        return found

    def _likeliest(self, block: Block, methods: list[str]) -> list[str]:
        """Return the methods that explain most of what the block logged inside of delegates."""
        if len(methods) < 2:
            return methods
        program = self.recorded_program
        left = {
            name: unexplained(
                block, program, self.symbols(name), self.instructions(name) if program else ()
            )
            for name in methods
        }
        return [name for name in methods if left[name] == min(left.values())]

    def method_of(self, block: Block) -> str | None:
        """Return the method that the block ran; None for loading, or when it is not known."""
        return next(iter(self._fitting[int(block.runs[0])]), None)

    def also_fitting(self, block: Block) -> tuple[str, ...]:
        """Return the other methods that may have run as this block: the dump cannot distinguish
        them.
        """
        return self._fitting[int(block.runs[0])][1:]

    def disagreement(self, block: Block, method: str) -> str | None:
        """Return the evidence that the block did not run `method`, if any."""
        observed = self._observed(block)
        if method in self.labels:
            difference = differs_from_labels(observed, self.labels[method])
            if difference is not None or self.record is None:
                return difference
            if self.record.fingerprints is not None:
                recorded = self.record.fingerprints.methods.get(method)
                if recorded is None:
                    return f"the record has no method {method!r}"
                return differs_from_labels(observed, recorded.instructions)
        return differs_from_record(observed, self.symbols(method), self.record, method)

    def doubt(self, block: Block, method: str) -> str | None:
        """Return why the block is unlikely to be a run of `method`; None if there is no such
        reason.
        """
        if self.record is None or self.record.fingerprints is not None:
            return None
        return doubt(self._observed(block), self.symbols(method))

    def verify(self) -> None:
        """Raise `MismatchError` if the instructions of a run fit no method of the record or
        program. Warn if that is likely but not proven.
        """
        if self.record is None and self.program is None:
            return
        for block in self.blocks:
            method = self.method_of(block)
            why = None if method is None else self.doubt(block, method)
            if why is not None:
                warnings.warn(
                    f"this ETDump and this ETRecord may not belong together: {why}",
                    EtscopeWarning,
                    stacklevel=3,
                )
            if method is not None or not block.executions:
                continue
            reasons = [f"{m}: {self.disagreement(block, m)}" for m in self.methods]
            other = "ETRecord" if self.record is not None else "program"
            raise MismatchError(
                f"this ETDump and this {other} do not belong together\n  "
                + ("\n  ".join(reasons) or f"the {other} has no methods"),
                hint="take the files of one export; verify=False (--force) goes on regardless",
            )

    # -- what is behind an event

    def symbols(self, method: str) -> MethodSymbols:
        """The record's symbols of a method; empty ones without a record."""
        record = self.record
        if record is None:
            return MethodSymbols(method, None)

        def found() -> MethodSymbols:
            symbols = method_symbols(record, method, self.reference_graph)
            program = self.recorded_program
            return symbols if program is None else with_vulkan_handles(symbols, program)

        return self.once(("symbols", method), found)

    def attribution(
        self, block: Block, method: str | None = None
    ) -> Callable[[EventKey], Attribution]:
        """Return the function that attributes the block's events. method: the method that ran, if
        known.
        """
        method = self.method_of(block) if method is None else method
        if method is None:
            return lambda _: UNATTRIBUTED
        attribution = attribution_of(
            self.symbols(method),
            self.instructions(method),
            self.labels.get(method, ()),
            self.inner_events(method),
        )
        identifiers = self.once(("identifiers", method), lambda: self._identifiers(method))

        def attributed(key: EventKey) -> Attribution:
            known = identifiers.get((key.instruction, key.delegate_id))
            if known is None or known == key.delegate_id:
                return attribution(key)
            return attribution(key._replace(delegate_id=known))

        return attributed

    def _identifiers(
        self, method: str
    ) -> Mapping[tuple[int | None, int | str | None], int | str | None]:
        """The names that the record's delegate map has for events, by what was logged."""
        return {
            (key.instruction, key.delegate_id): meaning.identifier
            for block in self.blocks
            if self.method_of(block) in (method, None)
            for index, meaning in self.meanings(block).items()
            for key in [block.keys[index]]
        }

    def run_nodes(self, method: str) -> RunNodes:
        """The nodes that a method's instructions ran, in the graph of `symbols`; none for a method
        that only the program has.
        """
        return self.once(("run nodes", method), lambda: self._run_nodes(method))

    def edge_nodes(self, method: str) -> RunNodes:
        """The `run_nodes` of the edge program, even if events are linked to another graph."""
        if self.reference_graph in (EDGE_GRAPH, EDGE):
            return self.run_nodes(method)
        of_edge = replace(self, reference_graph=EDGE_GRAPH)
        return self.once(("edge nodes", method), lambda: of_edge.run_nodes(method))

    def _run_nodes(self, method: str) -> RunNodes:
        try:
            symbols = self.symbols(method)
        except MissingDataError:
            symbols = MethodSymbols(method, None)
        labels: Sequence[str] | None = self.labels.get(method)
        if labels is None:  # a method that returns a constant has none
            ran = {
                key.instruction: key.name.removeprefix(KERNEL_PREFIX)
                for block in self.blocks
                if self.method_of(block) == method
                for key in block.keys
                if key.instruction is not None and key.name.startswith(KERNEL_PREFIX)
            }
            # A dump may hold any number as an instruction.
            last = max(symbols.handles, default=-1)
            labels = [ran.get(number, "") for number in range(last + 1)]
        return RunNodes(symbols, labels, self.recorded_program)

    def inner_events(self, method: str, *, by_order: bool = False) -> InnerEvents:
        """Return the operators behind events inside delegates that the record has no map of.
        by_order: also without a record, where only the order of the events decides.
        """
        program = self.recorded_program
        if program is None or (self.record is None and not by_order):
            return {}

        def found() -> InnerEvents:
            blocks = [block for block in self.blocks if self.method_of(block) == method]
            symbols = None if self.record is None else self.symbols(method)
            return inner_events(blocks, program, method, self.instructions(method), symbols)

        return self.once(("inner events", method), found)

    def instructions(self, method: str) -> Sequence[InstructionRecord]:
        """The method's instructions in the program, empty without one."""
        return self.run_nodes(method).records

    def profiles(self) -> list[MethodProfile]:
        """The profile of each method and phase that ran, in order of first appearance, from the
        counted runs (see `etscope.analysis.profile.counted`), or from all runs with `all_runs`.

        Runs of an unknown method are assumed to be of one method unless an instruction ran
        different operators in them.
        """
        return self.once("profiles", self._profiles)

    def _profiles(self) -> list[MethodProfile]:
        named: dict[tuple[str | None, str | None], list[Block]] = {}
        for block in self.blocks:
            if block.executions:
                kind = self.method_of(block), self.run_phases.get(int(block.runs[0]))
                named.setdefault(kind, []).append(block)
        groups = [
            (method, phase, part)
            for (method, phase), blocks in named.items()
            for part in ([blocks] if method is not None else _without_contradiction(blocks))
        ]
        # Loading is logged without the method's name: of one method it is that one's.
        load = load_ticks(self.blocks) if len(groups) == 1 else {}
        found = []
        for method, phase, blocks in groups:
            profile = method_profile(
                blocks,
                self.shown_at(blocks[0]),
                self.meanings,
                method,
                load,
                self.also_fitting(blocks[0]),
            )
            calls = None if phase is None else self.calls_of_runs.of_runs(profile.runs)
            profile = replace(profile, calls=calls)
            # Where several methods run for one token, excluded calls of one would leave tokens
            # without a part of their time.
            is_alone = [its_phase for _, its_phase, _ in groups].count(phase) == 1
            if not self.all_runs and (phase is None or is_alone):
                profile = self._counted(profile)
            found.append(profile)
        return found

    def _counted(self, profile: MethodProfile) -> MethodProfile:
        warmups = self.warmups(profile.method)
        inputs = {block.bundled_input_index for block in self.blocks if block.executions}
        if (len(warmups) > 1 or len(inputs) > 1) and profile.method not in self._of_one_length:
            return profile  # other inputs may take longer
        return counted(profile, is_warmed_up=any(warmups))

    def warmups(self, method: str | None) -> list[int]:
        """Return the number of executions before the recorded ones, for each call of a method.
        Unlike `known_calls`, this does not read the inputs of a saved run.
        """
        if self.calls:
            return [call.warmup for call in self.calls if call.method == method]
        saved = () if self.saved_run is None else self.saved_run.calls
        return [
            call.optional("warmup", JsonValue.whole) or 0
            for call in saved
            if call.optional("method", JsonValue.label) == method
        ]

    def meanings(self, block: Block) -> Mapping[int, Meaning]:
        """The meaning of each event that a delegate logged, by its index in the block's keys."""
        backend = self.backend_of(block)
        return self.once(("meanings", id(block)), lambda: meanings(block, backend))

    def backend_of(self, block: Block) -> Callable[[EventKey], str | None]:
        """Return a function from an event of the block to its backend, None if unknown."""
        method = self.method_of(block)
        if method is None:
            return lambda _: None
        delegates, records = self.symbols(method).delegates, self.instructions(method)

        def backend(key: EventKey) -> str | None:
            number = -1 if key.instruction is None else key.instruction
            if number in delegates:
                return delegates[number].backend_id
            return records[number].backend_id if 0 <= number < len(records) else None

        return backend

    def shown_at(self, block: Block) -> Callable[[EventKey], Attribution]:
        """Return the function that attributes the block's events to the nodes that ran there, and
        so to their modules and lines. `attribution` has all nodes that share the debug handles."""
        method, attribution = self.method_of(block), self.attribution(block)
        if method is None or self.record is None:
            return attribution
        run_nodes = self.run_nodes(method)
        return lambda key: run_nodes.shown_at(attribution(key), key.instruction)

    # -- values

    def values(self, block: Block, run: int, positions: Sequence[int]) -> list[Any]:
        """Return the values that the debug events at `positions` logged in the block's run `run`.

        Tensors are read-only numpy views of the debug buffer, a tensor list is a list of them;
        without a debug buffer each is `UNAVAILABLE`.
        """
        return [self._inflate(self.dump.value(block.row(run, p))) for p in positions]

    def _inflate(self, value: DebugValue) -> Any:
        if isinstance(value, TensorRef):
            return UNAVAILABLE if self.debug_buffer is None else self.debug_buffer.tensor(value)
        if isinstance(value, tuple):
            return [self._inflate(item) for item in value]
        return value

    def check_debug_buffer(self) -> None:
        """Raise `FormatError` if the dump refers to bytes that its debug buffer does not have."""
        if self.debug_buffer is None:
            return
        needed = self.once("buffer size", lambda: logged_values(self.dump).buffer_size)
        if self.debug_buffer.size < needed:
            raise FormatError(
                f"this debug buffer has {self.debug_buffer.size} bytes, but the ETDump refers to "
                f"{needed}: it is of another run, or cut off",
                path=self.debug_buffer.path,
            )

    @property
    def refers_to_tensors(self) -> bool:
        """Return whether a value of the dump is in a debug buffer, as all but scalars are."""
        events = np.flatnonzero(self.dump.debug_value_offset >= 0)
        values = (self.dump.value(int(event)) for event in events)
        return any(isinstance(value, (TensorRef, tuple)) for value in values)

    def metadata(self, block: Block, position: int) -> list[Any]:
        """A delegate's metadata in each run, where b"" becomes "", as upstream; [] if no run has
        any.
        """
        rows = block.column(position)
        if not (self.dump.metadata_length[rows] > 0).any():
            return []
        return [self.dump.metadata(row) or "" for row in rows.tolist()]

    # -- allocations

    def allocations(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """(run name, allocator) -> (number of allocations, bytes in all), over all runs."""
        dump = self.dump
        rows = np.flatnonzero(dump.kind == EventKind.ALLOCATION)
        rows = rows[np.lexsort((dump.allocator_id[rows], dump.run[rows]))]
        changes = np.diff(dump.run[rows], prepend=-1) | np.diff(dump.allocator_id[rows], prepend=0)
        first = np.flatnonzero(changes)
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for mine in np.split(rows, first[1:]) if len(rows) else ():
            run, identifier = int(dump.run[mine[0]]), int(dump.allocator_id[mine[0]])
            allocators = dump.run_allocators[run]
            if not 1 <= identifier <= len(allocators):
                raise FormatError(
                    f"an allocation of run {run} names allocator {identifier}, "
                    f"but the run has {len(allocators)}",
                    path=dump.path,
                )
            key = (dump.run_name_of(run), allocators[identifier - 1])
            count, total = found.get(key, (0, 0))
            found[key] = (count + len(mine), total + int(dump.allocation_size[mine].sum()))
        return found


Capture = Trace | Export  # a run, or an export without one


def _split(block: Block, kind_of: Callable[[int], str]) -> list[Block]:
    """Return a block's runs by kind, in order of first appearance."""
    kinds = {run: kind_of(run) for run in block.runs.tolist()}
    names = dict.fromkeys(kinds.values())
    if len(names) < 2:
        return [block]
    wanted = {name: {run for run, kind in kinds.items() if kind == name} for name in names}
    return [runs_of(block, wanted[name]) for name in names]


def runs_of(block: Block, wanted: Collection[int]) -> Block:
    """Return a block with only the wanted runs."""
    kept = np.array([run in wanted for run in block.runs.tolist()], np.bool_)
    return block if kept.all() else replace(block, runs=block.runs[kept], first=block.first[kept])


def _without_contradiction(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return the blocks in groups with the same instructions."""
    groups: list[list[Block]] = []
    observed: list[Observed] = []
    for block in blocks:
        mine = Observed.of(block)
        for index, other in enumerate(observed):
            if (together := other.joined(mine)) is not None:
                groups[index].append(block)
                observed[index] = together
                break
        else:
            groups.append([block])
            observed.append(mine)
    return groups


def warn_own_clock(block: Block, meanings: Mapping[int, Meaning]) -> None:
    """Warn if a block has events of delegates that cannot be compared with the others."""
    apart = {block.keys[i].instruction for i, meaning in meanings.items() if not meaning.adds}
    if not apart:
        return
    listed = ", ".join(sorted(map(str, apart)))
    warnings.warn(
        f"inside the delegate calls of instructions {listed}, times are not on the runtime's clock:"
        " they are in ticks of the delegate's own, scaled like the others"
        " (pass delegate_time_scale_converter)",
        EtscopeWarning,
        stacklevel=2,
    )
