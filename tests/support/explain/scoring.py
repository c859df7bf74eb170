"""Findings of `etscope explain` about models of `cases`, and whether they are right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.insights import insights
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.export import Exported
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.finding import Finding, Severity
from etscope.units import TimeScale
from tests.support.explain.cases import Made, Places, Seeded
from tests.support.explain.recording import DUMP, RECORD, least_ns

FIRST = 3  # findings, among which the seeded one has to be
LARGE = 0.1  # of the time: a finding of a clean model that has more must be true
LEAST = 1.05  # times that of the clean model: the time of a model that is taken for slow

# The rules that are right about each kind.
KINDS: dict[str, frozenset[str]] = {
    kind: frozenset(rules.split())
    for kind, rules in {
        "island": "outside-delegates",
        "island in int8": "outside-delegates float-among-quantized",
        "part in another type": "untaken-types outside-delegates",
        "type": "untaken-types not-delegated",
        "safe softmax": "lost-fusion",
        "in parts": "lost-fusion",
        "weight prepared": "layout-conversions runtime-constants needless-copies outside-delegates",
        "layout": "layout-conversions",
        "copies": "needless-copies layout-conversions runtime-constants",
        "constant": "runtime-constants",
        "cancelling": "cancelling-quantization",
        "float in int8": "float-among-quantized float-weights",
        "nothing delegated": "not-delegated",
        "tiny": "small-operators unrolled-loops",
        "cache": "whole-caches rewritten-buffers outside-delegates",
        "memory": "memory-bound float-weights",
        "threads": "threads",
    }.items()
}

_LAYER_NORM = "XNNPACK has no layer norm: the time of the kernels and at their borders is measured"
_REINPLACE = "true: with the pass reinplace the step takes 0.68 of its time (171 to 116 us)"

# Findings that are true of any model, with the reason.
ALLOWED_ANYWHERE: dict[str, str] = {
    "float-weights": "XNNPACK has these operators in int8: a possibility, listed last",
    "first-run": "it is measured, and a fact; its share is of the first run, not of all runs",
}

# Findings of clean models that are true all the same: by model and rule, with the reason.
ALLOWED: dict[str, dict[str, str]] = {
    "transformer with layer norm": {"outside-delegates": _LAYER_NORM},
    "decoder step": {"rewritten-buffers": _REINPLACE},
}


def facts_of(folder: Path) -> Facts:
    """Open the files that `recorded` wrote, for rules to look at."""
    trace = Trace(dump=read_etdump(folder / DUMP), record=read_etrecord(folder / RECORD))
    (profile,) = trace.profiles()
    return Facts(trace, profile, Scale(TimeScale.NS, TimeScale.MS))


def findings_of(folder: Path) -> Sequence[Finding]:
    return insights(facts_of(folder))


def slowdown(slow: Exported, seeded: Made, fast: Exported, clean: Made, rounds: int = 4) -> float:
    """Return how many times longer the seeded model takes than the clean one: by the least times
    of runs without a trace, which take turns."""
    least = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, (program, made) in enumerate(((slow, seeded), (fast, clean))):
            least[side] = min(least[side], least_ns(program, made, 20))
    return least[0] / least[1]


def planted_share(facts: Facts, places: Places) -> float:
    """The share of the time that leaves on planted lines or in planted modules take."""
    sites = [(one, facts.sites([one])[0]) for one in facts.time.members]
    held = [one for one, site in sites if places.holds(site.module, site.line)]
    return facts.time.share(facts.time.ticks(held))


def rank(case: Seeded, places: Places | None, findings: Sequence[Finding]) -> int | None:
    """The place of the first finding that names what is planted by a right rule, from 1.

    Findings that the times are not to be relied on are not counted: they are about the machine.
    """
    counted = (one for one in findings if one.severity is not Severity.PROBLEM)
    for number, one in enumerate(counted, 1):
        if one.kind in KINDS[case.kind] and (places is None or names(one, places)):
            return number
    return None


def names(finding: Finding, places: Places) -> bool:
    """Return whether a planted operator is among those that a finding names."""
    sites = () if finding.explanation is None else finding.explanation.sites
    return any(places.holds(one.module, one.line) for one in sites)


def large(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings with more than a tenth of the time, without those about the machine."""
    for one in findings:
        if (
            one.severity is not Severity.PROBLEM
            and one.quantity is not None
            and (one.quantity.share or 0.0) > LARGE
        ):
            yield one


def false_findings(name: str, findings: Sequence[Finding]) -> list[Finding]:
    """The large findings of a clean model that are not known to be true."""
    allowed = {**ALLOWED_ANYWHERE, **ALLOWED.get(name, {})}
    return [one for one in large(findings) if one.kind not in allowed]
