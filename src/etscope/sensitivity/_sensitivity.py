"""The one call: from a model to what each part of it costs in int8, and what to keep in float."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.metrics import Metric, find_metric
from etscope.errors import (
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
from etscope.sensitivity._measure import Samples, measured, timed
from etscope.sensitivity._search import Search
from etscope.sensitivity._source import sources_of
from etscope.sensitivity._state import State, key_of, open_state
from etscope.sensitivity._variant import LOWER, Key, Sensitivity, Variant, is_good

if TYPE_CHECKING:
    from etscope.bridge.lowering.variants import Subject

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
