"""Runs that differ: a drift, two speeds, disturbed runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.thresholds import ENOUGH_RUNS
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.units import format_share

_KINDS = ("drift", "two-speeds", "slow-runs")
_BUSY = 0.5  # load of a core before the run: others took it
_ALIKE = 0.5  # of the method's change: an operator that changes less counts as steady
_MOSTLY = 0.8  # of the time


def _find(facts: Facts) -> Iterator[Finding]:
    for found in facts.differences:
        # A slow first run is none of loading if others came before it.
        if found.kind not in _KINDS and not (found.kind == "first-run" and facts.is_warmed_up):
            continue
        total = facts.profile.every.total
        low, middle, high = (facts.time.text(float(np.percentile(total, p))) for p in (10, 50, 90))
        evidence = [
            f"Of {len(total):,} runs one in ten takes less than {low}, half take less than "
            f"{middle}, and one in ten takes more than {high}."
        ]
        alike = _share_that_changes(facts, found.kind)
        if alike >= _MOSTLY:
            evidence.append(
                f"Operators with {format_share(alike)} of the time change alike: it is the "
                "machine, not the model."
            )
        yield replace(
            found,
            kind=RULE.name,
            explanation=Explanation(
                Sureness.MEASURED, tuple(evidence), remedies=tuple(_remedies(facts, found.kind))
            ),
        )


def _share_that_changes(facts: Facts, kind: str) -> float:
    """The share of the usual time in leaves that are slower in the slow runs by at least half of
    what the method is."""
    every = facts.profile.every
    total = every.total
    if kind == "drift":
        later = np.arange(len(total)) >= len(total) // 2
        is_slow = later if total[later].mean() > total[~later].mean() else ~later
    else:
        is_slow = total > (total.min() + total.max()) / 2
    ratio = float(total[is_slow].mean() / total[~is_slow].mean()) - 1
    changing = everything = 0.0  # by the time in the other runs, which nothing disturbed
    for _, leaf in LeafTimes(every, facts.scale).members:
        slow, usual = (float(leaf.ticks[runs].mean()) for runs in (is_slow, ~is_slow))
        everything += usual
        changing += usual if slow - usual >= _ALIKE * ratio * usual else 0.0
    return changing / everything if everything else 0.0


def _remedies(facts: Facts, kind: str) -> Iterator[Remedy]:
    saved = facts.trace.saved_run
    conditions = None if saved is None else saved.conditions
    if conditions is not None and (conditions.load_per_core or 0.0) >= _BUSY:
        yield Remedy(
            f"Stop other work on that machine: the load was {conditions.load:.2f} on "
            f"{conditions.cores:,} cores before the first run."
        )
    governors = () if conditions is None else conditions.governors
    if any(name != "performance" for name in governors):
        yield Remedy(
            "Hold the clock: `cpupower frequency-set -g performance`, or the same in "
            "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor."
        )
    if kind == "drift":
        yield Remedy("Let the machine cool down, and run longer before: `--warmup 50`.")
    elif kind == "two-speeds":
        yield Remedy(
            "Keep the process on cores of one kind with a constant clock: `taskset -c 0-1 "
            "etscope run …`, with as many `--threads`."
        )
    if len(facts.profile.every.runs) < ENOUGH_RUNS:
        yield Remedy(f"Run more often: `--iterations {ENOUGH_RUNS}`.")


RULE = Rule("unsteady", "Runs that differ: times are not to be relied on", _find)
