"""Logits of a language model for given tokens: of a program on the runtime, of the graph of a
record, or of a module in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.layout import Layout, layout_of
from etscope.analysis.generation.plan import (
    OF_ALL,
    GenerationResult,
    GenerationTask,
    calls_of,
    plan_prompt,
)
from etscope.analysis.graphs.graph_names import float_graph, short_name
from etscope.analysis.program.correlate import graph_name
from etscope.diagnosis.reference import whole_program
from etscope.errors import MissingDataError, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, FLOAT, RecordView
from etscope.formats.generation import GenerationCalls
from etscope.run.program import Opened
from etscope.support.optional import require

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Logits [rows, vocabulary], and the position of the token that each is computed from, int64
    [rows]: it predicts the next one. calls: those that made them; None for a module."""

    logits: npt.NDArray[Any]
    positions: Ints
    calls: GenerationCalls | None = None
    logits_methods: tuple[str, ...] = ()

    def call_of(self, position: int) -> int | None:
        """Return the number of the first call that gave the logits of a position."""
        calls = self.calls
        if calls is None:
            return None
        of_logits = np.isin(np.array(calls.methods)[calls.method], self.logits_methods)
        mine = (calls.position <= position) & (position < calls.position + calls.tokens)
        found = np.flatnonzero(of_logits & mine)
        return int(found[0]) if len(found) else None


class LogitsSource(Protocol):
    """A model that gives logits for the tokens of a window."""

    @property
    def name(self) -> str:
        """The name for readers."""

    @property
    def context(self) -> int | None:
        """The most tokens that it takes; None if that is not known."""

    def rows(self, tokens: Sequence[int]) -> Rows:
        """Return the logits that predict all tokens but the first, each from those before it."""


def teacher_task(layout: Layout, tokens: Sequence[int], prompt: int | None) -> GenerationTask:
    """Plan to give tokens to a language model, whatever it would choose itself.

    prompt: how many are given at once, at the beginning; by default all but the last one if the
    method gives logits of each, else one. The last token is never given: nothing comes after it.
    """
    if layout.source is not None:
        raise UsageError(
            f"{layout.decode.method} reads the output of {layout.source.method}: it is not a "
            "language model of tokens alone",
            hint="etscope generate --inputs … -X force_tokens=… -X logits_out=… keeps its logits",
        )
    most = len(tokens) - 1
    if prompt is None:
        prompt = most if layout.all_rows[layout.prefill.method] else 1
    prompt = min(prompt, most)
    fed = plan_prompt(layout, [tuple(tokens[:prompt])], None)
    forced = tuple(tokens[prompt:])
    return GenerationTask(
        prompt=fed.prompt,
        decode=fed.decode,
        context=fed.context,
        logits_output=layout.logits_output,
        max_new_tokens=len(forced),
        last_position=layout.last_position,
        forced=forced,
        runs=1,
        logits=OF_ALL,
    )


def rows_of(layout: Layout, task: GenerationTask, result: GenerationResult, name: str) -> Rows:
    if result.is_interrupted:
        raise KeyboardInterrupt
    if result.logits is None or result.logits_positions is None:
        raise MissingDataError(f"{name} gave no logits")
    methods = (layout.prefill.method, layout.decode.method)
    return Rows(result.logits, result.logits_positions, calls_of(task, result), methods)


@dataclass(frozen=True, eq=False)
class GraphLogits:
    """The graphs of a record, in PyTorch. opened: the record's program, which says what they take.
    kind: the name of the graphs without the method's."""

    opened: Opened
    record: RecordView
    kind: str
    layout: Layout
    _graphs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{short_name(self.kind)} of the record, in PyTorch"

    @property
    def context(self) -> int | None:
        return self.layout.context_length

    def rows(self, tokens: Sequence[int]) -> Rows:
        from etscope.bridge.reference.language_model import graph_result

        task = teacher_task(self.layout, tokens, None)
        for method in task.methods:
            if method not in self._graphs:
                name = _graph_of(self.record, self.kind, method)
                self._graphs[method] = whole_program(self.record, name)
        result = graph_result(task, self.opened.program, self._graphs)
        return rows_of(self.layout, task, result, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class ModuleLogits:
    """A module in PyTorch: see `bridge.reference.language_model.module_logits`."""

    module: Callable[..., Any]
    name: str
    context: int | None = None

    def rows(self, tokens: Sequence[int]) -> Rows:
        from etscope.bridge.reference.language_model import module_logits

        given = np.asarray(tokens[:-1], np.int64)
        return Rows(module_logits(self.module, given), np.arange(len(given)))


def graph_logits(opened: Opened, record: RecordView, graph: str | None) -> GraphLogits:
    """Return the logits of the graphs of a record in PyTorch.

    graph: the member of the record, "exported_program" or "edge_dialect_exported_program"; by
    default the float graphs that a quantised model was made of where the record has them, else
    the exported program.

    Raises `NumericGapError` for graphs that the record does not have.
    """
    for package in ("torch", "executorch"):
        require(package, wanted_by="the reference of an evaluation")
    layout = layout_of(opened.program)
    methods = {layout.prefill.method, layout.decode.method}
    kind = graph
    if kind is None and all(float_graph(record, method) is not None for method in methods):
        kind = FLOAT
    elif kind is None:
        try:
            has_exported = all(graph_name(record, EXPORTED, method) for method in methods)
        except MissingDataError:
            has_exported = False
        kind = EXPORTED if has_exported else EDGE
    for method in sorted(methods):
        _graph_of(record, kind, method)
    return GraphLogits(opened, record, kind, layout)


def _graph_of(record: RecordView, kind: str, method: str) -> str:
    try:
        return graph_name(record, kind, method)
    except MissingDataError as error:
        known = ", ".join(map(short_name, record.graph_names)) or "none"
        raise NumericGapError(
            f"the record has no graph {short_name(kind)!r} of the method {method!r}",
            hint=f"its graphs are: {known}",
        ) from error
