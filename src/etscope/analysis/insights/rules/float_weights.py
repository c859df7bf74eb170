"""Products and convolutions in floats that limit a method, where a backend has them in integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.profile import Leaf
from etscope.analysis.work.limits import COMPUTE
from etscope.analysis.work.operation import Work, sum_of
from etscope.formats.generation import DECODE
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.units import format_share

_SHARE = 0.3  # of the method's time
_LEAST_FLOPS = 1e6  # of an operator: the time of a smaller one is not its work
# FLOPs for each byte, above which processors compute, and do not wait for memory.
_INTENSITY = 8.0
_REACHED = 0.3  # of the peak: a kernel that is far below is slow for another reason
# XNNPACK's names of these operators, by what int8 is quantised for.
_CONVOLUTIONS = ("Convolution", "Deconvolution")
_PRODUCTS = ("Fully Connected", "Dynamic Fully Connected", *_CONVOLUTIONS)


def _find(facts: Facts) -> Iterator[Finding]:
    if facts.profile.phase == DECODE or facts.work is None:
        return  # `memory-bound` reports decode
    members = [member for member in facts.time.members if _is_float_product(facts, member)]
    bound = [member for member in members if _bound_of(facts, member) is not None]
    ticks = facts.time.ticks(bound)
    ns = facts.ns(ticks)
    if not ns or facts.time.share(ticks) < _SHARE:
        return
    work = sum_of(facts.work_of(member) for member in bound)
    limits = None if facts.limits is None else facts.limits.of([leaf for _, leaf in bound])
    evidence = [
        f"{len(bound):,} products and convolutions in float32 do {work.flops / 1e9:.3g} GFLOP in "
        f"{facts.time.text(ticks)}: {work.flops / ns:.3g} GFLOP/s.",
        f"They compute {work.flops / max(1.0, work.traffic.total):.3g} FLOPs for each byte that "
        "they read and write: to compute takes the time, not to wait for memory."
        if limits is None or limits.bound is None
        else f"{limits.bound.capitalize()} bounds them, by the calibration: they reach "
        f"{format_share(limits.share)} of what the machine can do.",
    ]
    yield facts.finding(
        RULE.name,
        f"Products and convolutions in float32 take {facts.time.with_share(ticks)}, in XNNPACK, "
        "which has them in int8 too.",
        bound,
        Explanation(Sureness.POSSIBLE, tuple(evidence), remedies=tuple(_remedies(facts, bound))),
        severity=Severity.FACT,  # a part of that time; this run cannot show how large
    )


def _is_float_product(facts: Facts, member: Leaf) -> bool:
    group, leaf = member
    if leaf.kind != "delegated" or "Xnnpack" not in group.head.name:
        return False
    work = facts.work_of(member)
    is_float = bool(work.dtypes) and all(dtype == "float32" for dtype, _ in work.dtypes)
    return is_float and leaf.name.startswith(_PRODUCTS) and work.traffic.weights > 0


def _bound_of(facts: Facts, member: Leaf) -> str | None:
    """Return what bounds a product: by the calibration, or by its FLOPs for each byte."""
    work: Work = facts.work_of(member)
    if work.unknown or work.is_bound or work.flops < _LEAST_FLOPS:
        return None
    limits = None if facts.limits is None else facts.limits.of([member[1]])
    if limits is not None and limits.share is not None:
        return limits.bound if limits.share >= _REACHED else None
    intensity = work.intensity
    return COMPUTE if intensity is not None and intensity >= _INTENSITY else None


def _remedies(facts: Facts, members: Sequence[Leaf]) -> Iterator[Remedy]:
    yield Remedy(
        "Quantize weights and activations to int8, calibrated with samples of real inputs: "
        "`etscope export MODEL --backend xnnpack --quantize int8`; `etscope sensitivity` shows "
        "what to keep in float.",
        "quantize",
        {"scheme": "int8"},
    )
    products = [member for member in members if not member[1].name.startswith(_CONVOLUTIONS)]
    if facts.time.ticks(products) > facts.time.ticks(members) / 2:
        yield Remedy(
            "Quantise the weights of linear layers to int4, and activations to int8 as the program "
            "runs (8da4w), which needs no samples.",
            "quantize",
            {"scheme": "8da4w"},
        )


RULE = Rule("float-weights", "Products in float32 that limit the time", _find)
