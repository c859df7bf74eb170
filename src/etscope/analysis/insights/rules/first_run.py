"""A first run that is far longer than the later ones: memory is touched, caches are filled, and
some backends pack weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.counted import SLOW_RATIO
from etscope.formats.generation import PREFILL
from etscope.model.finding import (
    Explanation,
    Finding,
    Quantity,
    Remedy,
    Severity,
    Site,
    Sureness,
)
from etscope.units import TimeScale, format_share

_LEAST_NS = 1e6  # more than the later ones: less is not noticed by anybody
_SITES = 5


@dataclass(frozen=True, slots=True)
class _First:
    """The first execution and the median of the later ones, ns. load: of the method, None if not
    known. what: it in words."""

    first: float
    later: float
    load: float | None
    what: str


def _find(facts: Facts) -> Iterator[Finding]:
    in_dump = next((one for one in facts.differences if one.kind == RULE.name), None)
    command = ("run", "--warmup", "10")
    if facts.profile.phase is not None:
        command = ("generate", "--warmup", "1")
    if in_dump is not None:
        if not facts.is_warmed_up:  # else `unsteady` reports it, with the other runs that differ
            sites = _sites(facts)
            evidence = _evidence(facts, _first_of_dump(facts))
            if sites:
                evidence.append(
                    f"{sites[0].name} took {sites[0].time:.4g} {facts.scale.unit} more in the "
                    "first run."
                )
            yield replace(in_dump, command=command, explanation=_explained(facts, evidence, sites))
        return
    found = _first_of_run(facts) if Level.FULL in facts.level else None
    if found is None or found.first < SLOW_RATIO * found.later:
        return
    more = found.first - found.later
    if more < _LEAST_NS:
        return
    yield Finding(
        RULE.name,
        Severity.FACT,
        f"{found.what} takes {more / 1e6:.4g} ms ({format_share(more / found.first)}) longer than "
        "later ones.",
        facts.profile.method,
        Quantity(float(facts.scale(more / (facts.ns(1.0) or 1.0))), facts.scale.unit),
        None,
        command,
        _explained(facts, _evidence(facts, found)),
    )


def _explained(facts: Facts, evidence: Sequence[str], sites: tuple[Site, ...] = ()) -> Explanation:
    return Explanation(Sureness.MEASURED, tuple(evidence), sites, tuple(_remedies(facts)))


def _evidence(facts: Facts, found: _First | None) -> list[str]:
    if found is None:
        return []
    evidence = [
        f"{found.what} took {found.first / 1e6:.4g} ms; the median of the later ones is "
        f"{found.later / 1e6:.4g} ms."
    ]
    if found.load is not None:
        packs = ": there XNNPACK packs its weights" if _has_xnnpack(facts) else ""
        evidence.append(
            f"Loading before it took {found.load / 1e6:.4g} ms, as long as "
            f"{found.load / found.later:.3g} later runs{packs}."
        )
    return evidence


def _has_xnnpack(facts: Facts) -> bool:
    return any(
        group.head.kind == "delegate" and "Xnnpack" in group.head.name
        for group in facts.time.groups
    )


def _first_of_dump(facts: Facts) -> _First | None:
    """The first run of the dump, which was not warmed up; None for a clock of cycles."""
    total = facts.profile.every.total
    first, later = facts.ns(float(total[0])), facts.ns(float(np.median(total[1:])))
    if first is None or later is None:
        return None
    loads = [facts.ns(float(ticks.mean())) for ticks in facts.profile.load.values() if len(ticks)]
    return _First(first, later, max(filter(None, loads), default=None), "The first recorded run")


def _first_of_run(facts: Facts) -> _First | None:
    """Return the first execution before the dump's runs, from the untraced run in run.json."""
    saved, method = facts.trace.saved_run, facts.profile.method
    if saved is None or facts.scale.source is TimeScale.CYCLES:
        return None
    if saved.generation is not None:
        return _first_of_generation(facts)
    for latency in saved.latencies:
        known = latency.first_ns is not None and len(latency.samples_ns) > 1
        if latency.traced is None and latency.method == method and known:
            later = float(np.median(latency.samples_ns))
            load = None if latency.load_ns is None else float(latency.load_ns)
            return _First(float(latency.first_ns or 0), later, load, "The first execution")
    return None


def _first_of_generation(facts: Facts) -> _First | None:
    """Return the first token of the first generation after loading; only with the prefill, so that
    it is reported once."""
    saved = facts.trace.saved_run
    run = None if saved is None or saved.generation is None else saved.generation.of_pass(None)
    if run is None or run.cold_first_token_ns is None or facts.profile.phase != PREFILL:
        return None
    from etscope.analysis.generation.pace import Pace

    later = Pace.of(run).first_token_ns
    if not len(later):
        return None
    cold, load = float(run.cold_first_token_ns), float(run.load_ns)
    return _First(cold, float(np.median(later)), load, "The first token after loading")


def _sites(facts: Facts) -> tuple[Site, ...]:
    """The operators that are longer in the first run, those by most first."""
    found = [
        (float(leaf.ticks[0]) - float(np.median(leaf.ticks[1:])), group, leaf)
        for group, leaf in LeafTimes(facts.profile.every, facts.scale).members
    ]
    longest = sorted(found, key=lambda one: -one[0])[:_SITES]
    return tuple(
        Site(
            leaf.name,
            group.head.instruction_id,
            float(facts.scale(more)),
            leaf.attribution.module or None,
        )
        for more, group, leaf in longest
        if more > 0
    )


def _remedies(facts: Facts) -> Iterator[Remedy]:
    yield Remedy(
        "Load the method once and keep it, and execute it once before its answer is waited for "
        "(at the start of the app, on another thread)."
    )
    if _has_xnnpack(facts):
        yield Remedy(
            'Share packed weights: the option "weight_cache_enabled" of XnnpackBackend packs them '
            'once for all methods, and with "packed_cache_path" they are kept in a file.'
        )


RULE = Rule("first-run", "A first run that is far longer than the others", _find)
