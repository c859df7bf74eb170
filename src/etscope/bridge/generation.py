"""The loop of a generation on the runtime of the `executorch` package, in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

from etscope.analysis.generation.plan import (
    NO_LOGITS,
    OF_ALL,
    GenerationResult,
    GenerationTask,
    PlannedCall,
    choose,
)
from etscope.bridge.tensors import numpy_from_tensor, tensor_from_numpy
from etscope.errors import RuntimeFailure
from etscope.formats.generation import CONTEXT, END_TOKEN, INTERRUPTED, LENGTH
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import TensorValue

# Executes a method on tensors and returns its outputs, which may be views of its memory.
Execute = Callable[[str, list[Any]], Sequence[Any]]


def generate(
    task: GenerationTask, program: Program, execute: Execute, *, keep_outputs: bool
) -> GenerationResult:
    """Run a generation task and return its record. SIGINT ends it after the current call.

    keep_outputs: copy the outputs that later calls take, as other methods overwrite them.
    """
    loop = _Loop(task, execute, _Tensors(task, program), keep_outputs)
    with _interruptible() as interrupted:
        loop.interrupted = interrupted
        for number in range(task.warmup + task.runs):
            loop.generate(number)
            if interrupted.is_set():
                break
    return loop.result()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Make SIGINT set an event in place of raising `KeyboardInterrupt`."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


class _Tensors:
    """The tensors of the inputs, made once; the template's change in place."""

    def __init__(self, task: GenerationTask, program: Program) -> None:
        self.given = [tensor_from_numpy(array) for array in task.given]
        self._program = program

    def of(self, call: PlannedCall) -> tuple[list[Any], _Places]:
        """Return the inputs of a call, with None for another method's outputs, and the places in
        them that change."""
        method = self._program.method(call.method)
        inputs: list[Any] = []
        places = _Places()
        for index, source in enumerate(call.inputs):
            word, _, rest = source.partition(" ")
            value = method.values[method.inputs[index]]
            if word == "given":
                inputs.append(self.given[int(rest)])
            elif word == "output":
                output, _, name = rest.partition(" of ")
                places.outputs.append((index, name, int(output)))
                inputs.append(None)
            else:
                assert isinstance(value, TensorValue)
                array = np.zeros(call.length, np.dtype(value.scalar_type.torch_name))
                if word == "tokens":
                    array[: len(call.tokens)] = call.tokens
                    places.tokens = array
                else:
                    array = array[:1] if word == "position" else array
                    array[:] = np.arange(len(array)) + max(call.position, 0)
                    places.positions = array
                    places.offsets = np.arange(len(array))
                tensor = torch.from_numpy(array)
                inputs.append(tensor.reshape(1, -1) if word == "tokens" else tensor)
        return inputs, places


@dataclass
class _Places:
    """Arrays over the memory of inputs, and inputs that are outputs: (input, method, output)."""

    tokens: Any = None
    positions: Any = None
    offsets: Any = None
    outputs: list[tuple[int, str, int]] = field(default_factory=list)


@dataclass
class _Loop:
    task: GenerationTask
    execute: Execute
    tensors: _Tensors
    keep_outputs: bool
    interrupted: threading.Event = field(default_factory=threading.Event)
    outputs: dict[str, Sequence[Any]] = field(default_factory=dict)
    tokens: list[list[int]] = field(default_factory=list)
    stopped_by: list[str] = field(default_factory=list)
    run: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    took: list[int] = field(default_factory=list)
    sampling: list[int] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    row_positions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        calls = (*self.task.prompt, *self.task.decode)
        sources = {source.partition(" of ")[2] for call in calls for source in call.inputs}
        self._read = sources - {""}
        self._logits_of = {self.task.prompt[-1].method, self.task.decode[-1].method}

    def generate(self, number: int) -> None:
        """Run one generation, which begins at position 0."""
        task = self.task
        prompt = [(call, *self.tensors.of(call)) for call in task.prompt]
        template = [(call, *self.tensors.of(call)) for call in task.decode]
        context = list(task.context)
        chosen: list[int] = []
        self.tokens.append(chosen)
        self.rows.clear()
        self.row_positions.clear()
        begin = perf_counter_ns()
        for call, inputs, places in prompt:
            self._call(call, inputs, places, number, begin)
            self._keep_rows(call, call.position, call.count)
            if self.interrupted.is_set():
                self.stopped_by.append(INTERRUPTED)
                return
        last, count = task.prompt[-1], task.prompt[-1].count
        while True:
            sampled = perf_counter_ns()
            token = self._choose(last, count, len(chosen))
            self.sampling[-1] = perf_counter_ns() - sampled
            chosen.append(token)
            context.append(token)
            reason = self._reason_to_stop(token, len(chosen), len(context) - 1)
            if reason is not None:
                self.stopped_by.append(reason)
                return
            for call, inputs, places in template:
                inputs = self._next(call, inputs, places, context)
                self._call(call, inputs, places, number, begin)
            last = task.decode[-1]
            count = len(context) if last.whole else 1
            self._keep_rows(last, 0 if last.whole else len(context) - 1, count)

    def _reason_to_stop(self, token: int, chosen: int, position: int) -> str | None:
        """Return why the token at a position is the last one; None if it is not."""
        task = self.task
        if self.interrupted.is_set():
            return INTERRUPTED
        if task.forced is None and token in task.end_tokens:
            return END_TOKEN
        if chosen >= task.max_new_tokens:
            return LENGTH
        full = task.last_position is not None and position > task.last_position
        return CONTEXT if full else None

    def _next(
        self, call: PlannedCall, inputs: list[Any], places: _Places, context: list[int]
    ) -> list[Any]:
        """Fill in the latest token, and return the inputs."""
        if call.whole and call.length == 0:
            whole = torch.tensor([context], dtype=inputs[0].dtype)
            return [whole]
        if call.whole:
            places.tokens[: len(context)] = context
        elif places.tokens is not None:
            places.tokens[0] = context[-1]
        if places.positions is not None:
            np.add(places.offsets, len(context) - 1, out=places.positions)
        return inputs

    def _call(
        self, call: PlannedCall, inputs: list[Any], places: _Places, number: int, begin: int
    ) -> None:
        for index, method, output in places.outputs:
            inputs[index] = self.outputs[method][output]
        started = perf_counter_ns()
        outputs = self.execute(call.method, inputs)
        ended = perf_counter_ns()
        if self.keep_outputs and call.method in self._read:
            outputs = [one.clone() if isinstance(one, torch.Tensor) else one for one in outputs]
        self.outputs[call.method] = outputs
        self.run.append(number)
        self.start.append(started - begin)
        self.took.append(ended - started)
        self.sampling.append(0)

    def _logits(self, call: PlannedCall) -> Any:
        """Return the logits of the latest call of a method: [rows, vocabulary]."""
        found = self.outputs[call.method][self.task.logits_output]
        if not isinstance(found, torch.Tensor) or found.dim() < 2:
            raise RuntimeFailure(f"output {self.task.logits_output} of {call.method} is not logits")
        return found.reshape(-1, found.shape[-1])

    def _choose(self, call: PlannedCall, count: int, step: int) -> int:
        rows = self._logits(call)
        row = rows[min(count, len(rows)) - 1]
        if self.task.logits != NO_LOGITS and self.task.logits != OF_ALL:
            self.rows.append(row.float().numpy().copy())
            self.row_positions.append(len(self.task.context) + step - 1)
        if self.task.forced is not None:
            return self.task.forced[step]
        array = row.numpy() if row.dtype == torch.float32 else numpy_from_tensor(row.float())
        return choose(array, self.task.sampler, step)

    def _keep_rows(self, call: PlannedCall, position: int, count: int) -> None:
        """Keep the logits of a call that gives them, if all are to be kept."""
        if self.task.logits != OF_ALL or call.method not in self._logits_of:
            return
        rows = self._logits(call)
        kept = rows[:count] if len(rows) >= count else rows[-1:]
        first = position + count - len(kept)
        known = set(self.row_positions)  # a method without a cache gives them all again
        for offset, row in enumerate(kept):
            if first + offset not in known:
                self.rows.append(row.float().numpy().copy())
                self.row_positions.append(first + offset)

    def result(self) -> GenerationResult:
        """Return the record of the task."""
        columns = (self.run, self.start, self.took, self.sampling)
        run, start, took, sampling = (np.array(column, np.int64) for column in columns)
        return GenerationResult(
            tokens=tuple(np.array(one, np.int64) for one in self.tokens),
            stopped_by=tuple(self.stopped_by),
            run=run,
            start_ns=start,
            execute_ns=took,
            sampling_ns=sampling,
            logits=np.array(self.rows, np.float32) if self.rows else None,
            logits_positions=np.array(self.row_positions, np.int64) if self.rows else None,
        )
