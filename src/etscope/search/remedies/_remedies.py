"""Explain a model's run, try the remedies of the findings alone and together, confirm the best."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import numpy as np

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.insights import LEAST_SHARE, insights
from etscope.analysis.metrics import find_metric
from etscope.analysis.profile.scale import Scale
from etscope.analysis.statistics.compare_samples import Policy
from etscope.analysis.work.roofline import choose_calibration
from etscope.backends.registry.export_options import ExportOptions
from etscope.errors import MissingDataError, UsageError
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.model.finding import Finding
from etscope.run.execute import library_paths
from etscope.search.remedies._changes import (
    QUANTIZE,
    Change,
    Setting,
    changes_of,
    general_changes,
    setting_with,
)
from etscope.search.remedies._trials import BASELINE, Laboratory, Runs
from etscope.search.remedies.results import (
    BREAKS,
    NOT_TRIED,
    SLOWER,
    Limits,
    Numbers,
    Outcome,
    Remedies,
    in_order,
    judged,
)
from etscope.search.trial import (
    APPLY,
    PROGRAMS,
    RUN,
    SearchOptions,
    Trial,
    open_model,
    open_state,
    require_export,
    search_folder,
    versions,
)
from etscope.support.options import takes_fields
from etscope.units import TimeScale

REMEDIES_JSON = "remedies.json"
COMMAND = "command.txt"
_TOGETHER = 3  # confirmations of the best, until one holds
# Times of rounds that are not common differ by this much at most where the machine alone changed.
_DRIFT = 3.0


# Options of an export that a search may begin with, in the order of its command.
_EXPORT = (
    "backend", "backend_options", "quantize", "quantize_embeddings", "group_size", "keep_float",
    "passes", "calibration", "strict",
)  # fmt: skip
_NOT_TRIED = ("taps", "float_model")  # they change what a program returns or records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effort:
    """The extent of a search.

    everything: also try general changes that no finding suggests. allow: if it contains "quantize",
    a faster setting with other numbers is accepted; together with `everything`, quantization is
    tried even if no finding suggests it. metric: the metric that compares outputs. tolerance: the
    worst acceptable number for a setting that quantizes. exact: the worst number that still counts
    as the same outputs; a setting as good as the baseline counts as the same too. budget: seconds
    for new trials, None for no limit: a trial begins if one as long as the longest would end in
    time. The final ordering and confirmation do not count.
    least_share, rules: as for `etscope.analysis.insights.insights.insights`. policy: the criteria
    for verdicts.
    """

    everything: bool = False
    allow: Sequence[str] = ()
    metric: str = "sqnr"
    tolerance: float = 20.0  # dB: an error of 10 % of the amplitude
    exact: float = 60.0  # of 0.1 %
    budget: float | None = None
    least_share: float = LEAST_SHARE
    rules: Sequence[str] = ()
    policy: Policy = field(default_factory=Policy)

    def check(self) -> None:
        """Raise `UsageError` for values that are not allowed."""
        for name in self.allow:
            if name != QUANTIZE:
                raise UsageError(f"cannot allow {name!r}", hint=f"it is {QUANTIZE}")
        if self.budget is not None and not self.budget > 0:
            raise UsageError("the budget must be more than 0 seconds")
        find_metric(self.metric)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RemedyOptions(ExportOptions, SearchOptions):
    """Options of `try_remedies()`.

    runs: how programs are run. effort: what is tried.
    folder: the folder for results and programs, and for the files of the best export.
    words: options of `etscope export` that made the `Source`, for the printed command.
    progress: a function that is called with a description of each trial, and with the trial.

    The other options are the baseline's, as for `etscope.export.export`; calibration may be files
    or folders. taps and float_model cannot be used.
    """

    runs: Runs = field(default_factory=Runs)
    effort: Effort = field(default_factory=Effort)
    folder: PathLike | None = None
    words: Sequence[str] = ()

    def validate(self) -> None:
        """Raise `UsageError` for values that are not allowed."""
        self.runs.check()
        self.effort.check()
        for name in _NOT_TRIED:
            if getattr(self, name):
                raise UsageError(f"try_remedies does not have the option {name}")

    @property
    def setting(self) -> Setting:
        """The setting of the baseline."""
        return Setting({name: getattr(self, name) for name in _EXPORT}, self.runs.threads)

    def given(self, model: str) -> dict[str, Any]:
        """Return all that results depend on. model: its fingerprint."""
        runs = self.runs
        calibration = [str(one)[:200] for one in self.calibration or ()]
        libraries = tuple(map(str, library_paths(runs.libraries)))
        return {
            "model": model,
            "options": repr({**self.setting.export, "calibration": calibration}),
            "runs": repr((runs.threads, runs.runner, libraries, runs.method)),
            "metric": self.effort.metric,
            "rounds": runs.rounds,
            **versions(),
        }


@takes_fields(RemedyOptions)
def try_remedies(
    model: Any,
    inputs: Any = None,
    *,
    options: RemedyOptions = RemedyOptions(),
    **changes: Any,
) -> Remedies:
    """Find out why a model takes its time, try each remedy that only changes how it is exported or
    run, and find the best combination of them.

    The model is exported with the options given, run and explained: the baseline. Each remedy is
    exported and run; its outputs are compared with the model's in PyTorch on the same inputs; its
    time is compared with the baseline's in rounds that run both, in random order. The remedies that
    help are measured together in further rounds, ordered by their times, and combined, the best
    first. The best setting with the model's numbers is then measured again in new rounds, because
    the best of several measurements is partly luck. A setting that quantizes can be the best only
    if that is allowed, or if the baseline is quantized.

    Args:
        model, inputs: as for `etscope.export.export`; also a `Source`, or the name of one
            ("file.py:make", a .pt2 file).
        options, changes: fields of `RemedyOptions`, as `backend="xnnpack"`; changes go before
            `options`.

    Raises `MissingDataError` when the baseline fails or has no numbers to compare, `UsageError` for
    invalid arguments, `MismatchError` for the state of another search, and what `export` raises.
    """
    options = replace(options, **changes)
    options.validate()
    require_export(wanted_by="trying remedies")
    from etscope.bridge.lowering.variants import float_methods
    from etscope.export import LanguageModel

    begin = monotonic()
    runs, effort = options.runs, options.effort
    source = open_model(model, inputs, seed=runs.seed, dynamic_shapes=options.dynamic_shapes)
    source = source.as_exported()
    setting = options.setting
    tracing = ExportOptions(dynamic_shapes=source.dynamic_shapes, strict=options.strict)
    is_language = isinstance(source.model, LanguageModel)
    methods = source.model.methods() if is_language else source.model
    floats = float_methods(methods, source.inputs, tracing)
    given = options.given("-".join(one.fingerprint for one in floats.values()))
    with search_folder(options.folder) as kept:
        state = open_state(kept, given, Trial, options)
        make_folder(kept / PROGRAMS)
        metric = find_metric(effort.metric)
        laboratory = Laboratory(source, floats, setting, runs, metric, state, kept)
        search = _Search(laboratory, effort, tuple(options.words), begin)
        return search.run(keeps=options.folder is not None)


@dataclass(frozen=True, eq=False)
class _Search:
    """Tries remedies of one model, until the budget is used up."""

    laboratory: Laboratory
    effort: Effort
    words: tuple[str, ...]
    begin: float
    durations: list[float] = field(default_factory=list)  # of trials, s

    def run(self, *, keeps: bool) -> Remedies:
        """Find the best of the remedies, and write its export, if the folder is kept."""
        laboratory, effort = self.laboratory, self.effort
        baseline = self._baseline()
        limits = Limits(laboratory.metric, effort.exact, effort.tolerance, baseline.error)
        findings = self._findings(laboratory.baseline)
        changes = changes_of(findings)
        if effort.everything:
            known = {one.words for one in changes}
            more = general_changes(laboratory.baseline, effort.allow, os.cpu_count() or 1)
            changes += [one for one in more if one.words not in known]
        outcomes = [self._outcome((one,), limits) for one in changes]
        outcomes += self._combined(outcomes, limits)
        faster = [one for one in outcomes if one.is_faster]
        own = self._own_times(faster)
        ordered = in_order(faster, own, effort.policy.min_effect)
        wanted = [one for one in ordered if self._is_wanted(one)]
        others = [one for one in ordered if not self._is_wanted(one)]
        best, confirmation, unconfirmed = self._confirmed(wanted, limits)
        wanted.sort(key=lambda one: one is not best)  # those before it were not confirmed
        beside = next(iter(others), None)
        if beside is not None and best is not None:
            gains = own[beside.key] * (1 + effort.policy.min_effect) <= own[best.key]
            beside = beside if gains else None
        setting = laboratory.baseline
        if best is not None:
            setting = setting_with(best.changes, setting)
        spec = laboratory.source.spec or "MODEL"
        result = Remedies(
            method=laboratory.method,
            findings=findings,
            baseline=baseline,
            limits=limits,
            policy=effort.policy,
            outcomes=(*wanted, *others, *(one for one in outcomes if not one.is_faster)),
            best=best,
            confirmation=confirmation,
            unconfirmed=tuple(unconfirmed),
            beside=beside,
            own=own,
            setting=setting,
            command=setting.command(spec, self.words),
        )
        return self._written(result, setting) if keeps else result

    def _baseline(self) -> Trial:
        """Export the baseline, and hold its numbers against the model's."""
        laboratory = self.laboratory
        trial = self._timed(BASELINE, laboratory.baseline)
        if trial.failure is not None:
            verb = "run" if trial.failure == RUN else "exported"
            raise MissingDataError(f"the unchanged model cannot be {verb}: {trial.detail}")
        if trial.error is None:
            raise MissingDataError("the model has no output of numbers to compare")
        return trial

    def _findings(self, setting: Setting) -> tuple[Finding, ...]:
        """The findings of a run of a setting."""
        scale = Scale(TimeScale("ns"), TimeScale("ms"))
        trace = self.laboratory.recorded(setting)
        peaks = choose_calibration(None, trace.saved_run)
        return tuple(
            finding
            for profile in trace.profiles()
            if profile.method in (None, self.laboratory.method)
            for finding in insights(
                Facts(trace, profile, scale, peaks),
                least_share=self.effort.least_share,
                only=self.effort.rules,
            )
        )

    # -- trials

    def _timed(self, key: str, setting: Setting) -> Trial:
        begin = monotonic()
        trial = self.laboratory.tried(key, setting)
        self.durations.append(monotonic() - begin)
        return trial

    def _has_time(self) -> bool:
        """Return whether a trial as long as the longest one ends within the budget."""
        budget, longest = self.effort.budget, max(self.durations, default=0.0)
        return budget is None or monotonic() - self.begin + longest < budget

    def _outcome(self, changes: Sequence[Change], limits: Limits) -> Outcome:
        """Try changes together, unless the state has the result, or the budget is used up."""
        laboratory = self.laboratory
        untried = Outcome(tuple(changes), None, reason="the budget was used up")
        try:
            setting = setting_with(changes, laboratory.baseline)
        except UsageError as error:
            return replace(untried, trial=Trial(failure=APPLY, detail=error.message))
        key = untried.key
        if key not in laboratory.state.trials and not self._has_time():
            return untried
        trial = self._timed(key, setting)
        return judged(changes, trial, setting, limits, self.effort.policy)

    def _combined(self, single: Sequence[Outcome], limits: Limits) -> list[Outcome]:
        """Add to the best of the wanted remedies, one by one, the one that makes it fastest, while
        that is faster by the minimum effect. The best is explained anew each time: its findings may
        be others.

        Remedies that did not apply alone, or made no difference, are tried in addition, too: one
        may depend on another, as most do on a backend.
        """
        tried: list[Outcome] = []
        worse = [one for one in single if one.verdict in (SLOWER, BREAKS, NOT_TRIED)]
        known = [one.changes[0] for one in single if one not in worse]
        current = self._best(single)
        while current is not None:
            candidates = {one.words: one for one in known}
            if self._has_time():
                setting = setting_with(current.changes, self.laboratory.baseline)
                more = changes_of(self._findings(setting))
                candidates |= {one.words: one for one in more}
            found = [
                self._outcome((*current.changes, change), limits)
                for change in candidates.values()
                if not any(change.excludes(one) for one in current.changes)
                and change.words not in {one.words for one in current.changes}
            ]
            # What does not apply, alone or here, is said once.
            names = {one.words for one in single}
            tried += [
                one
                for one in found
                if one.trial is None
                or one.trial.failure is None
                or one.changes[-1].words not in names
            ]
            best = self._best([current, *found])
            current = None if best is current else best
        return tried

    # -- the best

    def _is_wanted(self, one: Outcome) -> bool:
        """True if it is faster with numbers that are wanted: the model's, and others only where
        precision was given up, or may be."""
        is_given_up = QUANTIZE in self.effort.allow or self.laboratory.baseline.quantizes
        return one.is_faster and (one.numbers is Numbers.SAME or is_given_up)

    def _best(self, outcomes: Sequence[Outcome]) -> Outcome | None:
        """The fastest of the outcomes that are wanted; see `in_order`."""
        wanted = [one for one in outcomes if self._is_wanted(one)]
        ordered = in_order(wanted, self._own_times(wanted), self.effort.policy.min_effect)
        return next(iter(ordered), None)

    def _own_times(self, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """The times of outcomes in rounds that they have in common, ns, by key; those that are out
        of question by the rounds of their trials keep the times of these."""
        own = {one.key: one.comparison.after for one in outcomes if one.comparison is not None}
        most = _DRIFT * min(own.values(), default=0.0)
        close = {
            one.key: setting_with(one.changes, self.laboratory.baseline)
            for one in sorted(outcomes, key=lambda one: one.key)
            if own[one.key] <= most
        }
        if len(close) > 1:
            trial = self.laboratory.in_common(close)
            if trial.failure is None:
                own |= dict(zip(close, np.median(trial.rounds, axis=0).tolist(), strict=True))
        return own

    def _confirmed(
        self, ordered: Sequence[Outcome], limits: Limits
    ) -> tuple[Outcome | None, Outcome | None, list[Outcome]]:
        """Measure the best in fresh rounds, or the next one if it does not hold."""
        failed: list[Outcome] = []
        for outcome in ordered[:_TOGETHER]:
            setting = setting_with(outcome.changes, self.laboratory.baseline)
            trial = self.laboratory.confirmed(outcome.key, setting)
            again = judged(outcome.changes, trial, setting, limits, self.effort.policy)
            if again.is_faster:
                return outcome, again, failed
            failed.append(again)
        return None, None, failed

    # -- files

    def _written(self, result: Remedies, setting: Setting) -> Remedies:
        """Write remedies.json, and of the best export its program, record and command."""
        folder, laboratory = self.laboratory.folder, self.laboratory
        contents = {REMEDIES_JSON: result.encoded()}
        if result.best is not None:
            program = laboratory.path(setting)
            contents["program.pte"] = program.read_bytes()
            contents["program.etrecord"] = program.with_suffix(".etrecord").read_bytes()
            contents[COMMAND] = f"{result.command}\n".encode()
        for name, content in contents.items():
            with atomic_write(folder / name) as file:
                file.write(content)
        return replace(result, files=tuple(folder / name for name in contents))
