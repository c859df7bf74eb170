"""A dataset on the runtime, or in a dump, against the reference: one sample after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from etscope.analysis.matching.logged_run import unfolded
from etscope.analysis.memory import debug_buffer_bytes
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.diagnose import DEFAULT_METRIC
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.numerics.runs import (
    NO_RECORD_HINT,
    RECORD_HINT,
    MethodRun,
    check_values,
    runs_of,
    sequences,
)
from etscope.analysis.profile.trace import Trace
from etscope.diagnosis.numeric_gap import method_that_ran
from etscope.diagnosis.numerics import PreparedNumerics
from etscope.errors import (
    EtscopeError,
    MismatchError,
    MissingDataError,
    MissingDependencyError,
    MissingFileError,
    NumericGapError,
    RuntimeFailure,
    UsageError,
)
from etscope.evaluation._classification import Answer, Labels, TaskCounts, answers, read_labels
from etscope.evaluation._dataset import Fit, Sample, named, open_dataset
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
from etscope.formats.bytes.source import PathLike
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program.pte import Program
from etscope.model.exported_graph import record_input_names
from etscope.optional import require
from etscope.run.execute import Folder, How, chosen_runner, execute
from etscope.run.inputs import method_inputs
from etscope.run.job import INTERMEDIATE_OUTPUTS, Job, JobCall
from etscope.run.program import Opened, open_program

__all__ = ["DEFAULT_TOP", "STATES", "Collector", "Device", "Wanted", "evaluate", "evaluate_dump"]


# The device: some samples run in one process of the runtime, their values recorded.


_BYTES, _SAMPLES = 64 << 20, 64  # recorded in one process


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A program on the runtime, and how it is run.

    fresh: the method is loaded anew for each sample, so that none has the state of another.
    """

    opened: Opened
    method: str
    data: Path | None
    libraries: tuple[Path, ...]
    threads: int | None
    runner: str
    isolate: bool
    timeout: float | None
    fresh: bool
    forced: bool

    @property
    def batch(self) -> int:
        """How many samples one process takes: what they record stays below some size."""
        size = debug_buffer_bytes(self.opened.program, self.method)
        return max(1, min(_SAMPLES, _BYTES // max(size, 1)))

    @contextmanager
    def ran(self, samples: Sequence[Sequence[Any]]) -> Iterator[tuple[Trace, list[MethodRun]]]:
        """Run samples, flat inputs of each; their trace, and the run of each. What was recorded
        goes at the end of the block.

        Raises `RuntimeFailure` when one of them fails.
        """
        folder = Folder()
        try:
            trace = self._trace(samples, folder.path)
            runs = runs_of(trace, self.method)
            if len(runs) != len(samples):
                raise MismatchError(
                    f"{len(samples)} samples were run, and the dump has {len(runs)} runs of the "
                    f"method {self.method!r} of the record",
                    hint="take the program and the ETRecord of one export",
                )
            yield trace, runs
        finally:
            folder.remove()

    def _trace(self, samples: Sequence[Sequence[Any]], folder: Path) -> Trace:
        job = Job(
            program=self.opened.file(folder),
            calls=tuple(
                JobCall(self.method, tuple(inputs), fresh=self.fresh) for inputs in samples
            ),
            data=self.data,
            debug_level=INTERMEDIATE_OUTPUTS,
            threads=self.threads,
            libraries=self.libraries,
        )
        how = How(
            runner=chosen_runner(self.runner, [job], self.opened.program, isolate=self.isolate),
            isolate=self.isolate,
            timeout=self.timeout,
        )
        place = folder / "values"
        place.mkdir()
        done = execute(job, place, how, self.opened.program)
        buffer = done.debug_buffer
        return Trace(
            dump=read_etdump(place / "run.etdp" if done.etdump is None else done.etdump),
            record=self.opened.record,
            debug_buffer=None if buffer is None else DebugBuffer.open(buffer),
            program=self.opened.program,
            forced=self.forced,
        )


# What is known of the samples so far.


DEFAULT_TOP = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of the evaluation, beyond errors. top: None, unless classes are looked at.
    progress: called after each sample with how many are done, and of how many if that is known."""

    labels: Labels | None = None
    top: int | None = None
    output: int = 0
    keep_going: bool = False
    progress: Callable[[int, int | None], None] | None = None

    @classmethod
    def of(
        cls,
        labels: Labels | None,
        top: int | None,
        output: int,
        keep_going: bool,
        progress: Callable[[int, int | None], None] | None,
    ) -> Wanted:
        """Checked. Labels alone ask for the default number of best classes."""
        if top is not None and top < 1:
            raise UsageError(f"the best K classes are at least 1, not {top}")
        if output < 0:
            raise UsageError(f"outputs are counted from 0, and output {output} is asked for")
        return cls(
            labels, DEFAULT_TOP if top is None and labels else top, output, keep_going, progress
        )


class Collector:
    """Takes samples as they are done."""

    def __init__(self, wanted: Wanted, metric: Metric, count: int | None) -> None:
        self._wanted, self._metric, self._count = wanted, metric, count
        self._statistics = Statistics(metric)
        self._results: list[SampleResult] = []
        self._task = None if wanted.top is None else TaskCounts(wanted.top, wanted.output)
        self._first: Numerics | None = None

    def add(
        self, sample: Sample, found: Numerics, reference: Sequence[Any], device: Sequence[Any]
    ) -> None:
        """Count a sample in: its diagnosis, and the outputs of both sides."""
        given = self._answers(sample, reference, device)
        self._statistics.add(sample.name, found)
        for answer in given:
            if self._task is not None:
                self._task.add(answer)
        outputs = reference, device
        self._results.append(sample_result(sample.number, sample.name, found, outputs, given))
        self._first = self._first or found
        self._tell()

    def skip(self, sample: Sample, error: EtscopeError) -> None:
        """A sample that could not be compared. Without `keep_going` this raises the error, with the
        sample's name."""
        if not self._wanted.keep_going:
            raise _with_name(sample.name, error) from error
        self._results.append(
            SampleResult(sample.number, sample.name, SKIPPED, reason=error.message)
        )
        self._tell()

    def _answers(
        self, sample: Sample, reference: Sequence[Any], device: Sequence[Any]
    ) -> list[Answer]:
        top, output = self._wanted.top, self._wanted.output
        if top is None:
            return []
        known = min(len(reference), len(device))
        if output >= known:
            raise MissingDataError(
                f"there is no output {output} to take classes of: {known} were recorded"
            )
        labels = None if self._wanted.labels is None else self._wanted.labels.of(sample)
        return answers(sample.name, reference[output], device[output], top, labels)

    def _tell(self) -> None:
        if self._wanted.progress is not None:
            self._wanted.progress(len(self._results), self._count)

    def evaluation(self, state: str | None) -> Evaluation:
        """The whole. Raises `MissingDataError` when no sample could be compared."""
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
            operators=self._statistics.operators(),
            samples=results,
            task=None if self._task is None else self._task.task(),
            coverage=self._first.coverage,
            state=state,
        )


def _with_name(sample: str, error: EtscopeError) -> EtscopeError:
    if isinstance(error, RuntimeFailure):
        return RuntimeFailure(f"sample {sample}: {error.message}", log=error.log, hint=error.hint)
    return named(sample, error)


STATES = (FRESH, SEQUENCE)

Progress = Callable[[int, int | None], None]
_Ready = tuple[Sample, Sequence[Any]]  # a sample, and its inputs


def evaluate(
    program: Any,
    dataset: Any,
    *,
    etrecord: Any = None,
    method: str | None = None,
    metric: str | Metric = DEFAULT_METRIC,
    tolerance: float | None = None,
    reference_graph: str | None = None,
    samples: int | None = None,
    labels: Any = None,
    top: int | None = None,
    output: int = 0,
    state: str = FRESH,
    keep_going: bool = False,
    data: PathLike | None = None,
    libraries: PathLike | Sequence[PathLike] = (),
    threads: int | None = None,
    runner: str = "auto",
    isolate: bool = True,
    timeout: float | None = None,
    verify: bool = True,
    progress: Progress | None = None,
) -> Evaluation:
    """Run a program on each sample of a dataset on the ExecuTorch runtime, its values recorded, and
    diagnose each run against the reference.

    Some samples at a time are run in a process of their own; when a sample is compared nothing is
    kept of it but numbers.

    program: as for `etscope.run.run`; an ETRecord that holds its program is enough. etrecord: the
        record, when the program does not come with it.
    dataset: see `etscope.evaluation.open_dataset`. samples: take so many of it at most.
    metric, tolerance, reference_graph: as for `Inspector.diagnose_numerics`.
    labels: right classes; see `etscope.evaluation.read_labels`. top: look at classes, and at the
        best K; with labels 5 by default. output: which of the program's outputs has the scores,
        [..., classes].
    state: of a model that keeps state: "fresh" starts each sample from the first state; "sequence"
        lets each go on from the one before, in one process, on both sides: inputs of all samples
        are in memory then, and all that is recorded is on disk.
    keep_going: skip samples that cannot be run or compared. They are counted, and never a pass.
    data, libraries, threads, runner, isolate, timeout, verify: as for `run`; the timeout is that of
        each process.
    progress: called after each sample with how many are done, and of how many (None: not known).

    Raises what `run` and `diagnose_numerics` raise, with the sample's name in the message;
    `MissingDataError` when no sample could be compared.
    """
    wanted = Wanted.of(_labels(labels), top, output, keep_going, progress)
    found = metric if isinstance(metric, Metric) else find_metric(metric)
    if state not in STATES:
        raise UsageError(f"there is no state {state!r}", hint=f"it is {' or '.join(STATES)}")
    opened = open_program(program, etrecord)
    if opened.record is None:
        raise NumericGapError("an evaluation needs an ETRecord", hint=NO_RECORD_HINT)
    if verify:
        opened.check_record()
    if opened.external_weights and data is None:
        raise UsageError(
            "weights of this program are in a file beside it (.ptd)",
            hint="name that file: data=, --data",
        )
    name = opened.method_name(method)
    for package in ("torch", "executorch"):  # before the first sample runs
        require(package, wanted_by="the reference of an evaluation")
    device = Device(
        opened=opened,
        method=name,
        data=None if data is None else _files(data)[0],
        libraries=_files(libraries),
        threads=threads,
        runner=runner,
        isolate=isolate,
        timeout=timeout,
        fresh=state == FRESH,
        forced=not verify,
    )
    fit = _fit(opened.program, opened.record, name)
    source = _opened_dataset(dataset, fit, samples, wanted.labels)
    collector = Collector(wanted, found, source.count)
    prepare = partial(
        PreparedNumerics, metric=found, tolerance=tolerance, reference_graph=reference_graph
    )
    loop = _Loop(device, collector, lambda trace: prepare(trace, name), state)
    loop.go(source.samples)
    return collector.evaluation(loop.state)


def evaluate_dump(
    trace: Trace,
    dataset: Any,
    *,
    method: str | None = None,
    metric: str | Metric = DEFAULT_METRIC,
    tolerance: float | None = None,
    reference_graph: str | None = None,
    run: int | None = None,
    samples: int | None = None,
    labels: Any = None,
    top: int | None = None,
    output: int = 0,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Diagnose the runs of a method in a dump, whose inputs are the samples of a dataset in the
    order of the runs: as `evaluate`, of a device's own dump.

    trace: of the dump, with its record and debug buffer (`Inspector.trace`). run: compare this one
    only; the state of a model that keeps state still comes from the samples before it. samples:
    compare the first so many runs.

    Raises `MismatchError` for a dataset with more or fewer samples than the method has runs, and
    what `evaluate` raises.
    """
    wanted = Wanted.of(_labels(labels), top, output, keep_going, progress)
    found = metric if isinstance(metric, Metric) else find_metric(metric)
    if trace.record is None:
        raise NumericGapError("an evaluation needs an ETRecord", hint=NO_RECORD_HINT)
    name = method_that_ran(trace, method)
    check_values(trace)
    program = trace.recorded_program
    if program is None:
        raise MissingDataError(
            "nothing tells which inputs the samples have: the record does not hold its program",
            hint="give the program that ran: program=, --program",
        )
    known = sequences(trace, name)
    total = sum(map(len, known.runs))
    if run is not None and not 0 <= run < total:
        raise UsageError(f"the method {name!r} ran {total} times, and run {run} is asked for")
    source = _opened_dataset(dataset, _fit(program, trace.record, name), samples, wanted.labels)
    if source.count is not None and samples is None:
        _check_count(source.count, total, name)
    prepared = PreparedNumerics(
        trace, name, metric=found, tolerance=tolerance, reference_graph=reference_graph
    )
    collector = Collector(wanted, found, source.count if run is None else 1)
    runs = [(number, one) for number, part in enumerate(known.runs) for one in part]
    memory, broken, last = prepared.memory(), False, -1
    position = -1
    for position, ((number, one), sample) in enumerate(zip(runs, source.samples, strict=False)):
        if number != last or not prepared.keeps_state:
            memory, broken, last = prepared.memory(), False, number
        compare = run is None or position == run
        if compare or (prepared.keeps_state and position < (run or 0)):
            broken = _one_of_dump(prepared, trace, one, sample, memory, collector, compare, broken)
    if samples is None:
        more = next(source.samples, None) is not None
        _check_count(total + 1 if more else position + 1, total, name)
    if not prepared.keeps_state:
        return collector.evaluation(None)
    return replace(collector.evaluation(DUMP), doubts=(known.doubt,) if known.doubt else ())


def _one_of_dump(
    prepared: PreparedNumerics,
    trace: Trace,
    run: MethodRun,
    sample: Sample,
    memory: Any,
    collector: Collector,
    compare: bool,
    broken: bool,
) -> bool:
    """Compare one run, or take its state only. Whether the state after it is not known."""
    try:
        if broken and prepared.keeps_state:
            raise NumericGapError("the state before is not known: a sample before was skipped")
        inputs = sample.inputs()
        if compare:
            _compare(prepared, trace, run, sample, inputs, memory, collector)
        else:
            prepared.go_on(trace, run, inputs, memory)
    except MissingDependencyError:
        raise
    except EtscopeError as error:
        collector.skip(sample, error)
        return True
    return False


def _check_count(count: int, total: int, method: str) -> None:
    if count != total:
        raise MismatchError(
            f"the dump has {total} runs of the method {method!r}, and the dataset has "
            f"{'more' if count > total else count} samples",
            hint="each sample is the inputs of one run, in order; samples= (--samples) takes the "
            "first so many of both",
        )


class _Loop:
    """Runs samples on the device, some at a time, and compares each."""

    def __init__(
        self,
        device: Device,
        collector: Collector,
        prepare: Callable[[Trace], PreparedNumerics],
        state: str,
    ) -> None:
        self._device, self._collector, self._prepare = device, collector, prepare
        self._in_sequence = state == SEQUENCE
        self._prepared: PreparedNumerics | None = None
        self._memory: Any = None

    @property
    def state(self) -> str | None:
        """How state was treated, for a model that keeps some."""
        if self._prepared is None or not self._prepared.keeps_state:
            return None
        return SEQUENCE if self._in_sequence else FRESH

    def go(self, samples: Iterable[Sample]) -> None:
        """Through all samples."""
        ready = self._ready(samples)
        size = None if self._in_sequence else self._device.batch
        while True:
            batch = list(islice(ready, size))
            if not batch:
                return
            self._run(batch)
            del batch  # before the next ones are read

    def _ready(self, samples: Iterable[Sample]) -> Iterator[_Ready]:
        """The samples whose inputs can be read and fit."""
        for sample in samples:
            try:
                inputs = sample.inputs()
            except MissingDependencyError:
                raise
            except EtscopeError as error:
                self._collector.skip(sample, error)
                continue
            yield sample, inputs

    def _run(self, batch: Sequence[_Ready]) -> None:
        done = 0
        try:
            with self._device.ran([inputs for _, inputs in batch]) as (trace, runs):
                prepared = self._ready_for(trace)
                for (sample, inputs), run in zip(batch, runs, strict=True):
                    self._compare(prepared, trace, run, sample, inputs)
                    done += 1
        except RuntimeFailure as error:
            if done or (self._in_sequence and len(batch) > 1):
                raise
            if len(batch) == 1:
                self._collector.skip(batch[0][0], error)
                return
            for one in batch:  # which of them fails?
                self._run([one])

    def _ready_for(self, trace: Trace) -> PreparedNumerics:
        if self._prepared is None:
            if not trace.forced:
                trace.verify()
            check_values(trace)
            self._prepared = self._prepare(trace)
            self._memory = self._prepared.memory()
            # What has no state need not be loaded anew.
            self._device = replace(
                self._device, fresh=self._device.fresh and self._prepared.keeps_state
            )
        return self._prepared

    def _compare(
        self,
        prepared: PreparedNumerics,
        trace: Trace,
        run: MethodRun,
        sample: Sample,
        inputs: Sequence[Any],
    ) -> None:
        memory = self._memory if self._in_sequence else prepared.memory()
        try:
            _compare(prepared, trace, run, sample, inputs, memory, self._collector)
        except (MissingDependencyError, RuntimeFailure):
            raise
        except EtscopeError as error:
            if self._in_sequence and prepared.keeps_state:
                raise
            self._collector.skip(sample, error)


def _compare(
    prepared: PreparedNumerics,
    trace: Trace,
    run: MethodRun,
    sample: Sample,
    inputs: Sequence[Any],
    memory: Any,
    collector: Collector,
) -> None:
    if not any(key.debug for key in run.block.keys):
        raise NumericGapError("its run has no values of operators", hint=RECORD_HINT)
    found = prepared.diagnose(trace, run, list(inputs), memory)
    device = unfolded(trace.values(run.block, run.position, run.block.outputs))
    collector.add(sample, found, memory.outputs, device)


# -- what is given


def _labels(labels: Any) -> Labels | None:
    if labels is None or isinstance(labels, Labels):
        return labels
    return read_labels(labels)


def _fit(program: Program, record: Any, method: str) -> Fit:
    names = record_input_names(record, method)

    def fit(given: Any) -> Sequence[Any]:
        return method_inputs(program, method, given, seed=0, input_names=names)

    return fit


def _opened_dataset(dataset: Any, fit: Fit, samples: int | None, labels: Labels | None) -> Any:
    if samples is not None and samples < 1:
        raise UsageError(f"at least one sample must be evaluated, not {samples}")
    source = open_dataset(dataset, fit, samples)
    if labels is not None:
        labels.check(source.count, samples)
    return source


def _files(paths: PathLike | Sequence[PathLike]) -> tuple[Path, ...]:
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    for path in listed:
        if not Path(path).is_file():
            raise MissingFileError(f"file not found: {os.fspath(path)}")
    return tuple(Path(path).resolve() for path in listed)
