"""Kernels and the limits of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import rule
from etscope.analysis.insights.slow_products import slow_products
from etscope.analysis.profile.profile import Leaf
from etscope.formats.generation import DECODE
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.units import format_bytes, format_share

_WIDE = ("float32", "float16", "bfloat16", "float64")
_SHARE = 0.3  # of the time: int4 weights then save a quarter of a run at best
# Below, a machine reads weights more slowly than it multiplies: FLOPs for each byte of weights.
_INTENSITY = 4.0
# Without a calibration: weights that no cache of a phone or a laptop holds, so that the memory
# itself is read in each run.
_BEYOND_CACHES = 32 << 20
_NEAR = 0.5  # of the bandwidth: no kernel reaches all of it
_POSSIBLE = 0.25  # of the bandwidth: slower kernels may wait for something else
_SMALLER = {"float32": 7.5, "float64": 15.0, "float16": 3.75, "bfloat16": 3.75}  # bytes: int4


@dataclass(frozen=True)
class _Reading:
    """The operators that read weights and compute little with them.

    weights: bytes in one run. dtype: the type that most of the FLOPs are of.
    """

    members: Sequence[Leaf]
    flops: float
    weights: float
    dtype: str


def _reading(facts: Facts) -> _Reading:
    members, flops, weights = [], 0.0, 0.0
    types: dict[str, float] = {}
    for member in facts.time.members:
        work = facts.work_of(member)
        if not work.traffic.weights or work.flops >= _INTENSITY * work.traffic.weights:
            continue
        if not work.flops or work.is_bound:
            continue
        members.append(member)
        flops, weights = flops + work.flops, weights + work.traffic.weights
        for name, part in work.dtypes:
            types[name] = types.get(name, 0.0) + part
    return _Reading(members, flops, weights, max(types, key=lambda name: types[name], default=""))


@rule("A run that waits for weights")
def memory_bound(facts: Facts) -> Iterator[Finding]:
    """A run that reads far more weights than it computes with, as decode of a language model
    does, and waits for them."""
    if facts.work is None:
        return
    found = _reading(facts)
    ticks = facts.time.ticks(found.members)
    ns = facts.ns(ticks)
    if not ns or facts.time.share(ticks) < _SHARE or found.dtype not in _WIDE:
        return
    rate = found.weights / ns * 1e9
    limit = _limit(facts, found.weights, rate)
    if limit is None:
        return
    sureness, known_by = limit
    is_decode = facts.profile.phase == DECODE
    whole = "A token" if is_decode else "A run"
    yield facts.finding(
        "memory-bound",
        f"{'Decode' if is_decode else 'It'} waits for weights: {whole.lower()} reads "
        f"{format_bytes(found.weights)} of them, "
        f"{facts.time.with_share(ticks)}, at {rate / 1e9:.3g} GB/s.",
        found.members,
        Explanation(
            sureness,
            (
                f"{whole} reads {format_bytes(found.weights)} of {found.dtype} weights, in "
                f"{facts.time.text(ticks)}: {rate / 1e9:.3g} GB/s.",
                f"It computes {found.flops / found.weights:.2g} FLOPs for each byte of them.",
                known_by,
            ),
            remedies=tuple(_remedies(found.dtype, is_decode)),
        ),
    )


def _limit(facts: Facts, weights: float, rate: float) -> tuple[Sureness, str] | None:
    """Return how surely memory limits a rate of weights, in bytes a second, and why; None if it
    hardly does."""
    peaks = None if facts.limits is None else facts.limits.peaks
    bandwidth = None if peaks is None else peaks.bandwidth(weights)
    if bandwidth:
        reached = rate / bandwidth
        if reached < _POSSIBLE:
            return None
        return (
            Sureness.LIKELY if reached >= _NEAR else Sureness.POSSIBLE,
            f"That is {format_share(reached)} of the {bandwidth / 1e9:.3g} GB/s at which the "
            "machine reads so much memory, by the calibration.",
        )
    if weights < _BEYOND_CACHES:
        return None
    return (
        Sureness.POSSIBLE,
        "Caches do not hold that much. What the memory gives is not known.",
    )


def _remedies(dtype: str, is_decode: bool) -> Iterator[Remedy]:
    yield Remedy(
        "Quantize the weights to int4 in groups, with int8 activations (8da4w): "
        f"{_SMALLER[dtype]:g} times fewer bytes. Embeddings read one row a token: to "
        "quantize them saves memory, hardly any time.",
        "quantize",
        {"scheme": "8da4w"},
    )
    yield Remedy(
        "Decode several sequences in a batch, or several tokens a step (speculative "
        "decoding): the weights are read once for all."
        if is_decode
        else "Run several inputs in a batch: the weights are read once for all."
    )


@rule("Large operators on portable kernels")
def portable_kernels(facts: Facts) -> Iterator[Finding]:
    """Large operators on portable kernels: products that are slow for what they compute."""
    # Without delegates `not-delegated` has it among its evidence.
    found = slow_products(facts) if facts.has_delegates else None
    if found is None:
        return
    members = found.members
    taken = facts.time.taken(members)
    many = len(members) > 1
    yield facts.finding(
        "portable-kernels",
        f"{len(members):,} {'products and convolutions run' if many else 'operator runs'} on "
        f"{'portable kernels' if many else 'a portable kernel'} at {found.rate:.2g} GFLOP/s: "
        f"{taken}.",
        members,
        Explanation(
            Sureness.LIKELY if found.is_known else Sureness.POSSIBLE,
            tuple(found.evidence),
            remedies=tuple(found.remedies),
        ),
    )


_SHOWN = 6  # names of operators in a line of evidence; the others are counted


@rule("Operators with unknown work")
def unknown_work(facts: Facts) -> Iterator[Finding]:
    """Operators with unknown work: no rule judges their rates."""
    members = [member for member in facts.time.members if facts.work_of(member).unknown]
    if not facts.time.ticks(members):
        return
    times: dict[str, float] = {}
    for member in members:
        for name in facts.work_of(member).unknown:
            times[name] = times.get(name, 0.0) + facts.time.ticks([member])
    names = sorted(times, key=lambda name: -times[name])
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    taken = facts.time.taken(members)
    found = facts.finding(
        "unknown-work",
        f"The work of {len(names):,} kinds of operators is not known, which take {taken}: whether "
        "they are slow for what they do was not looked at."
        if len(names) > 1
        else f"The work of {names[0]} is not known, which takes {taken}: whether it is slow for "
        "what it does was not looked at.",
        members,
        Explanation(
            Sureness.MEASURED,
            (f"No formula gives the FLOPs of {', '.join(names[:_SHOWN])}{more}.",),
            remedies=(
                Remedy("Compare their times with a reference's: `etscope inspect --by op`."),
            ),
        ),
    )
    yield replace(found, severity=Severity.UNKNOWN)
