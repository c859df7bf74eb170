"""Time of a method that none of its instructions accounts for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.thresholds import FRAMEWORK_SHARE
from etscope.model.finding import Explanation, Finding, Remedy, Sureness


def _find(facts: Facts) -> Iterator[Finding]:
    ticks = facts.profile.unaccounted
    average = float(ticks.mean())
    if facts.time.share(average) < FRAMEWORK_SHARE:
        return
    count = len(facts.time.groups)
    each = facts.time.text(float(np.median(ticks)) / max(1, count))
    evidence = [f"{count:,} instructions ran, with {each} between each and the next."]
    sureness = Sureness.POSSIBLE
    untraced = facts.untraced_ns
    own = facts.ns(float(np.median(ticks)))
    if untraced is not None and own is not None:
        without, traced = untraced
        evidence.append(
            f"Without tracing the median run takes {without / 1e6:.4g} ms, with it "
            f"{traced / 1e6:.4g} ms."
        )
        left = own - max(0.0, traced - without)
        if left < FRAMEWORK_SHARE * traced:
            return  # tracing accounts for it
        sureness = Sureness.LIKELY
    found = facts.part(
        RULE.name,
        f"No instruction accounts for {facts.time.with_share(average)}: the runtime's "
        "own work between them"
        + ("." if sureness is Sureness.LIKELY else ", and what tracing costs."),
        ticks,
        Explanation(
            sureness,
            tuple(evidence),
            remedies=(
                Remedy(
                    "Have fewer and larger instructions: lower the operators between delegates, "
                    "and compute in one call what a loop in Python does in many."
                ),
                Remedy(
                    "Measure without events inside: `etscope run -X profiling_level=method` shows "
                    "what tracing costs."
                ),
            ),
        ),
    )
    yield replace(found, command=("inspect", "--by", "type"))


RULE = Rule("outside-instructions", "Time outside of instructions", _find)
