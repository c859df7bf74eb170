"""Kernels and the limits of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from etscope.analysis.insights.facts import Facts, explained
from etscope.analysis.profile.profile import Leaf
from etscope.formats.calibration import FLOAT32
from etscope.formats.generation import DECODE
from etscope.model.finding import Finding, Remedy, Severity, Sureness
from etscope.units import format_bytes, format_share

_SHARE = 0.3  # of the time: int4 weights then save a quarter of a run at best
# Below, a machine reads weights more slowly than it multiplies: FLOPs for each byte of weights.
_INTENSITY = 4.0
# Without a calibration: weights that no cache of a phone or a laptop holds, so that the memory
# itself is read in each run.
_BEYOND_CACHES = 32 << 20
_NEAR = 0.5  # of the bandwidth: no kernel reaches all of it
_POSSIBLE = 0.25  # of the bandwidth: slower kernels may wait for something else
# Bytes by those of int4 with 4.5 bits a weight: a scale of 16 bits for a group of 32, as exports
# have it by default.
_SMALLER = {"float32": 7.1, "float64": 14.2, "float16": 3.6, "bfloat16": 3.6}


def memory_bound(facts: Facts) -> Iterator[Finding]:
    """Find a run that reads far more weights than it computes with, so that it waits for memory:
    decode of a language model does.
    """
    members = []
    for member in facts.time.members:
        work = facts.work_of(member)
        if 0 < work.flops < _INTENSITY * work.traffic.weights and not work.is_bound:
            members.append(member)
    work = facts.work_of(*members)
    weights, types = work.traffic.weights, dict(work.dtypes)
    dtype = max(types, key=lambda name: types[name], default="")  # of most of the FLOPs
    ticks = facts.time.ticks(members)
    ns = facts.ns(ticks)
    if not ns or facts.time.share(ticks) < _SHARE or dtype not in _SMALLER:
        return
    rate = weights / ns * 1e9
    bandwidth = None if facts.peaks is None else facts.peaks.bandwidth(weights)
    sureness = Sureness.POSSIBLE
    if bandwidth:
        reached = rate / bandwidth
        if reached < _POSSIBLE:
            return
        sureness = Sureness.LIKELY if reached >= _NEAR else Sureness.POSSIBLE
        known_by = (
            f"That is {format_share(reached)} of the {bandwidth / 1e9:.3g} GB/s at which the "
            "machine reads so much memory, by the calibration."
        )
    elif weights < _BEYOND_CACHES:
        return
    else:
        known_by = (
            "That is more than caches hold. The bandwidth of the memory is unknown: `etscope "
            "calibrate` measures it."
        )
    is_decode = facts.profile.phase == DECODE
    whole = "A token" if is_decode else "A run"
    yield facts.finding(
        "memory-bound",
        f"{'Decode' if is_decode else 'The method'} waits for weights: {whole.lower()} reads "
        f"{format_bytes(weights)} of them, "
        f"{facts.time.with_share(ticks)}, at {rate / 1e9:.3g} GB/s.",
        members,
        explained(
            sureness,
            [
                f"{whole} reads {format_bytes(weights)} of {dtype} weights, in "
                f"{facts.time.text(ticks)}: {rate / 1e9:.3g} GB/s.",
                f"It computes {work.flops / weights:.2g} FLOPs for each byte of them.",
                known_by,
            ],
            _fewer_weights(dtype, is_decode),
        ),
    )


def _fewer_weights(dtype: str, is_decode: bool) -> Iterator[Remedy]:
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


# -- portable kernels: written to be small and to run anywhere
#
# Both of etscope's runners have the kernels of the `executorch` package, from its library
# optimized_native_cpu_ops_lib: an operator in kernels/optimized/optimized.yaml runs on a fast
# kernel, each other on its portable one. A runner from elsewhere may have only portable ones. A
# dump does not say which kernel ran; slow ones show in the rate.

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
    """Slow matrix products and convolutions on portable kernels.

    rate: GFLOP/s. is_known: etscope's own runner ran them, so their kernels are known.
    """

    members: Sequence[Leaf]
    rate: float
    is_known: bool
    evidence: Sequence[str]
    remedies: Sequence[Remedy]


def slow_products(facts: Facts) -> Slow | None:
    """Find slow matrix products and convolutions outside of delegates that no rule has claimed."""
    saved = facts.trace.saved_run
    is_known = saved is not None and saved.text("runner") in _OWN_RUNNERS
    names = _PORTABLE_ONLY if is_known else _PORTABLE_ONLY | _OPTIMIZED
    peak = None if facts.peaks is None else facts.peaks.peak_flops(FLOAT32)
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
    by_name: dict[str, list[Leaf]] = {}
    for member in members:
        by_name.setdefault(member[1].name, []).append(member)
    rates = [
        f"{name} ({len(its):,}): {facts.work_of(*its).flops / 1e6:.3g} MFLOP in "
        f"{facts.time.text(facts.time.ticks(its))}, {_rate(facts, its) or 0.0:.2g} GFLOP/s"
        for name, its in by_name.items()
    ]
    evidence = [f"{'; '.join(rates)}."]
    if peak is not None:
        evidence.append(
            "By the calibration, matrix products in float32 can reach "
            f"{peak / 1000000000.0:.3g} GFLOP/s on this machine; these reach "
            f"{format_share(rate / peak * 1000000000.0)} of that."
        )
    evidence.append(
        "The kernels of the executorch package have no optimized one for these operators."
        if is_known
        else "Which kernels the runner was linked with is not known."
    )
    remedies = []
    if "addmm.out" in by_name:
        # With a partitioner, ExecuTorch does not ask what else to preserve.
        change = {} if facts.has_delegates else {"name": "keep_linear"}
        remedies.append(
            Remedy(
                "Keep linear layers whole, which have an optimized kernel, in place of addmm, "
                "which has none: `EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])` "
                "as `compile_config`, or `etscope export -X passes=keep_linear`.",
                "pass" if change else None,
                change,
            )
        )
    if not is_known and not _OPTIMIZED.isdisjoint(by_name):
        remedies.append(
            Remedy(
                "Link the runner with optimized_native_cpu_ops_lib in place of portable_ops_lib "
                "(CMake: EXECUTORCH_BUILD_KERNELS_OPTIMIZED=ON)."
            )
        )
    return Slow(members, rate, is_known, evidence, remedies)


def _rate(facts: Facts, members: Sequence[Leaf]) -> float | None:
    """GFLOP/s of leaves together; None if the work or the time of one is not known."""
    work, ns = facts.work_of(*members), facts.ns(facts.time.ticks(members))
    return None if not ns or not work.flops or work.unknown or work.is_bound else work.flops / ns


def portable_kernels(facts: Facts) -> Iterator[Finding]:
    """Large operators on portable kernels: matrix products and convolutions with a low rate."""
    # Without delegates `not-delegated` has it among its evidence.
    found = slow_products(facts) if facts.has_delegates else None
    if found is None:
        return
    members = found.members
    many = len(members) > 1
    yield facts.finding(
        "portable-kernels",
        f"{len(members):,} {'products and convolutions run' if many else 'operator runs'} on "
        f"{'portable kernels' if many else 'a portable kernel'} at {found.rate:.2g} GFLOP/s: "
        f"{facts.time.taken(members)}.",
        members,
        explained(
            Sureness.LIKELY if found.is_known else Sureness.POSSIBLE, found.evidence, found.remedies
        ),
    )


_SHOWN = 6  # names of operators in a line of evidence; the others are counted


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
        f"The FLOPs of {len(names):,} kinds of operators are unknown. They take {taken}; no rule "
        "judged whether that is slow."
        if len(names) > 1
        else f"The FLOPs of {names[0]} are unknown. It takes {taken}; no rule judged whether that "
        "is slow.",
        members,
        explained(
            Sureness.MEASURED,
            [f"No formula gives the FLOPs of {', '.join(names[:_SHOWN])}{more}."],
            [
                Remedy(
                    "Compare the times of these operators with those of a reference program: "
                    "`etscope inspect --by op`."
                )
            ],
        ),
    )
    yield replace(found, severity=Severity.UNKNOWN)
