"""Findings of `etscope explain` about models of `cases`, and whether they are right."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from etscope.analysis.explain.explain import explain
from etscope.analysis.explain.facts import Facts
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeWarning
from etscope.export import Exported, export
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.finding import Finding, Severity
from etscope.run import Run, run
from etscope.units import TimeScale
from tests.support.explain.cases import (
    ALLOWED,
    ALLOWED_ANYWHERE,
    KINDS,
    Made,
    Places,
    Seeded,
)

FIRST = 3  # findings, among which the seeded one has to be
LARGE = 0.1  # of the time: a finding of a clean model that has more must be true
LEAST = 1.05  # times that of the clean model: the time of a model that is taken for slow
SECONDS = 0.4  # of a run: other processes take their turns, each of which is a few ms
THREADS = 2
_DUMP, _RECORD = "run.etdp", "model.etrecord"


def exported(made: Made) -> Exported:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EtscopeWarning)  # of what is not delegated
        return export(made.model, made.inputs, **{"backend": "xnnpack", **made.export})


def recorded(made: Made, folder: Path) -> Exported:
    """Export and run a model, and write the files of the run and the record into a folder."""
    found = exported(made)
    record_run(found, made, folder)
    return found


def record_run(found: Exported, made: Made, folder: Path) -> None:
    """Run an exported model, and write the files of the run and the record into a folder."""
    once = _least(found, made, 3) / 1e9
    with _run(found, made, iterations=int(min(300, max(8, SECONDS / once)))) as done:
        done.save(folder)
    found.record.save(folder / _RECORD)


def is_recorded(folder: Path) -> bool:
    return (folder / _RECORD).exists()


def facts_of(folder: Path) -> Facts:
    """Open the files that `recorded` wrote, for rules to look at."""
    trace = Trace(dump=read_etdump(folder / _DUMP), record=read_etrecord(folder / _RECORD))
    (profile,) = trace.profiles()
    return Facts(trace, profile, Scale(TimeScale.NS, TimeScale.MS))


def findings_of(folder: Path) -> Sequence[Finding]:
    return explain(facts_of(folder))


def slowdown(slow: Exported, seeded: Made, fast: Exported, clean: Made, rounds: int = 4) -> float:
    """Return how many times longer the seeded model takes than the clean one: by the least times
    of runs without a trace, which take turns."""
    least = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, (program, made) in enumerate(((slow, seeded), (fast, clean))):
            least[side] = min(least[side], _least(program, made, 20))
    return least[0] / least[1]


def _least(program: Exported, made: Made, iterations: int) -> float:
    """The least time of a run without a trace, in ns."""
    with _run(program, made, iterations=iterations, trace=False) as done:
        return float(done.latency.samples_ns.min())


def _run(program: Exported, made: Made, **options: Any) -> Run:
    return run(
        program.program,
        made.inputs,
        warmup=3,
        isolate=False,
        runner="python",
        verify=False,
        **{"threads": THREADS, **options, **made.run},
    )


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
