"""Calls with so little to compute that making the call takes a large part of their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from etscope.analysis.insights.facts import Facts, Ticks
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.profile import InstructionRows, Leaf
from etscope.analysis.program.source_location import short_lines
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.units import format_bytes, format_share

_FEWEST = 8  # calls: fewer can be looked at one by one
_SHARE = 0.1  # of the method's time that making calls takes
# A call that reads and writes less, and computes less, has next to nothing to do: any processor
# does that in a fraction of what a call takes.
_NOTHING_BYTES = 512
_NOTHING_FLOPS = 512
_TIMES = 3.0  # the cost of a call: shorter ones are mostly that
_ONE_LINE = 0.5  # of the calls


@dataclass(frozen=True)
class _Cost:
    """The cost of a call in ticks, and how it is known, in words."""

    ticks: float
    known_by: str
    sureness: Sureness


def _find(facts: Facts) -> Iterator[Finding]:
    for kinds, noun in ((("kernel", "control"), "kernel"), (("delegate",), "delegate call")):
        heads = [group for group in facts.time.groups if group.head.kind in kinds]
        if len(heads) >= _FEWEST:
            yield from _of_kind(facts, heads, noun)


def _of_kind(facts: Facts, groups: Sequence[InstructionRows], noun: str) -> Iterator[Finding]:
    cost = _calibrated(facts, noun) or _measured(facts, groups, noun)
    if cost is None:
        return
    small = [
        group
        for group in groups
        if np.median(group.head.ticks) < _TIMES * cost.ticks * group.head.calls.mean()
    ]
    if len(small) < _FEWEST:
        return
    ticks: Ticks = np.sum(
        [np.minimum(group.head.ticks, cost.ticks * group.head.calls) for group in small], axis=0
    )
    # By medians: one run that was interrupted would hide it.
    if np.median(ticks) < _SHARE * np.median(facts.profile.total):
        return
    calls = sum(float(group.head.calls.mean()) for group in small)
    members = [(group, leaf) for group in small for leaf in group.leaves]
    whole = facts.time.ticks(members)
    evidence = [
        f"{cost.known_by}; {len(small):,} of {len(groups):,} take less than {_TIMES:g} times that, "
        f"{facts.time.with_share(whole)} together.",
    ]
    work = None if facts.work is None else facts.work.of([group.head for group in small])
    if work is not None and not work.unknown:
        evidence.append(
            f"All of them compute {work.flops:,.0f} FLOPs and read and write "
            f"{format_bytes(work.traffic.total)}."
        )
    without, traced = (ns / 1e6 for ns in facts.untraced_ns or (0.0, 0.0))
    if traced > without:
        evidence.append(
            f"Tracing adds to each: a run takes {without:.4g} ms without and {traced:.4g} ms with "
            "it."
        )
    yield facts.part(
        RULE.name,
        f"{calls:,.0f} {noun}s have so little to do that making the calls takes "
        f"{facts.time.with_share(float(ticks.mean()))}.",
        ticks,
        Explanation(
            cost.sureness,
            tuple(evidence),
            tuple(facts.sites(members)),
            tuple(_remedies(facts, members, noun)),
        ),
    )


def _calibrated(facts: Facts, noun: str) -> _Cost | None:
    limits = facts.limits
    peaks = None if limits is None else limits.peaks
    each = facts.ns(1.0)
    if peaks is None or not each:
        return None
    ns = peaks.dispatch_ns if noun == "kernel" else peaks.delegate_call_ns
    if ns is None:
        return None
    known_by = f"With next to nothing to do a {noun} takes {ns / 1e3:.3g} us by the calibration"
    return _Cost(ns / each, known_by, Sureness.LIKELY)


def _measured(facts: Facts, groups: Sequence[InstructionRows], noun: str) -> _Cost | None:
    """The median of the calls of this run that have next to nothing to do."""
    if facts.work is None:
        return None
    idle = []
    for group in groups:
        work, calls = facts.work.of([group.head]), float(group.head.calls.mean())
        if work is None or work.unknown or work.is_bound or not calls:
            continue
        if work.flops <= _NOTHING_FLOPS * calls and work.traffic.total <= _NOTHING_BYTES * calls:
            idle.append(float(np.median(group.head.ticks)) / calls)
    if len(idle) < 3:
        return None
    ticks = float(np.median(idle))
    ns = facts.ns(ticks)
    each = f"{ticks:,.0f} cycles" if ns is None else f"{ns / 1e3:.3g} us"
    known_by = (
        f"{len(idle):,} {noun}s of this run that read and write at most {_NOTHING_BYTES} bytes "
        f"take {each} each (median, traced)"
    )
    return _Cost(ticks, known_by, Sureness.LIKELY)


def _remedies(facts: Facts, members: Sequence[Leaf], noun: str) -> Iterator[Remedy]:
    lines = Counter(
        short_lines(leaf.attribution.lines[:1]) for _, leaf in members if leaf.attribution.lines
    )
    line, count = lines.most_common(1)[0] if lines else ("", 0)
    if count >= max(_FEWEST, _ONE_LINE * len(members)):
        yield Remedy(
            f"{line} makes {format_share(count / len(members))} of them: a loop, which export "
            "writes out step by step. Compute all steps in one operator (stack them, and use a "
            "matrix product or `torch.einsum`), or take several steps a run."
        )
    if noun == "delegate call":
        yield Remedy(
            "Lower the operators between the calls too, so that neighbours become one: "
            "`etscope graph` and docs/how-to/delegates.md show what refused them."
        )
    elif any(group.head.kind == "delegate" for group in facts.time.groups):
        yield Remedy(
            "Lower them to the backend of their neighbours, where they need no extra call: "
            "`etscope graph --partition` shows why it refused them."
        )
    else:
        yield Remedy(
            "Lower the model to a backend, which runs many operators in a call: "
            "`etscope export MODEL --backend xnnpack`.",
            "backend",
            {"backend": "xnnpack"},
        )


RULE = Rule("small-operators", "Many calls with next to nothing to compute", _find)
