"""The app's time of a generation beside the runtime's: what is left is the tokenizer's, the
sampler's and the host's.

The app times from the prompt's text to the first token (prefill) and on to the last (decode), on
its own clock in whole milliseconds. The runtime logs ``Method::execute`` of each call in the dump.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.counted_calls import CountedCall, counted_calls
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.errors import MismatchError, MissingDataError
from etscope.formats.app_report import AppReport
from etscope.formats.generation import DECODE, PREFILL, GenerationCalls
from etscope.model.finding import Files, Finding, Quantity, Severity, ranked
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale, format_count, format_share

# By how much the runtime's time may exceed the app's: the app's stamps are cut to milliseconds, and
# its wall clock may be slewed. The sum of n samplings, each between two stamps, has a standard
# deviation of at most half a millisecond times the root of n.
_STAMP_NS = 2_000_000
_CLOCKS = 0.01
_SAMPLING_NS = 1_500_000
# Methods that run beside the decoder in a call of it, or before it: see
# `extension/llm/runner/constants.h`.
_BESIDE = ("token_embedding", "vision_encoder", "audio_encoder", "encoder")
_GENERATE = "etscope generate"
_MOST_BLOCKS = 8  # that are tried
_FAR = 1.5
_NOTABLE = 0.1  # of the app's time: outside of the runtime


# -- The runtime's time of each call.


@dataclass(frozen=True, slots=True, eq=False)
class Executions:
    """The executions in a dump, in order: the method of each, None where it is not known; the index
    of its block in the trace, int64 [executions]; the time of its ``Method::execute``, float64
    [executions] in ns."""

    methods: tuple[str | None, ...]
    block: npt.NDArray[np.int64]
    ns: npt.NDArray[np.float64]

    def decoders(self) -> Iterator[npt.NDArray[np.bool_]]:
        """Yield masks of the executions that may be those which take the decoder's tokens.

        Without names these are all, or those of one or two blocks, a later one first: an embedding
        and an encoder run before the decoder.
        """
        beside = np.array([method in _BESIDE for method in self.methods], np.bool_)
        yield ~beside
        if None in self.methods:
            blocks = np.unique(self.block)[::-1][:_MOST_BLOCKS].tolist()
            for count in (1, 2):
                for chosen in combinations(blocks, count):
                    yield np.isin(self.block, chosen)


def executions(trace: Trace, clock: TimeScale = TimeScale.NS) -> Executions:
    """Return the executions of a dump; clock: of its ticks.

    Those without an instruction are left out if others have some: runners execute methods that
    only return a constant, such as `get_max_seq_len`.
    """
    scale = Scale(clock, TimeScale.NS)
    blocks = [(index, block) for index, block in enumerate(trace.blocks) if block.executions]
    working = [
        (index, block)
        for index, block in blocks
        if any(key.instruction is not None for key in block.keys)
    ]
    found: list[tuple[int, str | None, int, float]] = []
    for index, block in working or blocks:
        ns = scale(block.ticks[list(block.executions)].sum(axis=0))
        method = trace.method_of(block)
        pairs = zip(block.runs.tolist(), ns.tolist(), strict=True)
        found += [(run, method, index, time) for run, time in pairs]
    found.sort(key=lambda one: one[0])
    return Executions(
        tuple(one[1] for one in found),
        np.array([one[2] for one in found], np.int64),
        np.array([one[3] for one in found], np.float64),
    )


def decoder_calls(
    report: AppReport, ran: Executions
) -> tuple[npt.NDArray[np.bool_], tuple[CountedCall, ...]]:
    """Return a mask of the executions that take the decoder's tokens, and the call of each of
    these, as the app's numbers of tokens tell them. Of several ways the first is taken in which
    the runtime's time is within the app's.

    Raises `MismatchError` if no such calls make the executions of the dump, `MissingDataError` if
    the report does not tell its tokens."""
    counts = report.token_counts
    if counts is None:
        raise MissingDataError("the app's report does not tell its tokens")
    total = _sum(one.inference_ns for one in report.generations)
    fitting: list[tuple[npt.NDArray[np.bool_], tuple[CountedCall, ...]]] = []
    for warm_ups in (0, 1):  # an embedding makes twice as many runs, too
        for mask in ran.decoders():
            calls = counted_calls(counts, int(mask.sum()), warm_ups=(warm_ups,))
            if calls is None:
                continue
            fitting.append((mask, calls))
            reported = [call.generation >= 0 for call in calls]
            if total is None or ran.ns[mask][reported].sum() <= total * (1 + _CLOCKS) + _STAMP_NS:
                return mask, calls
    if fitting:
        return fitting[0]
    prompt, generated = map(sum, zip(*counts, strict=True))
    runs = int(next(ran.decoders()).sum())
    raise MismatchError(
        f"the app's log is of another run: {prompt:,} prompt and {generated:,} generated tokens "
        f"take {len(counts) + generated:,} to {prompt + generated:,} calls, the dump has {runs:,}",
        hint="give the log that was written when this dump was, of all generations that it has",
    )


# -- The two beside each other.


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """A phase, as the app and as the runtime timed it, in ns; None for what is not known.

    phase: "prefill", "decode", the method of an encoder, or "all". calls: executions of all its
    methods. tokens: that these took. sampling_ns: the choice of the next tokens.
    """

    phase: str
    calls: int | None
    tokens: int | None
    app_ns: float | None
    runtime_ns: float | None
    sampling_ns: float | None

    @property
    def difference_ns(self) -> float | None:
        """The app's time outside of the runtime. Negative where the two contradict each other."""
        if self.app_ns is None or self.runtime_ns is None:
            return None
        return self.app_ns - self.runtime_ns

    @property
    def share(self) -> float | None:
        """The difference as a fraction of the app's time."""
        return self.difference_ns / self.app_ns if self.difference_ns and self.app_ns else None

    @property
    def rest_ns(self) -> float | None:
        """The difference without the sampling: the tokenizer's and the host's."""
        return (
            None if self.difference_ns is None else self.difference_ns - (self.sampling_ns or 0.0)
        )


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The phases of a generation, the last of them "all", with findings and notes.

    source: of the times in `app_ns`: that of the app's report, or "etscope generate". by_token: the
    prompt was evaluated token by token. sampling_error_ns: how far the sum of sampling may be off.
    execution_ns: in `Module::execute` by the app's clock, None if it does not tell.
    """

    source: str
    phases: tuple[PhaseTime, ...]
    by_token: bool = False
    notes: tuple[str, ...] = ()
    sampling_error_ns: float = 0.0
    execution_ns: float | None = None

    def least(self, phase: PhaseTime) -> float:
        """Return the lowest difference that the clocks cannot tell from 0, in ns."""
        return -(_STAMP_NS + _CLOCKS * (phase.app_ns or 0.0))

    def least_rest(self, phase: PhaseTime) -> float:
        """Return the lowest rest that the clocks cannot tell from 0, in ns."""
        sampled = phase.sampling_ns is not None
        return self.least(phase) - (self.sampling_error_ns if sampled else 0.0)


def reconcile_app(
    trace: Trace,
    report: AppReport,
    clock: TimeScale = TimeScale.NS,
    known: GenerationCalls | None = None,
) -> Reconciliation:
    """Put an app's report beside the runtime's times in the dump of that run.

    clock: of the dump. known: the calls of the dump, if it is of `etscope generate`, with the same
    prompt: the mean of its generations stands for each of the app's.

    A report that does not tell its tokens, as those of benchmarks, has no runtime's times beside
    it: their dump is of other executions.

    Raises `MismatchError` if the dump's calls are not those of the report, `CyclesError` for a
    clock of cycles, `MissingDataError` for a dump without executions.
    """
    notes = _told(report)
    total = _sum(one.inference_ns for one in report.generations)
    if report.token_counts is None:
        row = PhaseTime("all", None, None, total, None, None)
        notes += ("The report does not tell its tokens: it cannot be put beside the dump.",)
        return Reconciliation(report.source, (row,), False, notes)
    ran = executions(trace, clock)
    if not len(ran.ns):
        raise MissingDataError(
            "the dump has no execution to put beside the app's report",
            hint="run a method with the tracer on",
        )
    timed = _counted(report, ran) if known is None else _known(report, ran, known)
    app = {
        PREFILL: _sum(one.prefill_ns for one in report.generations),
        DECODE: _sum(one.decode_ns for one in report.generations),
    }
    sampling = _sum(one.sampling_ns for one in report.generations)
    rows = [
        PhaseTime(phase, calls, tokens, app[phase], ns, sampling if phase == DECODE else None)
        for phase, (calls, tokens, ns) in timed.phases.items()
    ]
    calls, tokens, ns = (sum(values) for values in zip(*timed.phases.values(), strict=True))
    rows.append(PhaseTime("all", calls, tokens, total, ns, sampling))
    if timed.warm_up:
        notes += (f"{timed.warm_up:,} calls of a warm-up before are left out.",)
    error = 0.0
    if sampling is not None:
        sampled = sum(generated for _, generated in report.token_counts)
        error = _SAMPLING_NS * math.sqrt(sampled)
        notes += (
            f"Sampling is a sum of {sampled:,} times in whole milliseconds: it may be off by "
            f"{_ms(error)}.",
        )
    execution = _sum(one.execution_ns for one in report.generations)
    return Reconciliation(report.source, tuple(rows), timed.by_token, notes, error, execution)


@dataclass(frozen=True, slots=True)
class _Timed:
    """The runtime's part of a report: calls, tokens and ns by phase. warm_up: other calls."""

    phases: Mapping[str, tuple[int, int, float]]
    by_token: bool
    warm_up: int = 0


def _counted(report: AppReport, ran: Executions) -> _Timed:
    """The calls of a dump, as the app's numbers of tokens tell them."""
    decoder, calls = decoder_calls(report, ran)
    # An encoder and an embedding run before their decoder; what follows the last one is of that.
    of_run = np.minimum(np.cumsum(decoder) - decoder, len(calls) - 1)
    warm_up = np.array([call.generation < 0 for call in calls], np.bool_)[of_run]
    is_decode = np.array([call.phase == DECODE for call in calls], np.bool_)[of_run]
    kept = [call for call in calls if call.generation >= 0]
    phases = {
        phase: (
            int(mask.sum()),
            sum(call.tokens for call in kept if call.phase == phase),
            float(ran.ns[mask].sum()),
        )
        for phase, mask in ((PREFILL, ~warm_up & ~is_decode), (DECODE, ~warm_up & is_decode))
    }
    lengths = {call.tokens for call in kept if call.phase == PREFILL}
    by_token = lengths == {1} and (report.prompt_tokens or 0) > len(report.generations)
    return _Timed(phases, by_token, int(warm_up.sum()))


def _known(report: AppReport, ran: Executions, calls: GenerationCalls) -> _Timed:
    """The calls of `etscope generate`, for as many generations as the app reports."""
    tokens = _decoder_tokens(calls)
    _check_calls(ran, calls)
    factor = len(report.generations) / max(1, len(np.unique(calls.run)))
    is_decode = calls.in_phase(DECODE)
    phases = {
        phase: (
            round(factor * int(mask.sum())),
            round(factor * int(tokens[mask].sum())),
            factor * float(ran.ns[mask].sum()),
        )
        for phase, mask in ((PREFILL, ~is_decode), (DECODE, is_decode))
    }
    lengths = tokens[~is_decode & (tokens > 0)]
    return _Timed(phases, len(lengths) > 1 and bool((lengths == 1).all()))


def _decoder_tokens(calls: GenerationCalls) -> npt.NDArray[np.int64]:
    """The tokens of each call; 0 for an embedding's, which the decoder takes again."""
    beside = np.array([name in _BESIDE for name in calls.methods], np.bool_)
    return np.where(beside[calls.method], 0, calls.tokens)


def _check_calls(ran: Executions, calls: GenerationCalls) -> None:
    if len(ran.ns) != len(calls):
        raise MismatchError(
            f"run.json has {len(calls):,} calls, the dump {len(ran.ns):,}: they are not of one run"
        )


def reconcile_calls(
    trace: Trace, calls: GenerationCalls, clock: TimeScale = TimeScale.NS
) -> Reconciliation:
    """Put the times of `etscope generate` around each call beside the runtime's. clock: of the
    dump. Raises `MismatchError` if the dump has other calls."""
    ran = executions(trace, clock)
    _check_calls(ran, calls)
    # A call lasts until the next one begins; the last of each generation until its token is chosen.
    taken = calls.execute_ns + calls.sampling_ns
    same_run = calls.run[1:] == calls.run[:-1]
    taken[:-1][same_run] = np.diff(calls.start_ns)[same_run]
    tokens = _decoder_tokens(calls)
    masks = {phase: calls.in_phase(phase) for phase in calls.phases}
    masks = {phase: mask for phase, mask in masks.items() if mask.any()}
    masks["all"] = np.ones(len(calls), np.bool_)
    phases = tuple(
        PhaseTime(
            phase,
            int(mask.sum()),
            int(tokens[mask].sum()),
            float(taken[mask].sum()),
            float(ran.ns[mask].sum()),
            float(calls.sampling_ns[mask].sum()),
        )
        for phase, mask in masks.items()
    )
    return Reconciliation(_GENERATE, phases)


def _sum(values: Iterable[int | None]) -> float | None:
    known = list(values)
    return None if not known or None in known else float(sum(v for v in known if v is not None))


def _told(report: AppReport) -> tuple[str, ...]:
    """Sentences of what the report says beside its phases."""
    parts = []
    if report.first_token_ns is not None:
        parts.append(f"first token after {_ms(report.first_token_ns)}")
    rates = {"prompt": report.prefill_rate, "decode": report.decode_rate}
    if report.decode_rate is None:
        rates = {"in all": report.overall_rate}
    parts += [f"{what} {rate:,.1f} tokens/s" for what, rate in rates.items() if rate is not None]
    if report.load_ns is not None:
        parts.append(f"model loaded in {_ms(report.load_ns)}")
    told = [f"The app: {', '.join(parts)}."] if parts else []
    execution = _sum(one.execution_ns for one in report.generations)
    if execution is not None:
        told.append(f"By its own clock {_ms(execution)} were in Module::execute.")
    others = [
        f"{name} {value:,.4g}"
        for name, value in report.metrics.items()
        if name not in ("token_per_sec", "generate_time(ms)", "llm_model_load_time(ms)")
        and name != "load_status"
    ]
    if others:
        told.append(f"Its benchmark: {', '.join(others)}.")
    return tuple(told)


# -- Findings and the table.


def findings_of(reconciled: Reconciliation) -> tuple[Finding, ...]:
    """Return what matters in it, the heaviest first."""
    found: list[Finding] = []
    for phase in reconciled.phases:
        if phase.difference_ns is None or phase.rest_ns is None:
            continue
        if phase.difference_ns < reconciled.least(phase):
            sentence = (
                f"{_name(phase)}: the runtime's {_ms(phase.runtime_ns)} are more than the app's "
                f"{_ms(phase.app_ns)}. The dump is of another run, or its clock has another unit "
                "(--source-unit)."
            )
            found.append(Finding("app-contradicts", Severity.PROBLEM, sentence))
        elif phase.rest_ns < reconciled.least_rest(phase):
            sentence = (
                f"{_name(phase)}: the runtime's {_ms(phase.runtime_ns)} and "
                f"{_ms(phase.sampling_ns)} of sampling are more than the app's {_ms(phase.app_ns)}."
            )
            found.append(Finding("app-contradicts", Severity.PROBLEM, sentence))
    total = reconciled.phases[-1]
    execution = reconciled.execution_ns
    # It holds the runtime's time, and loading a method at its first execution.
    if execution is not None and total.runtime_ns is not None:
        stamps = _STAMP_NS + _SAMPLING_NS * math.sqrt(total.calls or 0)
        if not found and execution > _FAR * total.runtime_ns + stamps:
            sentence = (
                f"By the app's clock {_ms(execution)} were in Module::execute, but the dump has "
                f"{_ms(total.runtime_ns)}: it is of another run, or its clock has another unit "
                "(--source-unit)."
            )
            found.append(Finding("app-contradicts", Severity.PROBLEM, sentence))
    if not found and total.share is not None and total.difference_ns is not None:
        found.append(_outside(reconciled))
    prefill = next((one for one in reconciled.phases if one.phase == PREFILL), None)
    if reconciled.by_token and prefill is not None and prefill.runtime_ns is not None:
        share = prefill.runtime_ns / total.runtime_ns if total.runtime_ns else None
        sentence = (
            f"The prompt's {format_count(prefill.tokens)} tokens were evaluated one by one: a "
            "program exported with a dynamic length, or with a prefill method, takes them at once."
        )
        quantity = Quantity(prefill.runtime_ns / 1e6, "ms", share)
        found.append(Finding("prompt-by-token", Severity.COST, sentence, quantity=quantity))
    return ranked(found)


def _outside(reconciled: Reconciliation) -> Finding:
    """The finding of the app's time outside of the runtime."""
    total = reconciled.phases[-1]
    difference, share = total.difference_ns or 0.0, total.share or 0.0
    rest = "the host" if reconciled.source == _GENERATE else "the tokenizer and the host"
    parts = f"{_ms(max(0.0, total.rest_ns or 0.0))} of {rest}"
    if total.sampling_ns is not None and (total.rest_ns or 0.0) < 0:
        parts = f"no more than sampling, which took {_ms(total.sampling_ns)} in whole milliseconds"
    elif total.sampling_ns is not None:
        parts = f"{_ms(total.sampling_ns)} of sampling, {parts}"
    sentence = (
        f"{format_share(max(0.0, share))} of the {_ms(total.app_ns)} are outside of the runtime: "
        f"{parts}."
    )
    severity = Severity.COST if share >= _NOTABLE else Severity.FACT
    quantity = Quantity(difference / 1e6, "ms", share)
    return Finding("outside-the-runtime", severity, sentence, quantity=quantity)


def reconciliation_table(
    reconciled: Reconciliation, unit: TimeScale = TimeScale.MS, files: Files | None = None
) -> Table:
    """Return a row for each phase and one for all: the app's time, the runtime's, the difference
    and the parts of it. Times are in `unit`; those that the clocks cannot tell from 0 are 0."""
    scale = Scale(TimeScale.NS, unit)

    def shown(ns: float | None) -> float | None:
        return None if ns is None else float(scale(ns))

    def part(ns: float | None, least: float) -> float | None:
        return 0.0 if ns is not None and least <= ns < 0 else ns

    def time(name: str, title: str, priority: int = 0) -> Column:
        return Column(name, Kind.DURATION, unit.value, title, priority)

    columns = (
        Column("phase"),
        Column("calls", Kind.COUNT, priority=2),
        Column("tokens", Kind.COUNT, priority=3),
        time("app", "app"),
        time("runtime", "runtime"),
        time("difference", "difference"),
        Column("share", Kind.SHARE),
        time("sampling", "sampling", 1),
        time("rest", "host" if reconciled.source == _GENERATE else "tokenizer, host", 1),
    )
    content = []
    for one in reconciled.phases:
        difference = part(one.difference_ns, reconciled.least(one))
        rest = part(one.rest_ns, reconciled.least_rest(one))
        times = (one.app_ns, one.runtime_ns, difference)
        content.append(
            (
                *(one.phase, one.calls, one.tokens),
                *map(shown, times),
                difference / one.app_ns if difference is not None and one.app_ns else None,
                *map(shown, (one.sampling_ns, rest)),
            )
        )
    table = Table.of_rows(columns, content, title=f"{reconciled.source} and the runtime")
    last = frozenset({len(content) - 1}) if len(content) > 1 else frozenset()
    found = tuple(one.plain(files or Files()) for one in findings_of(reconciled))
    return replace(table, breaks=last, notes=reconciled.notes, findings=found)


def _name(phase: PhaseTime) -> str:
    return "In all" if phase.phase == "all" else phase.phase.capitalize()


def _ms(ns: float | None) -> str:
    value = (ns or 0.0) / 1e6
    return f"{value:,.0f} ms" if value.is_integer() or value >= 1000 else f"{value:.3g} ms"
