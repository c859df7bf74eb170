"""Runs that differ from each other, and the threads that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from etscope.analysis.insights.facts import Facts, Level, explained
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.steadiness import ENOUGH_RUNS
from etscope.analysis.profile.counted import SLOW_RATIO
from etscope.analysis.profile.profile import Leaf
from etscope.formats.generation import PREFILL
from etscope.formats.run_json import SavedLatency
from etscope.model.finding import (
    Explanation,
    Finding,
    Place,
    Quantity,
    Remedy,
    Severity,
    Site,
    Sureness,
)
from etscope.model.statistics import median, percentiles, statistic
from etscope.units import TimeScale, count, format_share

_LEAST_NS = 1e6  # more than the later ones: no user notices a millisecond
_SITES = 5  # operators that are named; the first few hold most of the difference


@dataclass(frozen=True, slots=True)
class _First:
    """The first execution and the median of the later ones, ns. load: of the method, None if not
    known. what: it in words."""

    first: float
    later: float
    load: float | None
    what: str

    @classmethod
    def of_dump(cls, facts: Facts) -> _First | None:
        """The first run of the dump, which was not warmed up; None for a clock of cycles."""
        total = facts.profile.every.total
        first, later = facts.ns(float(total[0])), facts.ns(median(total[1:]))
        if first is None or later is None:
            return None
        untraced = _untraced(facts)  # the time that `run` shows; tracing adds to it
        if untraced is None or untraced.load_ns is None:
            loads = [facts.ns(float(ns.mean())) for ns in facts.profile.load.values() if len(ns)]
            load = max(filter(None, loads), default=None)
        else:
            load = float(untraced.load_ns)
        return cls(first, later, load, "The first recorded run")

    @classmethod
    def of_run(cls, facts: Facts) -> _First | None:
        """The first execution before the dump's runs, from the untraced run in run.json. For a
        generation it is the first token after loading, reported for the prefill only.
        """
        saved = facts.trace.saved_run
        if saved is None or facts.scale.source is TimeScale.CYCLES:
            return None
        if saved.generation is not None:
            run = saved.generation.untraced
            if run is None or run.cold_first_token_ns is None or facts.profile.phase != PREFILL:
                return None
            from etscope.analysis.generation.pace import Pace

            cold, later = float(run.cold_first_token_ns), Pace.of(run).first_token_ns
            what = "The first token after loading"
            middle = median(later) if len(later) else 0.0
            return cls(cold, middle, float(run.load_ns), what) if len(later) else None
        one = _untraced(facts)
        if one is None or one.first_ns is None or len(one.samples_ns) < 2:
            return None
        load = None if one.load_ns is None else float(one.load_ns)
        return cls(float(one.first_ns), median(one.samples_ns), load, "The first execution")


def _untraced(facts: Facts) -> SavedLatency | None:
    """The method's times without tracing, from run.json; None without them."""
    saved = facts.trace.saved_run
    latencies = () if saved is None else saved.latencies
    own = (one for one in latencies if one.traced is None and one.method == facts.profile.method)
    return next(own, None)


def first_run(facts: Facts) -> Iterator[Finding]:
    """A first run that is far longer than the later ones: memory is touched, caches are filled,
    and some backends pack weights."""
    in_dump = next((one for one in facts.differences if one.kind == "first-run"), None)
    command = ("run", "--warmup", "10")
    if facts.profile.phase is not None:
        command = ("generate", "--warmup", "1")
    if in_dump is not None:
        if not facts.is_warmed_up:  # else `unsteady` reports it, with the other runs that differ
            more = [
                (float(leaf.ticks[0]) - median(leaf.ticks[1:]), group, leaf)
                for group, leaf in LeafTimes(facts.profile.every, facts.scale).members
            ]
            sites = tuple(
                Site(
                    leaf.name,
                    group.head.instruction_id,
                    float(facts.scale(ticks)),
                    leaf.attribution.module or None,
                )
                for ticks, group, leaf in sorted(more, key=lambda one: -one[0])[:_SITES]
                if ticks > 0
            )
            explanation = _slow_start(facts, _First.of_dump(facts), sites)
            yield replace(in_dump, command=command, explanation=explanation)
        return
    found = _First.of_run(facts) if Level.FULL in facts.level else None
    if found is None or found.first < SLOW_RATIO * found.later:
        return
    longer = found.first - found.later
    if longer < _LEAST_NS:
        return
    yield Finding(
        "first-run",
        Severity.FACT,
        f"{found.what} takes {longer / 1e6:.4g} ms ({format_share(longer / found.first)}) longer "
        "than later ones.",
        facts.profile.method,
        Quantity(float(facts.scale(longer / (facts.ns(1.0) or 1.0))), facts.scale.unit),
        None,
        command,
        _slow_start(facts, found),
    )


def _slow_start(facts: Facts, found: _First | None, sites: tuple[Site, ...] = ()) -> Explanation:
    """Explain a long first run. sites: the operators that are longer in it, those
    by most first."""
    heads = [group.head for group in facts.time.groups]
    has_xnnpack = any(row.kind == "delegate" and _PARALLEL in row.name for row in heads)
    evidence = []
    if found is not None:
        evidence.append(
            f"{found.what} took {found.first / 1e6:.4g} ms; the median of the later ones is "
            f"{found.later / 1e6:.4g} ms."
        )
        if found.load is not None:
            packs = ": there XNNPACK packs its weights" if has_xnnpack else ""
            evidence.append(
                f"Loading took {found.load / 1e6:.4g} ms, as long as "
                f"{found.load / found.later:.3g} later runs{packs}."
            )
    evidence += (
        f"{one.name} took {one.time:.4g} {facts.scale.unit} more in the first run."
        for one in sites[:1]
    )
    remedies = [
        Remedy(
            "Load the method once and keep it, and execute it once before its result is "
            "needed (at the start of the app, on another thread)."
        )
    ]
    if has_xnnpack:
        remedies.append(
            Remedy(
                'Share packed weights: the option "weight_cache_enabled" of XnnpackBackend packs '
                'them once for all methods, and with "packed_cache_path" they are kept in a file.'
            )
        )
    return replace(explained(Sureness.MEASURED, evidence, remedies), sites=sites)


_KINDS = ("drift", "two-speeds", "slow-runs")
_BUSY = 0.5  # load of a core before the run: others took it
_ALIKE = 0.5  # of the method's change: an operator that changes less counts as steady
_MOSTLY = 0.8  # of the time in operators that change alike: the rest is noise of short ones


def unsteady(facts: Facts) -> Iterator[Finding]:
    """Runs that differ: a drift, two speeds, disturbed runs."""
    for found in facts.differences:
        # A slow first run is none of loading if others came before it.
        if found.kind not in _KINDS and not (found.kind == "first-run" and facts.is_warmed_up):
            continue
        total = facts.profile.every.total
        low, middle, high = map(facts.time.text, percentiles(total, (10, 50, 90)).tolist())
        evidence = [
            f"Of {len(total):,} runs one in ten takes less than {low}, half take less than "
            f"{middle}, and one in ten takes more than {high}."
        ]
        later = np.arange(len(total)) >= len(total) // 2
        is_slow = total > (total.min() + total.max()) / 2
        if found.kind == "drift":
            is_slow = later if total[later].mean() > total[~later].mean() else ~later
        ratio = float(total[is_slow].mean() / total[~is_slow].mean()) - 1
        changing = everything = 0.0  # by the time in the other runs, which nothing disturbed
        for _, leaf in LeafTimes(facts.profile.every, facts.scale).members:
            slow, usual = (float(leaf.ticks[runs].mean()) for runs in (is_slow, ~is_slow))
            everything += usual
            changing += usual if slow - usual >= _ALIKE * ratio * usual else 0.0
        alike = changing / everything if everything else 0.0
        if alike >= _MOSTLY:
            evidence.append(
                f"Operators with {format_share(alike)} of the time vary in the same way: "
                "the cause is the machine, not the model."
            )
        explanation = explained(Sureness.MEASURED, evidence, _steadier(facts, found.kind))
        yield replace(found, kind="unsteady", explanation=explanation)


def _steadier(facts: Facts, kind: str) -> Iterator[Remedy]:
    conditions = facts.conditions
    if conditions is not None and (conditions.load_per_core or 0.0) >= _BUSY:
        yield Remedy(
            f"Stop other work on that machine: the load was {conditions.load:.2f} on "
            f"{conditions.cores:,} cores before the first run."
        )
    governors = () if conditions is None else conditions.governors
    if any(name != "performance" for name in governors):
        yield Remedy(
            "Fix the clock frequency: `cpupower frequency-set -g performance`, or the same "
            "in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor."
        )
    if kind == "drift":
        yield Remedy("Let the machine cool down, and warm up longer: `--warmup 50`.")
    elif kind == "two-speeds":
        yield Remedy(
            "Keep the process on cores of one kind with a constant clock: `taskset -c 0-1 "
            "etscope run …`, with as many `--threads`."
        )
    if len(facts.profile.every.runs) < ENOUGH_RUNS:
        yield Remedy(f"Run more often: `--iterations {ENOUGH_RUNS}`.")


OUTLIER_SHARE = 0.02  # of an average that one run makes: less is not worth a line
# An average that would be less than half without its longest run, as the page marks it (▲).
OUTLIER_DROP = 0.5
OUTLIER_FEWEST = 3  # runs: of two, each makes half of the average


def single_runs(facts: Facts) -> Iterator[Finding]:
    """Times that one run decides: the average of a leaf, or all times of a dump."""
    if (found := outlier(facts.time)) is not None:
        yield found
    yield from (one for one in facts.differences if one.kind == "measured-once")


def outlier(time: LeafTimes) -> Finding | None:
    """Find the leaf with the longest average among those whose average one run decides.

    A run that is slow as a whole is reported itself, not each of its leaves.
    """
    if len(time.profile.runs) < OUTLIER_FEWEST:
        return None
    totals = time.profile.total
    is_slow = totals >= SLOW_RATIO * median(totals)
    found: list[tuple[float, Leaf]] = []
    for group, leaf in time.members:
        mean, most = time.averages[id(leaf)], float(leaf.ticks.max())
        others = (mean * len(leaf.ticks) - most) / (len(leaf.ticks) - 1)
        if others < OUTLIER_DROP * mean and not is_slow[leaf.ticks.argmax()]:
            found.append((mean, (group, leaf)))
    if not found:
        return None
    mean, (group, leaf) = max(found, key=lambda item: item[0])
    if time.share(mean) < OUTLIER_SHARE:
        return None
    at = int(leaf.ticks.argmax())
    others = (mean * len(leaf.ticks) - float(leaf.ticks[at])) / (len(leaf.ticks) - 1)
    more = f" ({len(found) - 1} more averages are like this)" if len(found) > 1 else ""
    sentence = (
        f"One run makes the average of {leaf.name}, {time.with_share(mean)}: "
        f"{time.text(float(leaf.ticks[at]))} in run {int(time.profile.runs[at])}, "
        f"{time.text(others)} on average in the others, "
        f"{time.text(statistic(leaf.ticks, 'p50'))} as a median{more}."
    )
    number = group.head.instruction_id
    return Finding(
        "outlier",
        Severity.COST,
        sentence,
        time.profile.method,
        time.quantity(mean),
        Place("events", name=leaf.name, instruction=number),
        ("inspect", "--select", f"id:{number}", "--columns", "event,avg,p50,min,max,first"),
    )


_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")  # "0-3,6"
# XNNPACK divides its operators among the threads of the pool; portable kernels use one.
_PARALLEL = "Xnnpack"
# XNNPACK divides a product however small it is, and no additions of a few elements. To wake a
# thread and to wait for it took half a microsecond on two cores: 40 linear layers took 1.6 times as
# long with two threads as with one at 2 kFLOP a layer, 1.4 times at 33, and 0.9 times at 262.
_DIVIDED = ("Fully Connected", "Dynamic Fully Connected", "Convolution", "Batch Matrix Multiply")
_SMALL_FLOPS = 1e5
_SMALL_SHARE = 0.3  # of the method's time in such operators; threads cost a part of it
_LARGE_FLOPS = 5e6  # an operator this large gains from a thread for each part
_LARGE_SHARE = 0.5  # of the time in them: a second thread then saves a quarter at best


def threads(facts: Facts) -> Iterator[Finding]:
    """A thread pool that does not fit the cores of the machine, or the size of the work."""
    threads, conditions = facts.threads, facts.conditions
    cpus = "" if conditions is None else conditions.cpus
    parts = re.findall(r"(\d+)-?(\d*)", cpus) if _CPUS.fullmatch(cpus) else []
    allowed = sum(int(last or first) - int(first) + 1 for first, last in parts)
    cores = None if conditions is None else allowed or conditions.cores
    members = [
        member
        for member in facts.time.members
        if _PARALLEL in member[0].head.name and member[1].kind in ("delegate", "delegated")
    ]
    if threads is None or not members:
        return
    if cores is not None and threads > cores:
        could_use = count(cores, "core")
        evidence = [f"The run had {threads:,} threads, and could use {could_use}."]
        yield facts.finding(
            "threads",
            f"{threads:,} threads share {could_use} in the operators of XNNPACK, which take "
            f"{facts.time.taken(members)}: threads with a core wait for those without.",
            members,
            explained(Sureness.LIKELY, evidence, [_set_threads(cores)]),
        )
    elif threads > 1:
        yield from _for_small_work(facts, threads)
    elif cores is not None and cores > 1:
        yield from _on_one_thread(facts, members, cores)


def _for_small_work(facts: Facts, threads: int) -> Iterator[Finding]:
    """Delegate calls of products so small that to divide them takes longer than it saves."""
    products: list[Leaf] = []
    members: list[Leaf] = []
    for group in facts.time.groups:
        events = [row for row in group.below if row.kind == "delegated"]
        divided = [(group, row) for row in events if row.name.startswith(_DIVIDED)]
        is_made_of = _PARALLEL in group.head.name and 2 * len(divided) >= max(1, len(events))
        works = [(facts.work_of(one), max(1.0, float(one[1].calls.mean()))) for one in divided]
        if is_made_of and all(
            not work.unknown and 0 < work.flops < _SMALL_FLOPS * calls for work, calls in works
        ):
            products += divided
            members += [(group, leaf) for leaf in group.leaves]  # events may round to nothing
    if facts.time.share(facts.time.ticks(members)) < _SMALL_SHARE:
        return
    calls = sum(float(leaf.calls.mean()) for _, leaf in products)
    flops = facts.work_of(*products).flops
    found = facts.finding(
        "threads",
        f"{threads:,} threads split {calls:,.0f} small matrix products of XNNPACK (each "
        f"below {_SMALL_FLOPS / 1000.0:g} kFLOP), in delegate calls that take "
        f"{facts.time.taken(members)}: one thread may be faster.",
        members,
        explained(
            Sureness.POSSIBLE,
            [
                f"On average a product computes {flops / max(1.0, calls) / 1e3:.3g} kFLOP.",
                "Waking threads and waiting for them takes a part of each; only runs with fewer "
                "threads show how much.",
            ],
            [_set_threads(1)],
        ),
    )
    # A part of that time; this run cannot show how large.
    yield replace(found, severity=Severity.FACT)


def _on_one_thread(facts: Facts, members: Sequence[Leaf], cores: int) -> Iterator[Finding]:
    """Find large operators on one thread while cores are idle."""
    large = [member for member in members if facts.work_of(member).flops >= _LARGE_FLOPS]
    ticks = facts.time.ticks(large)
    if facts.time.share(ticks) < _LARGE_SHARE:
        return
    ns = facts.ns(ticks)
    rate = "" if not ns else f", at {facts.work_of(*large).flops / ns:.3g} GFLOP/s"
    many = len(large) > 1
    yield facts.finding(
        "threads",
        f"One thread computes {'large operators' if many else 'a large operator'} of XNNPACK, "
        f"{facts.time.with_share(ticks)}, and {count(cores - 1, 'core')} could help.",
        large,
        explained(
            Sureness.POSSIBLE,
            [
                f"The run had 1 thread, and could use {cores:,} cores.",
                f"{count(len(large), 'operator')} of {_LARGE_FLOPS / 1e6:g} MFLOP or more "
                f"take{'' if many else 's'} {format_share(facts.time.share(ticks))} of the "
                f"time{rate}.",
            ],
            [_set_threads(cores)],
        ),
    )


def _set_threads(threads: int) -> Remedy:
    return Remedy(
        f"Run with {count(threads, 'thread')}: `etscope run --threads {threads}`; in an app "
        f"`get_threadpool()->_unsafe_reset_threadpool({threads})` of extension/threadpool.",
        "threads",
        {"threads": threads},
    )
