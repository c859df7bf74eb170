"""Products on portable kernels, which are written to be small and to run anywhere.

Both of etscope's runners have the kernels of the `executorch` package, from its library
optimized_native_cpu_ops_lib: an operator in kernels/optimized/optimized.yaml runs on a fast
kernel, each other on its portable one. A runner from elsewhere may have only portable ones. A
dump does not say which kernel ran; slow ones show in the rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.insights.facts import Facts
from etscope.analysis.profile.profile import Leaf
from etscope.model.finding import Remedy
from etscope.units import format_share

# ExecuTorch 1.5, kernels/optimized/optimized.yaml: only products, where the rate shows what ran.
_OPTIMIZED = frozenset({"bmm.out", "linear.out", "mm.out"})
# Products and convolutions that have a portable kernel only.
_PORTABLE_ONLY = frozenset({"addmm.out", "convolution.out"})
_OWN_RUNNERS = ("python", "native")  # of etscope, with the kernels of the executorch package

# A portable kernel does a multiply-add or so at a time; a product that is blocked and vectorised
# does more than this on the slowest core that runs Linux.
_SLOW_GFLOPS = 4.0
_SLOW_SHARE = 0.1  # of the peak, by a calibration: optimized kernels reach several times that
_LEAST_FLOPS = 1e5  # of a call: shorter ones are bound by other things


@dataclass(frozen=True)
class Slow:
    """Products on portable kernels, slow for what they compute.

    rate: GFLOP/s. is_known: the runner is etscope's, so its kernels are known.
    """

    members: Sequence[Leaf]
    rate: float
    is_known: bool
    evidence: Sequence[str]
    remedies: Sequence[Remedy]


def slow_products(facts: Facts) -> Slow | None:
    """Find the products and convolutions outside of delegates that are slow, and that no rule
    before is about; None without."""
    saved = facts.trace.saved_run
    is_known = saved is not None and saved.text("runner") in _OWN_RUNNERS
    names = _PORTABLE_ONLY if is_known else _PORTABLE_ONLY | _OPTIMIZED
    from etscope.formats.calibration import FLOAT32

    peaks = None if facts.limits is None else facts.limits.peaks
    peak = None if peaks is None else peaks.peak_flops(FLOAT32)
    slow = _SLOW_GFLOPS if peak is None else _SLOW_SHARE * peak / 1e9
    members = [
        member
        for member in facts.free(facts.time.members)
        if member[1].kind == "kernel" and member[1].name in names
        if (rate := _rate(facts, [member])) is not None
        and rate < slow
        and facts.work_of(member).flops >= _LEAST_FLOPS * float(member[1].calls.mean())
    ]
    rate = _rate(facts, members)
    if rate is None:
        return None
    evidence = [_rates(facts, members)]
    if peak is not None:
        evidence.append(
            f"Products in float32 reach {peak / 1e9:.3g} GFLOP/s on this machine, by the "
            f"calibration: this is {format_share(rate / peak * 1e9)} of it."
        )
    if is_known:
        evidence.append(
            "The kernels of the executorch package have no optimized one for these operators."
        )
    else:
        evidence.append("Which kernels the runner was linked with is not known.")
    return Slow(members, rate, is_known, evidence, tuple(_remedies(facts, members, is_known)))


def _rate(facts: Facts, members: Sequence[Leaf]) -> float | None:
    """GFLOP/s of leaves together; None if the work or the time of one is not known."""
    works = [facts.work_of(member) for member in members]
    ns = facts.ns(facts.time.ticks(members))
    flops = sum(work.flops for work in works)
    if not ns or not flops or any(work.unknown or work.is_bound for work in works):
        return None
    return flops / ns


def _rates(facts: Facts, members: Sequence[Leaf]) -> str:
    """The kernels with their numbers and rates, as a sentence."""
    by_name: dict[str, list[Leaf]] = {}
    for member in members:
        by_name.setdefault(member[1].name, []).append(member)
    parts = [
        f"{name} ({len(its):,}): "
        f"{sum(facts.work_of(one).flops for one in its) / 1e6:.3g} MFLOP in "
        f"{facts.time.text(facts.time.ticks(its))}, {_rate(facts, its) or 0.0:.2g} GFLOP/s"
        for name, its in by_name.items()
    ]
    return f"{'; '.join(parts)}."


def _remedies(facts: Facts, members: Sequence[Leaf], is_known: bool) -> Iterator[Remedy]:
    if any(leaf.name == "addmm.out" for _, leaf in members):
        # With a partitioner, ExecuTorch does not ask what else to preserve.
        change = {} if facts.has_delegates else {"name": "keep_linear"}
        yield Remedy(
            "Keep linear layers whole, which have an optimized kernel, in place of addmm, which "
            "has none: `EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])` as "
            "`compile_config`, or `etscope export -X passes=keep_linear`.",
            "pass" if change else None,
            change,
        )
    if not is_known and any(leaf.name in _OPTIMIZED for _, leaf in members):
        yield Remedy(
            "Link the runner with optimized_native_cpu_ops_lib in place of portable_ops_lib "
            "(CMake: EXECUTORCH_BUILD_KERNELS_OPTIMIZED=ON)."
        )
