"""Compare samples of a dataset, on the runtime or in a dump, with the reference one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import debug_buffer_bytes
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.diagnose import DEFAULT_METRIC
from etscope.analysis.numerics.multi_run_tests import AddedRuns
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.numerics.runs import (
    NO_RECORD_HINT,
    RECORD_HINT,
    MethodRun,
    TracedMethod,
    check_values,
    method_that_ran,
    runs_of,
)
from etscope.analysis.profile.trace import Trace
from etscope.diagnosis.numerics import PreparedNumerics
from etscope.errors import (
    EtscopeError,
    FormatError,
    MismatchError,
    MissingDataError,
    MissingDependencyError,
    MissingFileError,
    NumericGapError,
    RuntimeFailure,
    UsageError,
)
from etscope.evaluation._classification import (
    Labels,
    Prediction,
    TaskCounts,
    predictions,
    read_labels,
)
from etscope.evaluation._dataset import Dataset, Sample, open_dataset
from etscope.evaluation._results import (
    DUMP,
    FRESH,
    SEQUENCE,
    SKIPPED,
    Evaluation,
    SampleResult,
    Statistics,
    sample_result,
)
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program.pte_schema import TensorValue
from etscope.model.exported_graph import record_input_names
from etscope.run.execute import Folder, SharedOptions, execute
from etscope.run.inputs import method_inputs
from etscope.run.job import INTERMEDIATE_OUTPUTS, JobCall
from etscope.run.program import Opened, open_program
from etscope.support.optional import require
from etscope.support.options import takes_fields

STATES = (FRESH, SEQUENCE)

Progress = Callable[[int, int | None], None]

DEFAULT_TOP = 5  # with labels: the top-5 accuracy of ImageNet papers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluateOptions(SharedOptions):
    """Options of `evaluate()` and `evaluate_dump()`.

    method: "forward" by default, or the only one.
    metric, tolerance, reference_graph: as for `Inspector.diagnose_numerics`.
    samples: the largest number of samples to use; for a dump, the number of runs to compare.
    labels: the right classes; see `etscope.evaluation.read_labels`. top: compare the best class,
        and the K best; 5 by default if there are labels. output: the number of the program's output
        with the scores, [..., classes].
    keep_going: skip samples that cannot be run or compared. They are counted, and never a pass.
    progress: called after each sample with the number done, and the total (None: not known).
    state: for a model that keeps state: "fresh" starts each sample from the initial state;
        "sequence" continues from the state after the sample before, in one process, on both sides.
        It needs memory for all inputs, and disk space for all recorded values.
    data, libraries, threads, runner, isolate, timeout, verify: as for `etscope.run.run`; the
        timeout is for each process.
    """

    method: str | None = None
    metric: str | Metric = DEFAULT_METRIC
    tolerance: float | None = None
    reference_graph: str | None = None
    samples: int | None = None
    labels: Any = None
    top: int | None = None
    output: int = 0
    keep_going: bool = False
    progress: Progress | None = None
    state: str = FRESH
    verify: bool = True

    def checked(self) -> EvaluateOptions:
        """Return the options with the labels read and the default of `top`.

        Raises `UsageError` for values that are not allowed.
        """
        if self.top is not None and self.top < 1:
            raise UsageError(f"the best K classes are at least 1, not {self.top}")
        if self.output < 0:
            raise UsageError(f"output {self.output} does not exist: outputs are counted from 0")
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"at least one sample must be evaluated, not {self.samples}")
        if self.state not in STATES:
            raise UsageError(f"unknown state {self.state!r}", hint=f"it is {' or '.join(STATES)}")
        is_read = self.labels is None or isinstance(self.labels, Labels)
        return replace(
            self,
            labels=self.labels if is_read else read_labels(self.labels),
            top=DEFAULT_TOP if self.top is None and self.labels is not None else self.top,
        )

    @property
    def found_metric(self) -> Metric:
        """The metric of the name. Raises `UsageError` for an unknown one."""
        return find_metric(self.metric)

    def prepared(self, trace: Trace, method: str) -> PreparedNumerics:
        """Return the object that compares runs of a method with its reference."""
        return PreparedNumerics(
            trace,
            method,
            metric=self.found_metric,
            tolerance=self.tolerance,
            reference_graph=self.reference_graph,
        )


@takes_fields(EvaluateOptions)
def evaluate(
    program: Any,
    dataset: Any,
    *,
    etrecord: Any = None,
    options: EvaluateOptions = EvaluateOptions(),
    **changes: Any,
) -> Evaluation:
    """Run a program on each sample of a dataset on the ExecuTorch runtime, record its values, and
    diagnose each run against the reference.

    Samples are run in batches, each in a separate process; of a compared sample only numbers are
    kept.

    program: as for `etscope.run.run`; an ETRecord that holds its program is enough.
    dataset: see `etscope.evaluation.open_dataset`.
    etrecord: the record, if the program does not come with it.
    options, changes: fields of `EvaluateOptions`, as `samples=100`; changes go before `options`.

    Raises what `run` and `diagnose_numerics` raise, with the sample's name in the message;
    `MissingDataError` if no sample could be compared.
    """
    options = replace(options, **changes).checked()
    opened = open_program(program, etrecord)
    if opened.record is None:
        raise NumericGapError("an evaluation needs an ETRecord", hint=NO_RECORD_HINT)
    if options.verify:
        opened.check_record()
    opened.check_weights(options.data)
    name = opened.method_name(options.method)
    for package in ("torch", "executorch"):  # before the first sample runs
        require(package, wanted_by="the reference of an evaluation")
    source = _opened_dataset(dataset, opened, name, options)
    collector = Collector(options, source.count)
    evaluator = _Evaluator(opened, name, options, collector)
    evaluator.run(source.samples)
    return collector.evaluation(evaluator.state)


@takes_fields(EvaluateOptions)
def evaluate_dump(
    trace: Trace,
    dataset: Any,
    *,
    run: int | None = None,
    options: EvaluateOptions = EvaluateOptions(),
    **changes: Any,
) -> Evaluation:
    """Do what `evaluate` does with runs that were recorded in a device's own dump; the samples of
    the dataset are the inputs of these runs, in order.

    trace: the dump's trace, with its record and debug buffer (`Inspector.trace`).
    run: compare only this one; the state of a model that keeps state still comes from the samples
        before it.
    options, changes: as for `evaluate`; options of the runtime have no effect.

    Raises `MismatchError` for a dataset with more or fewer samples than the method has runs, and
    what `evaluate` raises.
    """
    options = replace(options, **changes).checked()
    if trace.record is None:
        raise NumericGapError("an evaluation needs an ETRecord", hint=NO_RECORD_HINT)
    name = method_that_ran(trace, options.method)
    check_values(trace)
    program = trace.recorded_program
    if program is None:
        raise MissingDataError(
            "the inputs of the samples are not known: the record does not hold its program",
            hint="give the program that ran: program=, --program",
        )
    known = TracedMethod(trace, name).sequences
    runs = [(number, one) for number, part in enumerate(known.runs) for one in part]
    total = len(runs)
    if run is not None and not 0 <= run < total:
        raise UsageError(f"the method {name!r} ran {total} times: run {run} does not exist")
    source = _opened_dataset(dataset, trace.export, name, options)
    if source.count is not None and options.samples is None:
        _check_count(source.count, total, name)
    prepared = options.prepared(trace, name)
    collector = Collector(options, source.count if run is None else 1)
    count = collector.compare_runs(prepared, trace, runs, source.samples, run)
    if options.samples is None:
        more = next(source.samples, None) is not None
        _check_count(total + 1 if more else count, total, name)
    if not prepared.keeps_state:
        return collector.evaluation(None)
    return replace(collector.evaluation(DUMP), doubts=(known.doubt,) if known.doubt else ())


def _check_count(count: int, total: int, method: str) -> None:
    if count != total:
        raise MismatchError(
            f"the dump has {total} runs of the method {method!r}, and the dataset has "
            f"{'more' if count > total else count} samples",
            hint="each sample is the inputs of one run, in order; samples= (--samples) takes the "
            "first N of both",
        )


# -- Options and inputs.


def _opened_dataset(dataset: Any, export: Export, method: str, options: EvaluateOptions) -> Dataset:
    names = record_input_names(export.needed_record, method)

    def fit(given: Any) -> Sequence[Any]:
        return method_inputs(export.needed_program, method, given, seed=0, input_names=names)

    source = open_dataset(dataset, fit, options.samples)
    if options.labels is not None:
        options.labels.check(source.count, options.samples)
    return source


# -- Runs on the runtime, in batches.

# Of recorded values and inputs, and samples, of one process, which takes a second or two to start.
_BYTES, _SAMPLES = 128 << 20, 256


class _Evaluator:
    """Runs samples on the runtime in batches, and compares each."""

    def __init__(
        self, opened: Opened, method: str, options: EvaluateOptions, collector: Collector
    ) -> None:
        self._opened, self._method, self._options = opened, method, options
        self._job = options.job()
        self._collector = collector
        self._in_sequence = options.state == SEQUENCE
        # Load the method anew for each sample, so that none has the state of another.
        self._fresh = options.state == FRESH
        self._prepared: PreparedNumerics | None = None
        self._memory: Any = None

    @property
    def state(self) -> str | None:
        """The treatment of state, for a model that keeps some."""
        if self._prepared is None or not self._prepared.keeps_state:
            return None
        return self._options.state

    def run(self, samples: Iterable[Sample]) -> None:
        readable = self._readable(samples)
        size = None if self._in_sequence else self._batch_size()
        while batch := list(islice(readable, size)):
            self._run_batch(batch)
            del batch  # free the inputs before the next ones are read

    def _batch_size(self) -> int:
        """Number of samples that one process runs, by the size of their values."""
        program = self._opened.program
        method = program.method(self._method)
        inputs = (method.values[index] for index in method.inputs)
        size = debug_buffer_bytes(program, self._method) + sum(
            value.nbytes or 0 for value in inputs if isinstance(value, TensorValue)
        )
        return max(1, min(_SAMPLES, _BYTES // max(size, 1)))

    def _readable(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, Sequence[Any]]]:
        """Yield the samples with readable inputs that fit, with these inputs; skip the others."""
        for sample in samples:
            try:
                inputs = sample.inputs()
            except EtscopeError as error:
                self._collector.skip(sample, error)
                continue
            yield sample, inputs

    def _run_batch(self, batch: Sequence[tuple[Sample, Sequence[Any]]]) -> None:
        done = 0
        folder = Folder()  # the recorded values are deleted with it
        try:
            trace = self._ran([inputs for _, inputs in batch], folder.path)
            runs = runs_of(trace, self._method)
            if len(runs) != len(batch):
                raise MismatchError(
                    f"{len(batch)} samples were run, and the dump has {len(runs)} runs of the "
                    f"method {self._method!r} of the record",
                    hint="take the program and the ETRecord of one export",
                )
            prepared = self._prepared_for(trace)
            for (sample, inputs), run in zip(batch, runs, strict=True):
                memory = self._memory if self._in_sequence else prepared.memory()
                try:
                    self._collector.compare(prepared, trace, run, sample, inputs, memory)
                except EtscopeError as error:
                    is_needed = self._in_sequence and prepared.keeps_state
                    if is_needed or isinstance(error, RuntimeFailure):
                        raise
                    self._collector.skip(sample, error)
                done += 1
        except RuntimeFailure as error:
            if done or (self._in_sequence and len(batch) > 1):
                raise
            if len(batch) == 1:
                self._collector.skip(batch[0][0], error)
                return
            folder.remove()
            middle = len(batch) // 2  # to find those that fail
            for half in (batch[:middle], batch[middle:]):
                self._run_batch(half)
        finally:
            folder.remove()

    def _ran(self, samples: Sequence[Sequence[Any]], folder: Path) -> Trace:
        """Run samples, given by their flat inputs. Raises `RuntimeFailure` if one fails."""
        options, program = self._options, self._opened.program
        job = replace(
            self._job,
            program=self._opened.file(folder),
            calls=tuple(
                JobCall(self._method, tuple(inputs), fresh=self._fresh) for inputs in samples
            ),
            trace=True,
            debug_level=INTERMEDIATE_OUTPUTS,
        )
        execution = options.execution([job], program)
        values = folder / "values"
        values.mkdir()
        done = execute(job, values, execution, program)
        buffer = done.debug_buffer
        return Trace(
            dump=read_etdump(values / "run.etdp" if done.etdump is None else done.etdump),
            record=self._opened.record,
            debug_buffer=None if buffer is None else DebugBuffer.open(buffer),
            program=program,
            forced=not options.verify,
        )

    def _prepared_for(self, trace: Trace) -> PreparedNumerics:
        """The reference, prepared with the first trace."""
        if self._prepared is None:
            if not trace.forced:
                trace.verify()
            check_values(trace)
            self._prepared = self._options.prepared(trace, self._method)
            self._memory = self._prepared.memory()
            # A model without state need not be loaded anew for each sample.
            self._fresh = self._fresh and self._prepared.keeps_state
        return self._prepared


# -- Results of the samples so far.


class Collector:
    """Compares samples when they are done, and keeps their results."""

    def __init__(self, options: EvaluateOptions, count: int | None) -> None:
        self._options, self._metric, self._count = options, options.found_metric, count
        self._statistics, self._runs = Statistics(self._metric), AddedRuns()
        self._results: list[SampleResult] = []
        self._task = None if options.top is None else TaskCounts(options.top, options.output)
        self._first: Numerics | None = None

    def compare(
        self,
        prepared: PreparedNumerics,
        trace: Trace,
        run: MethodRun,
        sample: Sample,
        inputs: Sequence[Any],
        memory: Any,
    ) -> None:
        """Diagnose the run of a sample, and add the result. memory: the reference's state
        before.
        """
        if not run.has_values:
            raise NumericGapError("the sample's run has no values of operators", hint=RECORD_HINT)
        found = prepared.diagnose(trace, run, list(inputs), memory, runs=self._runs)
        device = run.outputs(trace)
        self.add(sample, found, memory.outputs, device, memory.float_outputs)

    def compare_runs(
        self,
        prepared: PreparedNumerics,
        trace: Trace,
        runs: Sequence[tuple[int, MethodRun]],
        samples: Iterator[Sample],
        only: int | None,
    ) -> int:
        """Compare runs of a dump, or only one of them, with the samples; return how many samples
        were used. runs: each run with the number of its sequence; within a sequence, each run
        starts with the state that the run before left.
        """
        memory, broken, last, count = prepared.memory(), False, -1, 0
        for position, ((sequence, run), sample) in enumerate(zip(runs, samples, strict=False)):
            count += 1
            if sequence != last or not prepared.keeps_state:
                memory, broken, last = prepared.memory(), False, sequence
            compare = only is None or position == only
            if not compare and not (prepared.keeps_state and position < (only or 0)):
                continue
            try:
                if broken and prepared.keeps_state:
                    raise NumericGapError(
                        "the state before this sample is unknown, because an earlier "
                        "sample was skipped"
                    )
                inputs = sample.inputs()
                if compare:
                    self.compare(prepared, trace, run, sample, inputs, memory)
                else:
                    prepared.go_on(trace, run, inputs, memory)
            except EtscopeError as error:
                self.skip(sample, error)
                broken = True
            else:
                broken = False
        return count

    def add(
        self,
        sample: Sample,
        found: Numerics,
        reference: Sequence[Any],
        device: Sequence[Any],
        floats: Sequence[Any] | None = None,
    ) -> None:
        """Add the result of a sample. floats: the outputs of the float graph of a quantized
        model.
        """
        rows = self._predictions(sample, reference, device, floats)
        self._statistics.add(sample.name, found)
        for row in rows:
            if self._task is not None:
                self._task.add(row)
        outputs = reference, device
        self._results.append(sample_result(sample.number, sample.name, found, outputs, rows))
        self._first = self._first or found
        self._report_progress()

    def _predictions(
        self,
        sample: Sample,
        reference: Sequence[Any],
        device: Sequence[Any],
        floats: Sequence[Any] | None,
    ) -> list[Prediction]:
        top, output = self._options.top, self._options.output
        if top is None:
            return []
        recorded = min(len(reference), len(device))
        if output >= recorded:
            raise MissingDataError(
                f"output {output} for the classes does not exist: {recorded} were recorded"
            )
        labels = None if self._options.labels is None else self._options.labels.of(sample)
        exact = None if floats is None or output >= len(floats) else floats[output]
        return predictions(sample.name, reference[output], device[output], top, labels, exact)

    def skip(self, sample: Sample, error: EtscopeError) -> None:
        """Count a sample that could not be compared. Without `keep_going` this raises the error,
        with the sample's name. The error of a missing package is always raised, because no sample
        can be compared then.
        """
        if isinstance(error, MissingDependencyError):
            raise error
        if not self._options.keep_going:
            of_sample = f"sample {sample.name}: "
            if isinstance(error, RuntimeFailure):
                text = of_sample + error.message
                raise RuntimeFailure(text, log=error.log, hint=error.hint) from error
            kind = type(error) if type(error) in _KEPT_TYPES else MismatchError
            text = of_sample + str(error).partition("\n  hint: ")[0]
            raise kind(text, hint=error.hint) from error
        self._results.append(
            SampleResult(sample.number, sample.name, SKIPPED, reason=error.message)
        )
        self._report_progress()

    def _report_progress(self) -> None:
        if self._options.progress is not None:
            self._options.progress(len(self._results), self._count)

    def evaluation(self, state: str | None) -> Evaluation:
        """The results. Raises `MissingDataError` when no sample could be compared."""
        results = tuple(sorted(self._results, key=lambda result: result.number))
        if self._first is None:
            if not results:
                raise MissingDataError("the dataset has no samples")
            raise MissingDataError(
                f"none of {len(results)} samples could be compared; sample {results[0].name}: "
                f"{results[0].reason}"
            )
        return Evaluation(
            method=self._first.method,
            reference=self._first.reference,
            metric=self._metric,
            operators=self._statistics.operators(self._runs.evidence()),
            samples=results,
            task=None if self._task is None else self._task.task(),
            coverage=self._first.coverage,
            state=state,
        )


_KEPT_TYPES = (
    UsageError,
    FormatError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    NumericGapError,
)
