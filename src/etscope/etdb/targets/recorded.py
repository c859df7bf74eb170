"""The recorded run: the events and values of a dump as a line of stops, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.logged_run import LoggedRun, logged_run, unfolded
from etscope.analysis.matching.matching import Matching, Pair
from etscope.analysis.numerics.runs import RECORD_HINT, MethodRun, match_run, method_by_values
from etscope.analysis.profile.trace import Trace
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.targets.target import Kept, RunInfo, Stop, Watch, stop_of
from etscope.formats.program.bpte import BundledFile
from etscope.model.event_table import EXECUTE, KERNEL_PREFIX, Block, EventKey

NO_DUMP = "there is no recorded run"
NO_DUMP_HINT = "load one: core RUN.etdp"
NO_TARGET_HINT = f"{NO_DUMP_HINT}, or target runtime, or target live"


class RecordedRuns(Kept):
    """All runs of a dump; one of them is walked. Opens nothing and runs nothing."""

    kind = "recorded"
    is_past = True
    is_reference = False

    def __init__(self, trace: Trace, linked: Callable[[str], LinkedGraph] | None = None) -> None:
        """linked: gives the edge graph of a method, which tells the parts of an operator that was
        decomposed from each other; None without a record."""
        self._trace = trace
        self._linked = linked
        self._all = sorted(_runs(trace), key=lambda run: run.number)
        if not self._all:
            raise MissingDataError(
                f"{trace.dump.path or 'the dump'} holds no run of a method",
                hint="run the method with the event tracer on",
            )
        self._chosen = self._all[0]
        self._methods: dict[int, str] = {}  # by `id` of the block

    @cached_property
    def runs(self) -> Sequence[RunInfo]:
        """All runs of methods in the dump."""
        return [
            RunInfo(
                run.number,
                self._method_of(run.block),
                len(_line_of(run.block)),
                _total(run),
            )
            for run in self._all
        ]

    @property
    def run(self) -> int:
        """The index in the dump of the run that is walked."""
        return self._chosen.number

    @property
    def method(self) -> str:
        """The method that ran; "" where nothing tells."""
        return self._method_of(self._chosen.block)

    def choose(self, run: int) -> None:
        """Walk another run of the dump."""
        for known in self._all:
            if known.number == run:
                self._chosen = known
                self.__dict__.pop("stops", None)
                self.__dict__.pop("_logged", None)
                self.__dict__.pop("_matching", None)
                return
        numbers = [known.number for known in self._all]
        raise UsageError(
            f"there is no run {run}", hint=f"runs are {numbers[0]} to {numbers[-1]}: info runs"
        )

    @cached_property
    def stops(self) -> Sequence[Stop]:
        """The stops of the run that is walked."""
        return list(self._stops())

    def restart(self) -> None:
        """Nothing runs."""

    def reach(self, position: int) -> None:
        """Nothing runs."""

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """The next stop, whatever is wanted."""
        return start + 1 if start + 1 < len(self.stops) else None

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """A recorded run is over."""
        raise UsageError(
            "a recorded run cannot be changed", hint="run the reference: target live, then set"
        )

    # -- values

    def device_values(self, position: int) -> list[Any]:
        """The outputs that were logged at a stop."""
        stop = self.stops[position]
        if stop.instruction is None or not self._has_values:
            return []
        found = self._logged.passes.get((stop.instruction, stop.delegate_id), ())
        if stop.loop_pass >= len(found):
            return []
        values = unfolded(
            self._trace.values(self._chosen.block, self._chosen.position, found[stop.loop_pass])
        )
        count = self._trace.symbols(self.method).num_outputs.get(stop.instruction)
        if stop.kind == "delegate" and count is not None:
            values = values[max(len(values) - count, 0) :]
        elif stop.kind == "delegate" and self._output_count(stop.instruction):
            values = values[-self._output_count(stop.instruction) :]
        return values

    def value_of(self, node: str, position: int) -> Any:
        """What the device logged for a node before the stop, at the last pass of its loop."""
        self._check()
        pairs = self._matching.by_node.get(node, ())
        if not pairs:
            raise MissingDataError(f"the device logged no value of {node}", hint=self._why(node))
        found: dict[int | None, Any] = {}
        for pair in sorted(pairs, key=lambda pair: pair.delegate_id is None):
            loop_pass = self._passes_until(pair, position)
            if loop_pass is None:
                raise MissingDataError(
                    f"{node} has no value yet",
                    hint=f"it is computed by instruction {pair.instruction}: "
                    f"until id:{pair.instruction}",
                )
            found.setdefault(pair.element, self._logged.values(pair)[loop_pass])
        if None in found:
            return found[None]
        last = max(index for index in found if index is not None)
        return [found.get(index) for index in range(last + 1)]

    def value_in_pass(self, node: str, loop_pass: int) -> Any:
        """What the device logged for a node in a pass of its loop, wherever the run stands."""
        self._check()
        # A node inside of a delegate has a stop of its own, before the call that gives its value.
        pairs = self._matching.by_node.get(node, ())
        giving = {(pair.instruction, pair.delegate_id) for pair in pairs}
        passes = [
            stop.position
            for stop in self.stops
            if stop.loop_pass == loop_pass and (stop.instruction, stop.delegate_id) in giving
        ]
        return self.value_of(node, passes[-1] if passes else len(self.stops) - 1)

    def matched(self) -> Matching:
        """Which logged values are values of which nodes. Raises `MissingDataError` without
        values."""
        self._check()
        return self._matching

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """Of which nodes the values of a stop are, by their place among `device_values`."""
        stop = self.stops[position]
        if stop.instruction is None or not self._has_values:
            return {}
        found = self._matching.by_instruction.get(stop.instruction, ())
        return {pair.output: pair for pair in found if pair.delegate_id == stop.delegate_id}

    def nodes_at(self, position: int) -> Sequence[str]:
        """The nodes that a stop's values are of. Raises `MissingDataError` without values."""
        stop = self.stops[position]
        pairs = self.matched().by_instruction.get(stop.instruction or 0, ())
        return list(dict.fromkeys(p.node for p in pairs if p.delegate_id == stop.delegate_id))

    def given_inputs(self, given: Any, bundle: BundledFile | None) -> Any:
        """What the run was given: `given`, those of the bundled case that ran, or the record's."""
        from etscope.diagnosis.reference import inputs_of_run

        return inputs_of_run(self._trace, self.method, self._chosen, given, bundle)

    @property
    def chosen(self) -> MethodRun:
        """The run that is walked, as analyses take it."""
        return self._chosen

    @property
    def trace(self) -> Trace:
        """The dump with what explains it."""
        return self._trace

    def _why(self, node: str) -> str:
        for missing in self._matching.coverage.nodes:
            if missing.node == node:
                return missing.reason
        return "info tensors lists the values that are there"

    def _passes_until(self, pair: Pair, position: int) -> int | None:
        """The last pass of the pair's instruction that is over at a stop."""
        over = [
            stop.loop_pass
            for stop in self.stops[: position + 1]
            if stop.instruction == pair.instruction and stop.delegate_id == pair.delegate_id
        ]
        count = len(self._logged.passes[pair.instruction, pair.delegate_id])
        return min(over[-1], count - 1) if over else None

    def _check(self) -> None:
        if not any(key.debug for key in self._chosen.block.keys):
            raise MissingDataError("this run logged no values", hint=RECORD_HINT)
        if self._trace.debug_buffer is None:
            raise MissingDataError(
                "the values are in the debug buffer, which is not loaded",
                hint="give it: core RUN.etdp BUFFER.bin",
            )

    @property
    def _has_values(self) -> bool:
        return self._trace.debug_buffer is not None and any(
            key.debug for key in self._chosen.block.keys
        )

    @cached_property
    def _logged(self) -> LoggedRun:
        return logged_run(self._trace, self._chosen.block, self._chosen.position, self.method)

    @cached_property
    def _matching(self) -> Matching:
        return match_run(self._trace, self._logged)

    def _method_of(self, block: Block) -> str:
        if id(block) not in self._methods:
            self._methods[id(block)] = method_by_values(self._trace, block) or ""
        return self._methods[id(block)]

    def _output_count(self, instruction: int) -> int:
        records = self._trace.instructions(self.method)
        return len(records[instruction].outputs) if instruction < len(records) else 0

    # -- stops

    def _stops(self) -> Iterator[Stop]:
        block, position = self._chosen.block, self._chosen.position
        attribution = self._trace.attribution(block, self.method or None)
        linked = None if self._linked is None else self._linked(self.method)
        paths = {} if linked is None else linked.graph.path_of
        counted: dict[_Identity, int] = {}
        known: dict[_Identity, Stop] = {}
        for place, events in enumerate(_line_of(block)):
            keys = [block.keys[index] for index in events]
            identity = (keys[0].instruction, keys[0].delegate_id)
            loop_pass = counted.get(identity, 0)
            counted[identity] = loop_pass + 1
            if identity not in known:
                telling = _telling(keys)
                known[identity] = stop_of(telling, _kind(keys), attribution(telling), linked, paths)
            # The call spans all else that was logged for it.
            ticks = [
                int(block.ticks[index, position])
                for index in events
                if block.keys[index].profile is not None
            ]
            yield replace(
                known[identity],
                position=place,
                loop_pass=loop_pass,
                ticks=max(ticks, default=None),
            )


_Identity = tuple[int | None, int | str | None]


def _runs(trace: Trace) -> Iterator[MethodRun]:
    for block in trace.blocks:
        if block.executions or any(key.debug and key.instruction is not None for key in block.keys):
            for position, number in enumerate(block.runs):
                yield MethodRun(block, position, int(number))


def _total(run: MethodRun) -> int | None:
    spans = [
        int(run.block.ticks[index, run.position])
        for index in run.block.profiled
        if run.block.keys[index].name == EXECUTE and run.block.keys[index].is_framework
    ]
    return sum(spans) if spans else None


def _line_of(block: Block) -> list[list[int]]:
    """The events of a run, as indices into `block.keys`, in the order they were logged; those of
    one call together.

    Events are logged when they end: the operators inside of a delegate before its call.
    """
    places = [
        (key.profile if key.profile is not None else min(key.debug), index)
        for index, key in enumerate(block.keys)
        if key.instruction is not None
    ]
    groups: list[list[int]] = []
    before: EventKey | None = None
    for _, index in sorted(places):
        key = block.keys[index]
        same = before is not None and (before.instruction, before.delegate_id) == (
            key.instruction,
            key.delegate_id,
        )
        # A delegate that times one identifier twice ran it twice.
        if same and (key.delegate_id is None or key.profile is None):
            groups[-1].append(index)
        else:
            groups.append([index])
        before = key
    return groups


def _telling(events: Sequence[EventKey]) -> EventKey:
    """The event that names the operator."""
    named = [key for key in events if key.name.startswith(KERNEL_PREFIX)]
    return (named or [key for key in events if key.name] or list(events))[0]


_KINDS = {
    "DELEGATE_CALL": "delegate",
    "JF_CALL": "control",
    "MOVE_CALL": "control",
    "FREE_CALL": "control",
}


def _kind(events: Sequence[EventKey]) -> str:
    if events[0].delegate_id is not None:
        return "delegated"
    return next((_KINDS[key.name] for key in events if key.name in _KINDS), "kernel")


__all__ = ["NO_DUMP", "NO_DUMP_HINT", "NO_TARGET_HINT", "RecordedRuns"]
