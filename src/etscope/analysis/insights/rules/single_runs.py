"""Times that one run decides: the average of a leaf, or all times of a dump."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from etscope.analysis.insights import thresholds
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.counted import SLOW_RATIO
from etscope.analysis.profile.profile import Leaf
from etscope.model.finding import Finding, Place, Severity
from etscope.model.statistics import statistic


def _find(facts: Facts) -> Iterator[Finding]:
    if (found := outlier(facts.time)) is not None:
        yield found
    yield from (one for one in facts.differences if one.kind == "measured-once")


def outlier(time: LeafTimes) -> Finding | None:
    """Find the leaf with the longest average of those that one run makes.

    A run that is slow as a whole is reported itself, not each of its leaves.
    """
    if len(time.profile.runs) < thresholds.OUTLIER_FEWEST:
        return None
    totals = time.profile.total
    is_slow = totals >= SLOW_RATIO * np.median(totals)
    found: list[tuple[float, Leaf]] = []
    for group, leaf in time.members:
        mean, most = time.averages[id(leaf)], float(leaf.ticks.max())
        others = (mean * len(leaf.ticks) - most) / (len(leaf.ticks) - 1)
        if others < thresholds.OUTLIER_DROP * mean and not is_slow[leaf.ticks.argmax()]:
            found.append((mean, (group, leaf)))
    if not found:
        return None
    mean, (group, leaf) = max(found, key=lambda item: item[0])
    if time.share(mean) < thresholds.OUTLIER_SHARE:
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


RULE = Rule("single-runs", "What one run decides", _find)
