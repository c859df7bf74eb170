"""The one call: from a model to what each part of it costs in int8, and what to keep in float."""

from __future__ import annotations

import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric, find_metric, measure
from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    ExportFailure,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.bytes.atomic_write import make_folder, replacing
from etscope.formats.bytes.source import PathLike
from etscope.model.selector import Selector
from etscope.optional import require
from etscope.sensitivity._groups import MODULE, Group, check_grouping, groups_of, neighbours
from etscope.sensitivity._results import LOWER, RUN, Key, Sensitivity, Variant, is_good
from etscope.sensitivity._search import Search, State, key_of, open_state

if TYPE_CHECKING:
    from etscope.bridge.lowering.variants import Subject


# One program measured on the runtime: its error on all samples, and its time.


_ROUND_NS = 50e6  # of one program in one round of the times
_FEWEST, _MOST = 3, 200  # executions in it
_WARMUP = 2


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What programs are fed, and what the float model answers to it in PyTorch: flat values of
    each sample. keeps_state: each sample meets the model as it is at first."""

    method: str
    inputs: Sequence[Sequence[Any]]
    expected: Sequence[Sequence[Any]]
    keeps_state: bool = False

    def check(self, metric: Metric) -> None:
        """Raise `MissingDataError` when nothing can be held against the float model."""
        for number, outputs in enumerate(self.expected):
            for index, value in enumerate(outputs):
                if np.asarray(value).dtype.kind == "f" and np.isnan(value).any():
                    raise MissingDataError(
                        f"output {index} of the float model has NaN for sample {number}: there is "
                        "nothing to compare with"
                    )
        if not any(measure(metric, one, one) is not None for one in self.expected[0]):
            raise MissingDataError("the model has no output of numbers to compare")


def measured(
    program: Path, samples: Samples, metric: Metric, *, isolate: bool, timeout: float | None
) -> Variant:
    """The error of a program. A run that fails is an answer."""
    size = program.stat().st_size
    try:
        outputs = _outputs(program, samples, isolate, timeout)
    except EtscopeError as failure:
        return Variant(size=size, failure=RUN, detail=failure.message)
    each = [
        _worst(metric, [_number(metric, [one], [two]) for one, two in _pairs(wanted, got)])
        for wanted, got in zip(samples.expected, outputs, strict=True)
    ]
    columns = [
        ([wanted[index] for wanted in samples.expected], [got[index] for got in outputs])
        for index in range(len(samples.expected[0]))
    ]
    worst = max(range(len(each)), key=lambda index: metric.badness(each[index]))
    error = _worst(metric, [_number(metric, *column) for column in columns])
    return Variant(error=error, worst=each[worst], worst_sample=worst, size=size)


def _outputs(
    program: Path, samples: Samples, isolate: bool, timeout: float | None
) -> list[Sequence[Any]]:
    from etscope.run import Call, run

    calls = [Call(samples.method, list(one), iterations=1, warmup=0) for one in samples.inputs]
    found: list[Sequence[Any]] = []
    for batch in [[call] for call in calls] if samples.keeps_state else [calls]:
        with run(program, batch, trace=False, isolate=isolate, timeout=timeout) as done:
            found += done.arrays
    return found


def _pairs(wanted: Sequence[Any], got: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(wanted, got, strict=True))


def _number(metric: Metric, wanted: Sequence[Any], got: Sequence[Any]) -> float | None:
    """The metric of some values as if they were one; NaN for shapes that differ."""
    first, second = (np.concatenate([np.ravel(one) for one in values]) for values in (wanted, got))
    if first.shape != second.shape:
        return float("nan")
    return measure(metric, first, second) if first.size else None


def _worst(metric: Metric, numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return max(known, key=metric.badness) if known else None


def timed(
    programs: Mapping[Any, Path],
    samples: Samples,
    rounds: int,
    *,
    isolate: bool,
    timeout: float | None,
) -> dict[Any, npt.NDArray[np.float64]]:
    """The median time of an execution on the first sample in each round, in ms: [rounds].

    In a round each program runs for a while, one after the other, and each round begins with
    another one: what disturbs the machine for a while disturbs them all.
    """
    keys = list(programs)
    executions = dict.fromkeys(keys, _FEWEST)
    found: dict[Any, list[float]] = {key: [] for key in keys}
    for number in range(-1, rounds):
        start = number % len(keys) if keys else 0
        for key in keys[start:] + keys[:start]:
            time = _median_ns(programs[key], samples, executions[key], isolate, timeout)
            if number < 0:  # tells only how often to execute
                executions[key] = int(np.clip(_ROUND_NS / max(time, 1), _FEWEST, _MOST))
            else:
                found[key].append(time / 1e6)
    return {key: np.array(times) for key, times in found.items()}


def _median_ns(
    program: Path, samples: Samples, iterations: int, isolate: bool, timeout: float | None
) -> float:
    from etscope.run import Call, run

    call = Call(samples.method, list(samples.inputs[0]), iterations=iterations, warmup=_WARMUP)
    limit = timeout if isolate else None
    with run(program, [call], trace=False, isolate=isolate, timeout=limit) as done:
        return done.latency.p50_ns


# The model, its samples and its calibration, by name or as they are.


SUFFIXES = (".npz", ".npy", ".safetensors", ".pt", ".pth")


class Given(NamedTuple):
    model: Any
    inputs: Any
    dynamic_shapes: Any
    samples: list[Any]
    calibration: list[Any]


def sources_of(
    model: Any,
    inputs: Any,
    samples: Sequence[Any],
    calibration: Sequence[Any],
    *,
    seed: int,
    dynamic: Any,
) -> Given:
    """All of it loaded. A file holds one set of inputs; a folder, the files of tensors in it."""
    from etscope.export import Source, load_model

    source = model
    if isinstance(model, (str, Path)):
        source = load_model(str(model), seed=seed)
    elif not isinstance(model, Source):
        source = Source("", type(model).__name__, model, None, dynamic)
    if isinstance(inputs, (str, Path)):
        inputs = source.read_inputs(inputs)
    return Given(
        source.model,
        source.inputs if inputs is None else inputs,
        source.dynamic_shapes if dynamic is None else dynamic,
        list(_loaded(source, samples)),
        list(_loaded(source, calibration)),
    )


def _loaded(source: Any, given: Sequence[Any]) -> Iterator[Any]:
    for one in given:
        if not isinstance(one, (str, Path)):
            yield one
            continue
        for path in _files(Path(one)):
            yield source.read_inputs(path)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [one for one in path.iterdir() if one.suffix.lower() in SUFFIXES]
    found = sorted(files, key=_by_number)
    if not found:
        raise MissingDataError(
            f"{path} has no files of tensors", hint=f"those are {', '.join(SUFFIXES)}"
        )
    return found


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Names with their numbers by value: 2 before 10."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


Progress = Callable[[str, Variant], None]

_NOTHING: Key = frozenset()


def sensitivity(
    model: Any,
    inputs: Any = None,
    *,
    backend: str = "xnnpack",
    calibration: Sequence[Any] = (),
    samples: Sequence[Any] = (),
    metric: str = "sqnr",
    tolerance: float | None = None,
    group: str = MODULE,
    select: str | None = None,
    pairs: bool = True,
    rounds: int = 7,
    dynamic_shapes: Any = None,
    method: str | None = None,
    strict: bool | None = None,
    seed: int = 0,
    isolate: bool = True,
    timeout: float | None = None,
    folder: PathLike | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Sensitivity:
    """Measure what keeping parts of a quantised model in float buys and costs, and with a tolerance
    find a small set of parts that is enough.

    The int8 model, the float one and a variant for each part are exported, lowered and run on the
    runtime. A program's error is the metric of its outputs against the float model in PyTorch, all
    samples taken as one, of the worst output. Times are of the first sample, in interleaved rounds.

    Args:
        model, inputs: as for `etscope.export.export`; also a `Source`, or the name of one
            ("file.py:make", a .pt2 file).
        backend: one with a quantizer: "xnnpack".
        calibration: inputs to set int8 ranges by, or files of them; the example inputs by default.
        samples: inputs to measure errors on, or files of them; the example inputs by default.
        metric, tolerance: of the error, and the number that is just good enough; no search without.
        group: "module" (the innermost), "op" or "node": what a part is. select: a selector; parts
            are looked for in what it picks only.
        pairs: try each two parts of which one takes int8 values from the other, too: a value
            between two operators is in float only when both are.
        rounds: of the times.
        dynamic_shapes, method, strict, seed: as for `export` and `load_model`.
        isolate: run each program in a process of its own for its error, so that a crash is an
            answer. timeout: seconds for each such run.
        folder: keeps answers and programs; `resume`: go on with those that are there.
        progress: told of each variant that was measured.

    Raises `MissingDataError` when nothing can be quantised or compared, when the int8 model fails,
    or all variants do; `UsageError` for a backend without a quantizer and arguments that make no
    sense; `MismatchError` for the state of another search.
    """
    found_metric = _checked(metric, tolerance, rounds, isolate, timeout, folder, resume)
    check_grouping(group, select)
    require("torch", wanted_by="sensitivity")
    require("executorch.exir", wanted_by="sensitivity")
    from etscope.bridge.lowering import variants as bridge

    given = sources_of(model, inputs, samples, calibration, seed=seed, dynamic=dynamic_shapes)
    subject = bridge.subject_of(
        given.model,
        given.inputs,
        samples=given.samples,
        calibration=given.calibration,
        backend=backend,
        dynamic_shapes=given.dynamic_shapes,
        strict=strict,
        method=method,
    )
    if not given.samples and not given.calibration:
        warnings.warn(
            "ranges are set by the example inputs, and errors measured on the same: give "
            "calibration and samples of the real data",
            EtscopeWarning,
            stacklevel=2,
        )
    groups = groups_of(subject.units, group, select)
    tried = Samples(
        subject.name,
        bridge.flat_samples(subject),
        bridge.expected(subject),
        subject.keeps_state,
    )
    tried.check(found_metric)
    with ExitStack() as until_the_end:
        place = (
            make_folder(folder)
            if folder is not None
            else Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="etscope-")))
        )
        state = open_state(place, _given(subject, metric, isolate, timeout), resume=resume)
        lab = _Lab(subject, groups, tried, found_metric, state, isolate, timeout, progress)
        return _found(lab, tolerance, pairs, rounds)


def _checked(
    metric: str,
    tolerance: float | None,
    rounds: int,
    isolate: bool,
    timeout: float | None,
    folder: PathLike | None,
    resume: bool,
) -> Metric:
    if tolerance is not None and math.isnan(tolerance):
        raise UsageError("a tolerance must be a number, not NaN")
    if rounds < 1:
        raise UsageError("times need at least one round")
    if timeout is not None and not isolate:
        raise UsageError("a run in this process cannot be timed out")
    if resume and folder is None:
        raise UsageError("go on with what?", hint="name the folder of the earlier search")
    return find_metric(metric)


def _given(subject: Subject, metric: str, isolate: bool, timeout: float | None) -> dict[str, Any]:
    from etscope.bridge.lowering.variants import fingerprint

    return {
        "model": fingerprint(subject),
        "backend": subject.backend,
        "metric": metric,
        "isolate": isolate,
        "timeout": timeout,
        "executorch": metadata.version("executorch"),
        "torch": metadata.version("torch"),
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Lab:
    """Makes and measures variants of one model; what was measured before is known."""

    subject: Subject
    groups: Sequence[Group]
    samples: Samples
    metric: Metric
    state: State
    isolate: bool
    timeout: float | None
    progress: Progress | None

    def ask(self, key: Key) -> Variant:
        """The variant with these groups in float."""
        names = [name for index in key for name in self.groups[index].names]
        words = " + ".join(self.groups[index].selector for index in sorted(key))
        return self._ask(self.name(key), words or "nothing", lambda: self._int8(names))

    def full(self) -> Variant:
        """All in float."""
        return self._ask("float", "everything", self._float)

    def confirmed(self, key: Key) -> Variant:
        """These groups in float, exported by their selectors as a user will."""
        texts = [self.groups[index].selector for index in sorted(key)]
        selectors = [Selector(text) for text in texts]
        words = "again: " + " + ".join(texts)
        return self._ask(self.final(key), words, lambda: self._int8((), selectors))

    def name(self, key: Key) -> str:
        return key_of([name for index in key for name in self.groups[index].names])

    def final(self, key: Key) -> str:
        return f"chosen-{self.name(key)}"

    def path(self, name: str) -> Path:
        return self.state.program(name)

    def _int8(self, names: Sequence[str], selectors: Sequence[Selector] = ()) -> bytes:
        from etscope.bridge.lowering.variants import int8_program
        from etscope.etrecord import ETRecord

        return int8_program(self.subject, ETRecord, keep=names, selectors=selectors)

    def _float(self) -> bytes:
        from etscope.bridge.lowering.variants import float_program
        from etscope.etrecord import ETRecord

        return float_program(self.subject, ETRecord)

    def _ask(self, name: str, words: str, made: Callable[[], bytes]) -> Variant:
        known = self.state.get(name)
        if known is not None:
            return known
        variant = self._measured(name, made)
        self.state.add(name, variant)
        if self.progress is not None:
            self.progress(words, variant)
        return variant

    def _measured(self, name: str, made: Callable[[], bytes]) -> Variant:
        path = self.path(name)
        try:
            program = made()
        except ExportFailure as error:
            return Variant(failure=LOWER, detail=error.message)
        with replacing(path) as file:
            file.write(program)
        return measured(path, self.samples, self.metric, isolate=self.isolate, timeout=self.timeout)


def _found(lab: _Lab, tolerance: float | None, pairs: bool, rounds: int) -> Sensitivity:
    int8 = lab.ask(_NOTHING)
    if int8.failure is not None:
        verb = "lowered" if int8.failure == LOWER else "run"
        raise MissingDataError(f"the int8 model cannot be {verb}: {int8.detail}")
    full = lab.full()
    keys = [frozenset([index]) for index in range(len(lab.groups))]
    keys += neighbours(lab.groups) if pairs and len(lab.groups) > 1 else []
    variants = {key: lab.ask(key) for key in keys}
    if all(one.failure is not None for one in variants.values()):
        reasons = dict.fromkeys(one.detail for one in variants.values())
        raise MissingDataError(
            f"none of {len(variants)} variants could be measured: {'; '.join(reasons)[:600]}"
        )
    works = {key: lab.path(lab.name(key)) for key, one in variants.items() if one.failure is None}
    programs: dict[Any, Path] = {"int8": lab.path(lab.name(_NOTHING)), **works}
    if full.failure is None:
        programs["float"] = lab.path("float")
    times = _timed(lab, programs, rounds)
    asked: dict[Key, Variant] = dict(variants)

    def ask(key: Key) -> Variant:
        asked[key] = lab.ask(key)
        return asked[key]

    chosen = confirmed = None
    final_times: Mapping[str, Any] = {}
    if tolerance is not None:
        cost = {key: float(np.median(times[key])) for key in works}
        search = Search(
            lab.metric,
            tolerance,
            int8,
            len(lab.groups),
            variants,
            ask,
            lambda key: cost.get(key, math.inf),
        )
        chosen = search.found()
        if chosen:
            confirmed = lab.confirmed(chosen)
            if not is_good(lab.metric, confirmed.error, tolerance):
                raise RuntimeFailure(
                    f"the set that reached the tolerance does not when it is exported by its "
                    f"selectors: {confirmed.detail or confirmed.error}"
                )
            final = {**programs, "chosen": lab.path(lab.final(chosen))}
            final_times = _timed(
                lab, {k: final[k] for k in ("int8", "float", "chosen") if k in final}, rounds
            )
    working = [key for key, one in asked.items() if one.failure is None]
    best = min(working, key=lambda key: (lab.metric.badness(asked[key].error), len(key)))
    if lab.metric.badness(asked[best].error) >= lab.metric.badness(int8.error):
        best = _NOTHING
    return Sensitivity(
        metric=lab.metric,
        tolerance=tolerance,
        samples=len(lab.samples.inputs),
        groups=tuple(lab.groups),
        int8=int8,
        full=full,
        variants=asked,
        chosen=chosen,
        best=best,
        confirmed=confirmed,
        times=times,
        final_times=final_times,
    )


def _timed(lab: _Lab, programs: Mapping[Any, Path], rounds: int) -> dict[Any, Any]:
    """In this process, as these programs have been run: starting one takes longer than they do."""
    return timed(programs, lab.samples, rounds, isolate=False, timeout=None)
