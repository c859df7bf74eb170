"""A language model on a text: whether it still says what its reference says, at each token.

A long text is cut into windows of the context. Each token but the first of the text is predicted
once: the first window predicts all of its tokens, each later one the next `stride` of them, from as
many tokens before it as the context has room for. With the stride of a whole context these are the
disjoint windows of lm-evaluation-harness (`loglikelihood_rolling`), with a shorter one the sliding
windows of transformers' page on perplexity. Perplexity is over all of the predicted tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etscope.analysis.generation.layout import Layout, layout_of
from etscope.analysis.generation.plan import (
    OF_ALL,
    GenerationResult,
    GenerationTask,
    calls_of,
    plan_prompt,
)
from etscope.analysis.graphs.linked_graph import float_graph, short_name
from etscope.analysis.memory.plan import debug_buffer_bytes
from etscope.analysis.program.correlate import graph_name
from etscope.diagnosis.reference import whole_program
from etscope.errors import (
    EtscopeError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    NumericGapError,
    UsageError,
)
from etscope.etrecord import as_record
from etscope.evaluation._token_results import (
    LogitsSource,
    ModuleLogits,
    Progress,
    Rows,
    TokenEvaluation,
    compared,
    other_vocabulary,
    windows,
)
from etscope.formats.bytes.files import PathLike
from etscope.formats.etrecord.reader import EDGE, EXPORTED, FLOAT, RecordView
from etscope.formats.identify import ETRECORD, identify
from etscope.run import Place, generate
from etscope.run.execute import AUTO, SharedOptions, execute_all, library_paths
from etscope.run.generation.prompt import (
    Tokenizer,
    check_tokenizer,
    check_tokens,
    open_tokenizer,
    tokens_from,
)
from etscope.run.job import INTERMEDIATE_OUTPUTS
from etscope.run.program import Opened, open_program
from etscope.support.optional import require
from etscope.support.options import takes_fields

_DEFAULT_CONTEXT = 2048  # of a program that does not say what it takes: as in LLaMA
# Up to this size, the values of all calls up to the examined one are kept: they give the state of
# the cache, which then is not computed again.
_MOST_BYTES = 1 << 30
_MOST_TEXT = 256 << 20  # bytes of a file: its tokens and logits are in memory
_IDS = re.compile(r"[\s\d,\[\]]*")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluateTokensOptions(SharedOptions):
    """Options of `evaluate_tokens()`.

    reference: another program of the same vocabulary (such as the float32 export), an ETRecord
        with graphs that run in PyTorch, or a `torch.nn.Module` that takes tokens, int64 [1, n], and
        returns logits [1, n, vocabulary], as transformers' do. By default the program's own record.
    reference_graph: the graph of the record, "exported_program" or "edge_dialect_exported_program";
        by default the graph before quantization if the record has it, else the exported one.
    tokenizer: a tokenizer.json, for tokens that are a file of text.
    context: tokens that a window gives to the models at most; by default what the program takes.
        stride: tokens that each window but the first predicts; by default the context.
    prompt_length: tokens at the beginning of each window that the program gets in one call, the
        others follow one by one; by default the whole window if the program gives logits of each
        token of a prompt, else one.
    save: a folder to record the call in, with its values, where the program first takes another
        token: what `etscope numerics FOLDER --calls N` looks at.
    data, libraries, threads, runner, isolate, timeout, verify: as for `etscope.run.run`; the
        timeout is for each window.
    place: the machine that the program runs on; a reference always runs on this one.
    progress: called with the number of windows that are done, and how many there are.
    """

    reference: Any = None
    reference_graph: str | None = None
    tokenizer: PathLike | None = None
    context: int | None = None
    stride: int | None = None
    prompt_length: int | None = None
    save: PathLike | None = None
    verify: bool = True
    place: Place | None = None
    progress: Progress | None = None

    def checked(self) -> EvaluateTokensOptions:
        """Return the options. Raises `UsageError` for numbers below 1, `MissingFileError` for
        libraries that do not exist."""
        for name in ("prompt_length", "context", "stride"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise UsageError(f"{name} must be at least 1, not {given}")
        library_paths(self.libraries)
        return self


def teacher_task(layout: Layout, tokens: Sequence[int], prompt: int | None) -> GenerationTask:
    """Plan to give tokens to a language model, whatever it would choose itself.

    prompt: how many are given at once, at the beginning; by default all but the last one if the
    method gives logits of each, else one. The last token is never given: nothing comes after it.
    """
    if layout.source is not None:
        raise UsageError(
            f"{layout.decode.method} reads the output of {layout.source.method}: it is not a "
            "language model of tokens alone",
            hint="etscope generate --inputs … -X force_tokens=… -X logits_out=… keeps the "
            "program's logits",
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


def graph_logits(opened: Opened, record: RecordView, graph: str | None) -> GraphLogits:
    """Return the logits of the graphs of a record in PyTorch.

    graph: the member of the record, "exported_program" or "edge_dialect_exported_program"; by
    default the float graphs that a quantized model was made of where the record has them, else
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


@dataclass(frozen=True, eq=False)
class ProgramLogits:
    """Logits from running a program on the runtime. name: the name of the program's file."""

    opened: Opened
    name: str
    layout: Layout
    options: EvaluateTokensOptions

    @property
    def context(self) -> int | None:
        return self.layout.context_length

    def rows(self, tokens: Sequence[int]) -> Rows:
        options, program = self.options, self.opened.program
        task = teacher_task(self.layout, tokens, options.prompt_length)
        job = replace(options.job(), generation=task)
        execution = options.execution([job], program, options.place)
        executed = execute_all({"logits": job}, self.opened, execution)
        executed.folder.remove()
        result = executed.passes["logits"].result.generation
        assert result is not None
        return rows_of(self.layout, task, result, self.name)

    def reference(self) -> LogitsSource:
        """Open the reference. Raises as `evaluate_tokens`."""
        given, graph = self.options.reference, self.options.reference_graph
        if given is None:
            record = self.opened.record
            if record is None:
                raise NumericGapError(
                    "logits are compared with a reference, and there is none",
                    hint="give another program or an ETRecord (reference=, --reference), or the "
                    "program's record (etrecord=, --etrecord)",
                )
            return graph_logits(self.opened, record, graph)
        is_record = hasattr(given, "graph_names") or hasattr(given, "edge_dialect_program")
        if isinstance(given, (str, os.PathLike)):
            is_record = identify(os.fspath(given)) == ETRECORD
        if is_record:
            record = as_record(given)
            opened = self.opened if record.program_view() is None else open_program(given)
            return graph_logits(opened, record, graph)
        if graph is not None:
            raise UsageError("reference_graph needs an ETRecord as the reference")
        if callable(given):
            require("torch", wanted_by="a reference in PyTorch")
            title = getattr(given, "__name__", None) or type(given).__name__
            return ModuleLogits(given, f"{title}, in PyTorch")
        opened = open_program(given)
        opened.check_weights(None)
        try:
            layout = layout_of(opened.program)
        except MismatchError as error:
            raise MismatchError(f"the reference: {error.message}", hint=error.hint) from error
        if layout.vocabulary_size != self.layout.vocabulary_size:
            raise other_vocabulary(layout.vocabulary_size, self.layout.vocabulary_size)
        # A reference always runs here, and takes each text as its own methods do.
        runner = self.options.runner if self.options.place is None else AUTO
        options = replace(self.options, prompt_length=None, data=None, runner=runner, place=None)
        return ProgramLogits(opened, _name_of(opened.given, "the reference"), layout, options)

    def context_and_stride(self, other: LogitsSource) -> tuple[int, int]:
        """Return the context and the stride that both can use: how many tokens a window has, and
        how many of them are predicted.
        """
        known = [one.context for one in (self, other) if one.context is not None]
        most = min(known, default=None)
        size = self.options.context or most or _DEFAULT_CONTEXT
        if most is not None and size > most:
            raise MismatchError(
                f"a context of {size:,} tokens does not fit the cache of {most:,}",
                hint="leave out -X context (context=), or export the model with a larger cache",
            )
        step = self.options.stride or size
        if step > size:
            raise UsageError(f"a stride of {step:,} tokens is more than the context of {size:,}")
        return size, step

    def record_call(
        self, evaluation: TokenEvaluation, ids: Sequence[int], at: int, folder: PathLike
    ) -> Path:
        """Record the call of the token at row `at`, with the calls before it and its values."""
        places, options = evaluation.places, self.options
        window = evaluation.windows[int(places.window[at])]
        given = ids[window.begin : window.end]
        prompt = len(teacher_task(self.layout, given, options.prompt_length).context)
        # The last forced token is not given to the program any more.
        forced = given[prompt : max(prompt + 1, int(places.position[at]) + 2)]
        call = int(places.call[at])
        size = sum(debug_buffer_bytes(self.opened.program, name) for name in self.layout.all_rows)
        first = 0 if size * (call + 1) <= _MOST_BYTES else call
        try:
            with generate(
                self.opened,
                tokens=given[:prompt],
                force_tokens=forced,
                iterations=1,
                warmup=0,
                debug_level=INTERMEDIATE_OUTPUTS,
                # All calls, which the Python runner can record too: the last of them is this one.
                values_at=None if first == 0 else (first, call),
                **options.shared,
                verify=options.verify,
            ) as run:
                run.save(folder, programs=False)
        except EtscopeError as error:
            error.message = f"recording call {call}: {error.message}"
            raise
        return Path(folder)


@takes_fields(EvaluateTokensOptions)
def evaluate_tokens(
    program: Any,
    tokens: Any,
    *,
    etrecord: Any = None,
    options: EvaluateTokensOptions = EvaluateTokensOptions(),
    **changes: Any,
) -> TokenEvaluation:
    """Give a text to the program of a language model and to a reference, and compare their logits
    at each token (teacher forcing).

    program: as for `etscope.run.generate`.
    tokens: ids in a sequence, in text ("1,5,9"), or in a file (text, .npy, .npz with `tokens`);
        with `tokenizer`, a file of text.
    etrecord: the program's record, if it does not come with the program.
    options, changes: fields of `EvaluateTokensOptions`, as `stride=64`; changes go before
        `options`.

    Raises `UsageError` for less than two tokens and a program that is not a language model,
    `MismatchError` for tokens that are not in the vocabulary, a reference of another one and a
    context that the program does not have, and what `etscope.run.generate` raises.
    """
    options = replace(options, **changes).checked()
    opened = open_program(program, etrecord)
    if options.verify:
        opened.check_record()
    opened.check_weights(options.data)
    layout = layout_of(opened.program)
    tokenizer = None if options.tokenizer is None else open_tokenizer(options.tokenizer)
    if tokenizer is not None and options.verify:
        check_tokenizer(tokenizer, layout)
    ids = read_tokens(tokens, tokenizer)
    if len(ids) < 2:
        raise UsageError(
            f"a text of {len(ids)} token{'s' if len(ids) != 1 else ''} has no token to predict",
            hint="give at least two tokens: the first one is not predicted",
        )
    check_tokens(ids, layout, "the text")
    own = ProgramLogits(opened, _name_of(opened.given, "the program"), layout, options)
    other = own.reference()
    size, step = own.context_and_stride(other)
    found = compared(own, other, ids, list(windows(len(ids), size, step)), options.progress)
    evaluation = TokenEvaluation(
        program=own.name,
        reference=other.name,
        context=size,
        stride=step,
        text_tokens=len(ids),
        tokenizer=tokenizer,
        record=_record_name(opened, etrecord),
        has_float=opened.record is not None
        and float_graph(opened.record, layout.decode.method) is not None,
        **found,
    )
    at = evaluation.divergence
    if options.save is None or at is None:
        return evaluation
    return replace(evaluation, saved=own.record_call(evaluation, ids, at, options.save))


def _name_of(given: str | None, default: str) -> str:
    return default if given is None else Path(given).name


def _record_name(opened: Opened, etrecord: Any) -> str | None:
    """Return the file of the program's record, for a command; None if it is not in one."""
    if isinstance(etrecord, (str, os.PathLike)):
        return os.fspath(etrecord)
    return opened.given if etrecord is None and opened.record is not None else None


def read_tokens(given: Any, tokenizer: Tokenizer | None = None) -> list[int]:
    """Return the ids of a text: see `evaluate_tokens`. A file with only ids counts as ids, even
    with a tokenizer.

    Raises `UsageError` for a file of text without a tokenizer.
    """
    if tokenizer is None or not isinstance(given, (str, os.PathLike)):
        return tokens_from(given)
    path = Path(given)
    if path.suffix in (".npy", ".npz") or _IDS.fullmatch(os.fspath(given)):
        return tokens_from(given)
    if not path.is_file():
        raise MissingFileError(f"no file of text: {path}", hint="give a file, or ids: 1,5,9")
    if path.stat().st_size > _MOST_TEXT:
        raise UsageError(f"{path}: more than {_MOST_TEXT:,} bytes of text")
    content = path.read_text("utf-8", "replace")
    return tokens_from(path) if _IDS.fullmatch(content) else tokenizer.ids(content)
