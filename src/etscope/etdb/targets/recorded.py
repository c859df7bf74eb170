"""A recorded run: the events and values of a dump as a sequence of stops, in both directions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.matching.matching import Matching, Pair
from etscope.analysis.numerics.runs import (
    RECORD_HINT,
    MethodRun,
    TracedMethod,
    method_by_values,
)
from etscope.analysis.profile.logged_run import LoggedRun, unfolded
from etscope.analysis.profile.trace import Trace
from etscope.capture.files import RunFiles
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.targets.target import (
    Failure,
    RunInfo,
    Stop,
    Target,
    Watch,
    edge_graph,
    stop_of_event,
)
from etscope.formats.program.bpte import BundledFile
from etscope.formats.run_json import saved_run
from etscope.model.event_table import EXECUTE, KERNEL_PREFIX, Block, EventKey

if TYPE_CHECKING:
    from etscope.diagnosis.reference import RunInputs

NO_DUMP = "no recorded run is loaded"
NO_DUMP_HINT = "load one: core RUN.etdp"
NO_TARGET_HINT = f"{NO_DUMP_HINT}, or target runtime, or target live"

_KINDS = {
    "DELEGATE_CALL": "delegate",
    "JF_CALL": "control",
    "MOVE_CALL": "control",
    "FREE_CALL": "control",
}


class RecordedRuns(Target):
    """All runs of a dump, one of them `chosen`. Opens and runs nothing."""

    kind = "recorded"
    is_past = True

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        found = [
            MethodRun(block, position, int(number))
            for block in trace.blocks
            if block.executions
            or any(key.debug and key.instruction is not None for key in block.keys)
            for position, number in enumerate(block.runs)
        ]
        if not found:
            raise MissingDataError(
                f"{trace.dump.path or 'the dump'} holds no run of a method",
                hint="run the method with the event tracer on",
            )
        self._all = sorted(found, key=lambda run: run.number)
        self.chosen = self._all[0]
        self._methods: dict[int, str] = {}  # by `id` of the block
        self._news: list[str] = []

    @cached_property
    def runs(self) -> Sequence[RunInfo]:
        calls = self.trace.calls_of_runs
        columns = zip(
            calls.run.tolist(),
            calls.phase if calls.phases else (),
            calls.position.tolist(),
            calls.tokens.tolist(),
            strict=False,
        )
        known = {
            run: (number, phase, position if position >= 0 else None, tokens or None)
            for number, (run, phase, position, tokens) in enumerate(columns)
        }
        infos = []
        for run in self._all:
            block = run.block
            spans = [
                int(block.ticks[index, run.position])
                for index in block.profiled
                if block.keys[index].name == EXECUTE and block.keys[index].is_framework
            ]
            total = sum(spans) if spans else None
            stops = len(_events_by_call(block))
            of_call = known.get(run.number, ())
            infos.append(RunInfo(run.number, self._method_of(block), stops, total, *of_call))
        saved = saved_run(self.trace.dump.path)
        failed = None if saved is None else saved.text("failed")
        if failed is not None:  # a core ends with the run that failed
            infos[-1] = replace(infos[-1], failed=Failure(None, failed).summary)
        return infos

    @property
    def calls_before(self) -> int:
        """Number of calls that ran before the first run of a core."""
        return sum(call.runs == 0 for call in self.trace.known_calls if call.method == self.method)

    @property
    def run(self) -> int:
        return self.chosen.number

    @property
    def method(self) -> str:
        return self._method_of(self.chosen.block)

    def choose(self, run: int) -> None:
        for known in self._all:
            if known.number == run:
                self.chosen = known
                for cached in ("stops", "_logged", "_matching"):
                    self.__dict__.pop(cached, None)
                return
        numbers = [known.number for known in self._all]
        raise UsageError(
            f"run {run} does not exist",
            hint=f"the runs are numbered {numbers[0]} to {numbers[-1]}; info runs lists them",
        )

    @cached_property
    def stops(self) -> Sequence[Stop]:
        return list(self._stops())

    def restart(self) -> None:
        pass

    def reach(self, position: int) -> None:
        pass

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """The next stop, whether it is wanted or not."""
        return start + 1 if start + 1 < len(self.stops) else None

    def patch(self, node: str | int, position: int, value: Any) -> None:
        raise UsageError(
            "a recorded run cannot be changed", hint="run the reference: target live, then set"
        )

    # -- values

    def device_values(self, position: int) -> list[Any]:
        stop = self.stops[position]
        if stop.instruction is None or not self._has_values:
            return []
        found = self._logged.passes.get((stop.instruction, stop.delegate_id), ())
        if stop.loop_pass >= len(found):
            return []
        values = unfolded(
            self.trace.values(self.chosen.block, self.chosen.position, found[stop.loop_pass])
        )
        if stop.kind != "delegate":
            return values
        # A delegate's call logs its inputs before its outputs.
        count = self.trace.symbols(self.method).num_outputs.get(stop.instruction)
        if count is not None:
            return values[max(len(values) - count, 0) :]
        records = self.trace.instructions(self.method)
        known = stop.instruction < len(records)
        outputs = len(records[stop.instruction].outputs) if known else 0
        return values[-outputs:] if outputs else values

    def value_of(self, node: str, position: int) -> Any:
        self.require_values()
        pairs = self._matching.by_node.get(node, ())
        if not pairs:
            reason = next(
                (
                    missing.reason
                    for missing in self._matching.coverage.nodes
                    if missing.node == node
                ),
                "info tensors lists the existing values",
            )
            raise MissingDataError(f"the device logged no value of {node}", hint=reason)
        found: dict[int | None, Any] = {}
        for pair in sorted(pairs, key=lambda pair: pair.delegate_id is None):
            over = [
                stop.loop_pass
                for stop in self.stops[: position + 1]
                if stop.instruction == pair.instruction and stop.delegate_id == pair.delegate_id
            ]
            if not over:
                raise MissingDataError(
                    f"{node} has no value yet",
                    hint=f"instruction {pair.instruction} computes the value; run on to it: "
                    f"until id:{pair.instruction}",
                )
            logged = len(self._logged.passes[pair.instruction, pair.delegate_id])
            loop_pass = min(over[-1], logged - 1)
            found.setdefault(pair.element, self._logged.values(pair)[loop_pass])
        if None in found:
            return found[None]
        last = max(index for index in found if index is not None)
        return [found.get(index) for index in range(last + 1)]

    def value_in_pass(self, node: str, loop_pass: int) -> Any:
        """Value that the device logged for a node in a loop pass, at any stop."""
        self.require_values()
        # A node inside a delegate has a separate stop, before the call that gives its value.
        pairs = self._matching.by_node.get(node, ())
        sources = {(pair.instruction, pair.delegate_id) for pair in pairs}
        passes = [
            stop.position
            for stop in self.stops
            if stop.loop_pass == loop_pass and (stop.instruction, stop.delegate_id) in sources
        ]
        return self.value_of(node, passes[-1] if passes else len(self.stops) - 1)

    def matched(self) -> Matching:
        """Match logged values to nodes. Raises `MissingDataError` without values."""
        self.require_values()
        return self._matching

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        stop = self.stops[position]
        if stop.instruction is None or not self._has_values:
            return {}
        found = self._matching.by_instruction.get(stop.instruction, ())
        return {pair.output: pair for pair in found if pair.delegate_id == stop.delegate_id}

    def nodes_at(self, position: int) -> Sequence[str]:
        """Return the nodes with values at a stop. Raises `MissingDataError` without values."""
        stop = self.stops[position]
        pairs = self.matched().by_instruction.get(stop.instruction or 0, ())
        return list(dict.fromkeys(p.node for p in pairs if p.delegate_id == stop.delegate_id))

    def given_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Any:
        """Return the inputs of the run: from `given`, from the bundled case that ran, saved with
        the run, or the record's."""
        if len(given) > 1:
            return given[len(self._earlier_of(given))]
        return self._inputs(given, bundle).of(self.chosen)

    def earlier_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Sequence[Any]:
        """Inputs of the runs before that followed the same load of the method."""
        if len(given) > 1:
            return given[: len(self._earlier_of(given))]
        before = self._inputs(given, bundle).before(self.chosen)
        self._news += [doubt for doubt in before.doubts if before.runs]
        others = sorted({one.method for one in before.runs} - {self.method})
        if others:
            self._news.append(
                f"{self.method} has buffers that {' and '.join(others)} wrote to before. "
                "The reference here does not include that; etscope numerics does"
            )
        return [one.inputs for one in before.runs if one.method == self.method]

    def _inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> RunInputs:
        from etscope.diagnosis.reference import RunInputs

        return RunInputs(self._traced, given[0] if given else None, bundle)

    def _earlier_of(self, given: Sequence[Any]) -> Sequence[MethodRun]:
        """The runs before this one; `UsageError` if it has no set of the user's inputs."""
        earlier = self._traced.sequences.before(self.chosen)
        if len(earlier) >= len(given):
            raise UsageError(
                f"run {self.run} is call {len(earlier)}, but there are inputs for only "
                f"{len(given)}",
                hint="give a set for each call: --inputs FILE, repeatable",
            )
        return earlier

    @property
    def next_run(self) -> int | None:
        for runs in self._traced.sequences.runs:
            later = [one.number for one in runs if one.number > self.run]
            if later and any(one.number == self.run for one in runs):
                return later[0]
        return None

    def go_on(self) -> None:
        if (number := self.next_run) is not None:
            self.choose(number)

    def save(self) -> int:
        return self.run

    def restore(self, saved: Any) -> None:
        self.choose(saved)

    def take_news(self) -> list[str]:
        """Doubts about the inputs of the runs before, each returned once."""
        news, self._news = self._news, []
        return news

    def require_values(self) -> None:
        """Raise `MissingDataError` if the run has no values."""
        if not self.chosen.has_values:
            hint = self._load_beside() or RECORD_HINT
            raise MissingDataError("this run logged no values", hint=hint)
        if self.trace.debug_buffer is None:
            raise MissingDataError(
                "the values are in the debug buffer, which is not loaded",
                hint=self._load_beside() or "give it: core RUN.etdp BUFFER.bin",
            )

    def _load_beside(self) -> str:
        """Return the command that loads the values kept next to the dump; "" without any."""
        dump = Path(self.trace.dump.path or "")
        run = RunFiles(dump=dump).with_saved()
        logged, buffer = run.logged
        if run.facts is None or buffer is None:
            return ""
        return (
            "the values are in files next to the dump; load them with: core "
            f"{shlex.join([str(logged), str(buffer)])}"
        )

    @property
    def _has_values(self) -> bool:
        return self.trace.debug_buffer is not None and self.chosen.has_values

    @cached_property
    def _logged(self) -> LoggedRun:
        return self._traced.logged(self.chosen)

    @cached_property
    def _matching(self) -> Matching:
        return self._traced.match(self._logged)

    @property
    def _traced(self) -> TracedMethod:
        return TracedMethod(self.trace, self.method)

    def _method_of(self, block: Block) -> str:
        if id(block) not in self._methods:
            self._methods[id(block)] = method_by_values(self.trace, block) or ""
        return self._methods[id(block)]

    def _stops(self) -> Iterator[Stop]:
        block, run = self.chosen.block, self.chosen.position
        attribution = self.trace.attribution(block, self.method or None)
        record = self.trace.record
        has_graph = record is not None and bool(record.edge_methods)
        linked = edge_graph(self.trace, self.method) if has_graph else None
        paths = {} if linked is None else linked.graph.path_of
        passes: dict[tuple[int | None, int | str | None], int] = {}
        known: dict[tuple[int | None, int | str | None], Stop] = {}
        for position, events in enumerate(_events_by_call(block)):
            keys = [block.keys[index] for index in events]
            operator = (keys[0].instruction, keys[0].delegate_id)
            loop_pass = passes.get(operator, 0)
            passes[operator] = loop_pass + 1
            if operator not in known:
                named = [key for key in keys if key.name.startswith(KERNEL_PREFIX)]
                key = (named or [key for key in keys if key.name] or keys)[0]
                if keys[0].delegate_id is not None:
                    kind = "delegated"
                else:
                    kind = next((_KINDS[k.name] for k in keys if k.name in _KINDS), "kernel")
                known[operator] = stop_of_event(key, kind, attribution(key), linked, paths)
            # The longest event is the call, which spans all others that were logged for it.
            ticks = [
                int(block.ticks[index, run])
                for index in events
                if block.keys[index].profile is not None
            ]
            yield replace(
                known[operator],
                position=position,
                loop_pass=loop_pass,
                ticks=max(ticks, default=None),
            )


def _events_by_call(block: Block) -> list[list[int]]:
    """Group the events of a run by call, in the order they were logged; as indices into
    `block.keys`.

    Events are logged when they end: the operators inside a delegate before its call.
    """
    logged = [
        (key.profile if key.profile is not None else min(key.debug), index)
        for index, key in enumerate(block.keys)
        if key.instruction is not None
    ]
    groups: list[list[int]] = []
    before: EventKey | None = None
    for _, index in sorted(logged):
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
