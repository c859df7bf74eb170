"""Measure the gain and cost of keeping each part of a model in float, and choose what to keep."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric, find_metric, measure
from etscope.backends.registry.export_options import ExportOptions
from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    ExportFailure,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.model.selector import Selector
from etscope.run.execute import IsolationOptions
from etscope.search.sensitivity.results import (
    MODULE,
    Group,
    Key,
    Sensitivity,
    Variant,
    check_grouping,
    groups_of,
    neighbours,
)
from etscope.search.trial import (
    LOWER,
    PROGRAMS,
    RUN,
    WARMUP,
    SearchOptions,
    SearchState,
    check_tolerance,
    open_model,
    open_state,
    output_error,
    reaches,
    read_samples,
    require_export,
    run_samples,
    search_folder,
    timed_rounds,
    versions,
)
from etscope.support.options import takes_fields

if TYPE_CHECKING:
    from etscope.bridge.lowering.variants import Subject

_NOTHING: Key = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SensitivityOptions(IsolationOptions, SearchOptions):
    """Options of `sensitivity()`.

    backend: one with a quantizer: "xnnpack".
    calibration: inputs that set the int8 ranges, or files or folders of them; the example inputs by
        default.
    samples: inputs to measure errors on, in the same forms; the example inputs by default.
    metric: the metric of errors. tolerance: the worst acceptable error; without it, no set of parts
        is searched for.
    group: what a part is: a "module" (the innermost), an "op" or a "node". select: a selector;
        nodes that it does not select belong to no part.
    pairs: also measure pairs of neighbouring parts, both kept in float: only then the value between
        them stays in float.
    rounds: how often each program is timed, in turn with the others.
    dynamic_shapes, method, strict, seed: as for `export` and `load_model`.
    isolate: measure the errors of each program in a separate process, so that a crash is recorded
        as the program's result. timeout: seconds for each such run.
    folder: where results and programs are saved.
    progress: called after each measurement, with a description of the variant and the variant.
    """

    backend: str = "xnnpack"
    calibration: Sequence[Any] = ()
    samples: Sequence[Any] = ()
    metric: str = "sqnr"
    tolerance: float | None = None
    group: str = MODULE
    select: str | None = None
    pairs: bool = True
    rounds: int = 7
    dynamic_shapes: Any = None
    method: str | None = None
    strict: bool | None = None
    seed: int = 0
    folder: PathLike | None = None

    def validate(self) -> None:
        """Raise `UsageError` for values that are not allowed."""
        check_tolerance(self.tolerance)
        self.check_timeout()
        if self.rounds < 1:
            raise UsageError("times need at least one round")
        check_grouping(self.group, self.select)


@takes_fields(SensitivityOptions)
def sensitivity(
    model: Any,
    inputs: Any = None,
    *,
    options: SensitivityOptions = SensitivityOptions(),
    **changes: Any,
) -> Sensitivity:
    """Measure the gain and cost of keeping parts of a quantized model in float, and with a
    tolerance find a small set of parts that is enough.

    The int8 model, the float one and a variant for each part are exported, lowered and run on the
    runtime. A program's error is the metric between its outputs and those of the float model in
    PyTorch, over all samples together, for the worst output. Times are measured with the first
    sample, in interleaved rounds.

    model, inputs: as for `etscope.export.export`; also a `Source`, or the name of one
        ("file.py:make", a .pt2 file).
    options, changes: fields of `SensitivityOptions`, as `tolerance=30`; changes go before
        `options`.

    Raises `MissingDataError` when nothing can be quantized or compared, when the int8 model fails,
    or all variants do; `UsageError` for a backend without a quantizer and invalid arguments;
    `MismatchError` for the state of another search.
    """
    options = replace(options, **changes)
    options.validate()
    found_metric = find_metric(options.metric)
    require_export(wanted_by="sensitivity")
    from etscope.bridge.lowering import variants as bridge

    source = open_model(model, inputs, seed=options.seed, dynamic_shapes=options.dynamic_shapes)
    tried = read_samples(source, options.samples)
    lowering = ExportOptions(
        backend=options.backend,
        dynamic_shapes=source.dynamic_shapes,
        strict=options.strict,
        calibration=read_samples(source, options.calibration),
    )
    subject = bridge.subject_of(source.model, source.inputs, tried, lowering, options.method)
    if not tried and not lowering.calibration:
        warnings.warn(
            "ranges are set by the example inputs, and errors measured on the same: give "
            "calibration and samples of the real data",
            EtscopeWarning,
            stacklevel=2,
        )
    groups = groups_of(subject.units, options.group, options.select)
    references = References(
        subject.name, bridge.flat_samples(subject), bridge.expected(subject), subject.keeps_state
    )
    references.check(found_metric)
    given = {
        "model": bridge.fingerprint(subject),
        "backend": subject.backend,
        **{name: getattr(options, name) for name in ("metric", "isolate", "timeout")},
        **versions(),
    }
    with search_folder(options.folder) as kept:
        state = open_variants(kept, given, options)
        return _Variants(subject, groups, references, found_metric, state, options).analysed()


# -- Errors and times of one program.


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Flat inputs of each sample, and the outputs of the float model in PyTorch.

    keeps_state: the model keeps state, and each sample starts from the initial one.
    """

    method: str
    inputs: Sequence[Sequence[Any]]
    expected: Sequence[Sequence[Any]]
    keeps_state: bool = False

    def check(self, metric: Metric) -> None:
        """Raise `MissingDataError` without an output to compare by the metric."""
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
    program: Path, references: References, metric: Metric, options: IsolationOptions
) -> Variant:
    """Measure the error of a program. A run that fails gives a variant with the failure."""
    size = program.stat().st_size
    try:
        outputs = run_samples(
            program,
            references.method,
            references.inputs,
            options,
            fresh=references.keeps_state,
        )
    except EtscopeError as failure:
        return Variant(size=size, failure=RUN, detail=failure.message)
    expected = references.expected

    def error_of(*samples: int) -> float | None:
        """The metric of the worst output, with these samples taken together."""
        return metric.worst(
            output_error(
                metric,
                *(
                    np.concatenate([np.ravel(values[sample][output]) for sample in samples])
                    for values in (expected, outputs)
                ),
            )
            for output in range(len(expected[0]))
        )

    each = [error_of(sample) for sample in range(len(expected))]
    worst = max(range(len(each)), key=lambda index: metric.badness(each[index]))
    return Variant(error_of(*range(len(expected))), size, worst=each[worst], worst_sample=worst)


def timed(
    programs: Mapping[Any, Path], references: References, rounds: int
) -> dict[Any, npt.NDArray[np.float64]]:
    """The median time of an execution on the first sample in each round, in ms: [rounds].

    They run in this process, as they have been run before: starting a process takes longer than
    they do.
    """
    sides = [functools.partial(_median_ns, one, references) for one in programs.values()]
    return dict(zip(programs, timed_rounds(sides, rounds, seed=0).T / 1e6, strict=True))


def _median_ns(program: Path, references: References, iterations: int) -> float:
    from etscope.run import Call, run

    call = Call(references.method, list(references.inputs[0]), iterations, WARMUP)
    with run(program, [call], trace=False, isolate=False) as done:
        return done.latency.p50_ns


# -- Variants of the model.


def open_variants(
    folder: Path, given: Mapping[str, Any], options: SensitivityOptions
) -> SearchState[Variant]:
    """Return the variants known in the folder, by `variant_key`, that could not be lowered or that
    still have their programs.

    Raises what `open_state` does, and `UsageError` for a folder that cannot be made.
    """
    state = open_state(folder, given, Variant, options)
    programs = make_folder(folder / PROGRAMS)
    for key, variant in list(state.trials.items()):
        if variant.failure != LOWER and not (programs / f"{key}.pte").is_file():
            del state.trials[key]
    return state


def variant_key(names: Sequence[str]) -> str:
    """A file name for the set of nodes that are kept in float."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class _Variants:
    """Makes and measures variants of one model."""

    subject: Subject
    groups: Sequence[Group]
    references: References
    metric: Metric
    state: SearchState[Variant]
    options: SensitivityOptions

    def of(self, key: Key) -> Variant:
        """The variant with these groups in float."""
        names = self._names(key)
        words = " + ".join(self.groups[index].selector for index in sorted(key))
        return self._measured(variant_key(names), words or "nothing", lambda: self._int8(names))

    def in_float(self) -> Variant:
        """The model with everything in float."""
        from etscope.bridge.lowering.variants import float_program
        from etscope.etrecord import ETRecord

        return self._measured("float", "everything", lambda: float_program(self.subject, ETRecord))

    def exported(self, key: Key, tolerance: float) -> Variant:
        """These groups in float, exported by their selectors as a user will.

        Raises `RuntimeFailure` when the result does not reach the tolerance.
        """
        texts = [self.groups[index].selector for index in sorted(key)]
        selectors = [Selector(text) for text in texts]
        words = "again: " + " + ".join(texts)
        name = self.path(key, chosen=True).stem
        variant = self._measured(name, words, lambda: self._int8((), selectors))
        if not reaches(self.metric, variant.error, tolerance):
            raise RuntimeFailure(
                "the set that reached the tolerance does not reach it when it is exported by its "
                f"selectors: {variant.detail or variant.error}"
            )
        return variant

    def path(self, key: Key | str, *, chosen: bool = False) -> Path:
        """Return the path of a variant's program; with `chosen`, of the final export's."""
        name = key if isinstance(key, str) else variant_key(self._names(key))
        return self.state.path.parent / PROGRAMS / f"{'chosen-' if chosen else ''}{name}.pte"

    def _names(self, key: Key) -> list[str]:
        return [name for index in key for name in self.groups[index].names]

    def _int8(self, names: Sequence[str], selectors: Sequence[Selector] = ()) -> bytes:
        from etscope.bridge.lowering.variants import int8_program
        from etscope.etrecord import ETRecord

        return int8_program(self.subject, ETRecord, keep=names, selectors=selectors)

    def _measured(self, name: str, words: str, lowered: Callable[[], bytes]) -> Variant:
        """Lower, run and measure a variant, unless the state has its result."""

        def attempt() -> Variant:
            path = self.path(name)
            try:
                program = lowered()
            except ExportFailure as error:
                return Variant(failure=LOWER, detail=error.message)
            with atomic_write(path) as file:
                file.write(program)
            return measured(path, self.references, self.metric, self.options)

        number, total = len(self.state.trials) + 1, len(self.first_keys) + 2  # int8 and float, too
        counted = f"{number} of {total}: {words}" if number <= total else words
        return self.state.trial(name, attempt, counted)

    @property
    def first_keys(self) -> list[Key]:
        """The sets to measure before a search: each group, and neighbours together."""
        keys = [frozenset([index]) for index in range(len(self.groups))]
        has_pairs = self.options.pairs and len(self.groups) > 1
        return keys + (neighbours(self.groups) if has_pairs else [])

    def analysed(self) -> Sensitivity:
        """Measure the int8 model, the float one and each part; search for a set that reaches the
        tolerance, if there is one."""
        metric, groups, references = self.metric, self.groups, self.references
        tolerance, rounds = self.options.tolerance, self.options.rounds
        int8 = self.of(_NOTHING)
        if int8.failure is not None:
            verb = "lowered" if int8.failure == LOWER else "run"
            raise MissingDataError(f"the int8 model cannot be {verb}: {int8.detail}")
        full = self.in_float()
        known = {key: self.of(key) for key in self.first_keys}
        if all(one.failure is not None for one in known.values()):
            reasons = dict.fromkeys(one.detail for one in known.values())
            raise MissingDataError(
                f"none of {len(known)} variants could be measured: {'; '.join(reasons)[:600]}"
            )
        programs: dict[Any, Path] = {"int8": self.path(_NOTHING)}
        programs.update((key, self.path(key)) for key, v in known.items() if v.failure is None)
        if full.failure is None:
            programs["float"] = self.path("float")
        times = timed(programs, references, rounds)

        asked: dict[Key, Variant] = dict(known)
        chosen = confirmed = None
        final_times: Mapping[str, Any] = {}
        if tolerance is not None:

            def attempt(key: Key) -> Variant:
                asked[key] = self.of(key)
                return asked[key]

            def cost(key: Key) -> float:
                return float(np.median(times[key])) if key in times else math.inf

            chosen = GroupSearch(metric, tolerance, int8, len(groups), known, attempt, cost).run()
            if chosen:
                confirmed = self.exported(chosen, tolerance)
                final = {name: programs[name] for name in ("int8", "float") if name in programs}
                final["chosen"] = self.path(chosen, chosen=True)
                final_times = timed(final, references, rounds)
        working = [key for key, one in asked.items() if one.failure is None]
        best = min(working, key=lambda key: (metric.badness(asked[key].error), len(key)))
        if metric.badness(asked[best].error) >= metric.badness(int8.error):
            best = _NOTHING
        return Sensitivity(
            metric=metric,
            tolerance=tolerance,
            samples=len(references.inputs),
            groups=tuple(groups),
            int8=int8,
            full=full,
            variants=asked,
            chosen=chosen,
            best=best,
            confirmed=confirmed,
            times=times,
            final_times=final_times,
        )


# -- The search for a small set.


@dataclass(frozen=True, slots=True)
class GroupSearch:
    """A greedy search for a small set of groups that reaches the tolerance, not provably the
    smallest.

    It starts with the best known set and joins the next best ones while the error gets smaller; if
    that never reaches the tolerance, it takes all groups. Then it leaves out each part that is not
    needed.

    int8: the variant with nothing in float. count: the number of groups. known: sets that were
    measured. attempt: measures a set. cost: orders sets of one size, the smallest first.
    """

    metric: Metric
    tolerance: float
    int8: Variant
    count: int
    known: Mapping[Key, Variant]
    attempt: Callable[[Key], Variant]
    cost: Callable[[Key], float]

    def run(self) -> Key | None:
        """A set that reaches the tolerance, or None."""
        if self._reaches(self.int8):
            return _NOTHING
        enough = [key for key, one in self.known.items() if self._reaches(one)]
        if enough:
            return min(enough, key=lambda key: (len(key), self.cost(key), sorted(key)))
        int8 = self._badness(self.int8)
        helpful = [
            key
            for key, one in self.known.items()
            if one.failure is None and self._badness(one) < int8
        ]
        current, smallest = _NOTHING, math.inf
        for key in sorted(helpful, key=lambda key: (self._badness(self.known[key]), len(key))):
            union = current | key
            if union == current:
                continue
            variant = self.attempt(union)
            if self._reaches(variant):
                return self._pruned(union)
            if not current or self._badness(variant) < smallest:
                current, smallest = union, self._badness(variant)
        everything = frozenset(range(self.count))
        return self._pruned(everything) if self._reaches(self.attempt(everything)) else None

    def _badness(self, variant: Variant) -> float:
        return self.metric.badness(variant.error)

    def _reaches(self, variant: Variant) -> bool:
        return reaches(self.metric, variant.error, self.tolerance)

    def _pruned(self, key: Key) -> Key:
        """The set without the groups that are not needed: halves of it are tried first, single
        groups last."""
        size = max(1, len(key) // 2)
        while True:
            ordered = sorted(key)
            for start in range(0, len(ordered), size):
                part = frozenset(ordered[start : start + size])
                rest = key - part
                if rest and part & key and self._reaches(self.attempt(rest)):
                    key = rest
            if size == 1:
                return key
            size = max(1, min(size, len(key)) // 2)
