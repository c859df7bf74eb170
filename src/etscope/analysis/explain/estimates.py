"""Estimates of what remedies would gain, where they cannot be tried: from a run and a calibration.

The time of a method after a change is its time in this run, without the time of the operators that
the change concerns, plus what these take then:

    max(FLOPs / peak FLOP/s, bytes / bandwidth) / reached + the cost of a delegate's call

The peaks are the calibration's. What is reached of them is what operators of the same kind reach in
this run, on the backend that computes them then; where there are none, a share that was measured
with other models (`_REACHED`). All times are of the faster runs of the dump, and of runs without a
trace, where run.json has them.

How far estimates are from what was measured is known from cases where both are possible:
benchmarks/explain_estimates.py. The interval of each (`_ERRORS`) was chosen to hold four of five of
all of them; what is reached (`_REACHED`), by those that are not held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from etscope.analysis.delegates.xnnpack import takes
from etscope.analysis.explain.facts import Facts
from etscope.analysis.explain.rules.graph import (
    cancelling_quantization,
    layout_conversions,
    lost_fusion,
    needless_copies,
    runtime_constants,
    untaken_types,
)
from etscope.analysis.explain.run_graph import Kernel, RunGraph, bytes_of, spec_of
from etscope.analysis.findings.thresholds import COARSE_STEP_NS, COARSE_STEPS
from etscope.analysis.findings.time import Member
from etscope.analysis.work.formulas import INT8_INT4
from etscope.analysis.work.limits import ProfileLimits
from etscope.analysis.work.operation import Traffic, Work
from etscope.formats.calibration import INT8
from etscope.model.finding import Estimate, Finding, Remedy
from etscope.model.graph import SAME_VALUE, Node, stem

PRODUCT, CONVOLUTION, DEPTHWISE, BATCH, SOFTMAX, FUNCTION, MOVING = (
    "product", "convolution", "convolution by channel", "batch product", "softmax", "function",
    "moving",
)  # fmt: skip

# The share of the peaks that XNNPACK's operators reach, by kind and type of numbers: medians over
# the cases of benchmarks/explain_estimates.py that are not held out, on an AMD EPYC with AVX2.
_REACHED: Mapping[tuple[str, str], float] = {
    (PRODUCT, "float32"): 0.95,
    (CONVOLUTION, "float32"): 0.3,
    (CONVOLUTION, INT8): 0.9,
    (DEPTHWISE, "float32"): 0.38,
    (DEPTHWISE, INT8): 0.25,
    (BATCH, "float32"): 0.85,
    (SOFTMAX, "float32"): 0.11,
    (FUNCTION, "float32"): 0.27,
    (FUNCTION, INT8): 0.1,
    (MOVING, "float32"): 0.8,
    (MOVING, INT8): 0.18,
}
# Measured times after a change by the estimated ones, from low to high: of changes after which
# operators are computed in another way.
_ERRORS: Mapping[str, tuple[float, float]] = {
    "backend": (0.4, 3.0),
    "dtype": (0.4, 3.0),
    "quantize": (0.7, 1.35),
    "threads": (0.85, 1.2),
}
_ERRORS_OF_KEPT = (0.9, 1.1)  # of operators that stay as they are, from run to run
# Measured gains by the estimated ones: of changes that leave operators out, whose time is measured.
_ERRORS_OF_LEFT_OUT = (0.8, 1.45)

_FUNCTIONS = (
    "tanh", "sigmoid", "gelu", "exp", "log", "sin", "cos", "elu", "sqrt", "rsqrt", "pow"
)  # fmt: skip
# By `stem` of an edge operator, and by the start of XNNPACK's name of it.
_KIND_OF_OPERATOR = {
    **dict.fromkeys(("linear", "addmm", "mm"), PRODUCT),
    "convolution": CONVOLUTION,
    "bmm": BATCH,
    "softmax": SOFTMAX,
    **dict.fromkeys(_FUNCTIONS, FUNCTION),
}
_KIND_OF_EVENT = {
    "Fully Connected": PRODUCT,
    "Dynamic Fully Connected": PRODUCT,
    "Convolution": CONVOLUTION,
    "Deconvolution": CONVOLUTION,
    "Batch Matrix Multiply": BATCH,
    "Softmax": SOFTMAX,
    **dict.fromkeys(
        ("TanH", "Sigmoid", "GELU", "ApproxGELU", "Exp", "Log", "Sine", "Cosine", "ELU",
         "Square Root", "Reciprocal Square Root"),
        FUNCTION,
    ),
}  # fmt: skip
_FUSED = frozenset({"relu", "hardtanh", "clamp", "native_batch_norm_legit_no_training"})
_FUSED_INTO = frozenset({"linear", "addmm", "mm", "convolution", "add", "mul", *_FUSED})
# What the quantizer of XNNPACK has in int8, and what goes on in the type of what it reads: of 8
# bits a function is a table.
_QUANTIZED = frozenset({"linear", "addmm", "mm", "convolution", "add", "mul", "cat", "mean"})
_FOLLOWING = frozenset(
    {"relu", "hardtanh", "clamp", "max_pool2d", "view", "permute", "slice", "squeeze", "unsqueeze",
     "constant_pad_nd", "avg_pool2d", *_FUNCTIONS}
)  # fmt: skip
_TABLES = ("HardSwish", "LeakyReLU")
_QUANTIZED_EVENTS = ("Add", "Multiply", "Mean", "Copy")
_QUARTER = 0.25  # of the runs: the fastest, which other work did not disturb
_FLOAT32_BYTES = 4
_UNTAKEN = ("bfloat16", "float64")  # floats that XNNPACK does not take


class _NoEstimate(Exception):
    """The reason why there is none."""


def with_estimates(facts: Facts, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with estimates of what their remedies gain; as they are without a
    calibration."""
    if facts.calibration is None:
        return list(findings)
    estimates = Estimates(facts)
    return [
        replace(
            finding,
            explanation=replace(
                finding.explanation,
                remedies=tuple(map(estimates.of, finding.explanation.remedies)),
            ),
        )
        if finding.explanation is not None
        else finding
        for finding in findings
    ]


class Estimates:
    """The estimates of a method's runs."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def of(self, remedy: Remedy) -> Remedy:
        """Return a remedy with an estimate of its gain, or the reason why there is none; one that
        is no change of an export or a run as it is."""
        if remedy.change is None:
            return remedy
        try:
            found = self._estimate(remedy.change, remedy.arguments)
        except _NoEstimate as reason:
            return replace(remedy, estimate=None, no_estimate=str(reason))
        return replace(remedy, estimate=found, no_estimate=None)

    def _estimate(self, change: str, arguments: Mapping[str, object]) -> Estimate:
        function = _CHANGES.get(change)
        if function is None:
            raise _NoEstimate(f"a calibration does not tell what {change} changes")
        made = _Change(self._facts)
        before = made.before_ns
        after = before + function(made, arguments)
        if not 0 < after < math.inf:
            raise _NoEstimate("the times of the operators are more than that of the method")
        share = 1 - after / before
        if change not in _ERRORS:
            ends = sorted(share * factor for factor in _ERRORS_OF_LEFT_OUT)
            return Estimate(share, ends[0], min(ends[1], 1.0))
        # Where operators move, the time of the others is measured.
        kept = after - made.moved_ns if made.moved_ns else 0.0
        fast, slow = (
            kept * of_kept + (after - kept) * factor
            for of_kept, factor in zip(_ERRORS_OF_KEPT, _ERRORS[change], strict=True)
        )
        return Estimate(share, low=1 - slow / before, high=1 - fast / before)


# -- times


def _times(facts: Facts) -> tuple[Mapping[int, float], float]:
    """The times of the leaves by `id`, and of the method, ns, in the faster runs. What tracing adds
    is taken from the time that nothing accounts for, and then from all leaves alike."""
    tick = facts.ns(1.0)
    if not tick:
        raise _NoEstimate("the clock of the run counts cycles")
    total = facts.profile.total
    fast = total <= np.quantile(total, _QUARTER)
    found = {id(leaf): tick * float(leaf.ticks[fast].mean()) for _, leaf in facts.time.members}
    traced = tick * float(total[fast].mean())
    untraced = min(facts.untraced_ns[0] if facts.untraced_ns else traced, traced)
    if not untraced:
        raise _NoEstimate("the runs took no time")
    rests = [id(leaf) for _, leaf in facts.time.members if leaf.kind == "unaccounted"]
    spare = traced - sum(found.values()) + sum(found[key] for key in rests)
    kept = max(0.0, 1 - (traced - untraced) / spare) if spare > 0 else 1.0
    for key in rests:
        found[key] *= kept
    left = traced - spare
    factor = min(1.0, untraced / left) if left > 0 else 1.0
    return {key: factor * ns for key, ns in found.items()}, untraced


# -- changes


class _Change:
    """One change of an export or a run: what it changes of the time of a method, in ns."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._ns, self.before_ns = _times(facts)
        self.moved_ns = 0.0  # of operators that moved to XNNPACK, there

    @property
    def _limits(self) -> ProfileLimits:
        found = self._facts.limits
        if found is None or found.peaks is None:
            raise _NoEstimate("the work of the operators is not known, without a record or program")
        return found

    @property
    def _graph(self) -> RunGraph:
        found = self._facts.run_graph
        if found is None:
            raise _NoEstimate("the graph of the method is not known, without an ETRecord")
        return found

    # changes, by name

    def backend(self, arguments: Mapping[str, object]) -> float:
        """All that XNNPACK takes moves there."""
        if arguments.get("backend") != "xnnpack":
            raise _NoEstimate("the calibration is of XNNPACK's operators")
        if self._graph.has_xnnpack:
            raise _NoEstimate("the run is on XNNPACK already")
        return self._moved(self._graph.kernels.values())

    def dtype(self, arguments: Mapping[str, object]) -> float:
        """Kernels of types that XNNPACK does not take move there, in float32."""
        run = self._graph
        if run.has_xnnpack:
            untaken = untaken_types.untaken(run)
            return self._moved([one for dtype in _UNTAKEN for one in untaken.get(dtype, ())])
        types = {spec.dtype for one in run.kernels.values() if (spec := spec_of(one.node))}
        if types.isdisjoint(_UNTAKEN):
            raise _NoEstimate("the model is in no other type of floats")
        return self._moved(run.kernels.values())

    def rewritten(self, arguments: Mapping[str, object]) -> float:
        """A pass removes nodes; what it lets into delegates moves there."""
        run, name = self._graph, arguments.get("name")
        absorbed: list[Kernel] = []
        if name == "fuse_sdpa":
            parts = [one for one in lost_fusion.parts_of(run) if one.kind == _ATTENTION]
            nodes = [node for one in parts for node in one.nodes]
        elif name == "fold_constants":
            nodes = list(runtime_constants.constants(run))
            constant = set(map(id, nodes))
            absorbed = [
                kernel
                for kernel in run.kernels.values()
                if run.has_xnnpack
                and _kind_of_node(kernel.node) in (PRODUCT, CONVOLUTION)
                and any(id(giver) in constant for giver in run.givers(kernel.node))
            ]
        elif name == "remove_dead_copies":
            nodes = [one.node for one in needless_copies.copies(run).get("same", ())]
        elif name == "remove_transposes":
            nodes = [
                node
                for pair in layout_conversions.cancelling(run)
                if not pair.between
                for node in (pair.first, pair.second)
                if node is pair.second or len(list(run.readers(node))) == 1
            ]
        elif name == "cancel_qdq":
            nodes = [node for pair in cancelling_quantization.pairs(run) for node in pair.nodes]
        else:
            raise _NoEstimate(f"nothing tells what the pass {name} changes")
        members = run.members(nodes)
        if not members:
            raise _NoEstimate(f"the run has no operators that the pass {name} changes")
        moved = self._moved(absorbed) if absorbed else 0.0
        calls = run.merged_calls([*nodes, *(kernel.node for kernel in absorbed)])
        return moved - self._of(members) - calls * self._call_ns

    def channels_last(self, arguments: Mapping[str, object]) -> float:
        """The layout of images is not changed at run time."""
        run = self._graph
        if not run.has_xnnpack:
            raise _NoEstimate("only XNNPACK keeps images with the channels last")
        added = [one for each in layout_conversions.added_transposes(run).values() for one in each]
        members = [*run.members(layout_conversions.conversions(run)), *added]
        if not members:
            raise _NoEstimate("the run has no changes of layout")
        return -self._of(members)

    def threads(self, arguments: Mapping[str, object]) -> float:
        """The operators of XNNPACK get slower or faster as the peaks of so many threads are."""
        wanted, limits = arguments.get("threads"), self._limits
        found = limits.calibration
        known = () if found is None else [one.threads for one in found.all_peaks]
        if limits.threads is None:
            raise _NoEstimate("nothing tells the threads of the run")
        for count in (limits.threads, wanted):
            if count not in known:
                raise _NoEstimate(f"the calibration has no peaks of {count} threads")
        other = replace(limits, threads=int(str(wanted)))
        changed = 0.0
        for _, leaf in self._delegated():
            work = self._work(leaf)
            if work is not None:
                before, after = _roof(limits, work), _roof(other, work)
                changed += self._ns[id(leaf)] * (after / before - 1) if before else 0.0
        return changed

    def quantize(self, arguments: Mapping[str, object]) -> float:
        """Products, and with int8 what the quantizer takes beside them, are computed in integers;
        what stays in float is converted before and after."""
        scheme, run = arguments.get("scheme"), self._graph
        if not run.has_xnnpack:
            raise _NoEstimate("the run is not on XNNPACK, which quantised operators are lowered to")
        if scheme not in (INT8, INT8_INT4):
            raise _NoEstimate(f"the calibration has no products of {scheme}")
        dtype = str(scheme)
        kinds = {PRODUCT, CONVOLUTION, DEPTHWISE} if dtype == INT8 else {PRODUCT}
        if self._limits.peaks is None or self._limits.peaks.peak_flops(dtype) is None:
            raise _NoEstimate(f"the calibration has no peak of {dtype}")
        changed, products = 0.0, 0
        for _, leaf in self._delegated():
            work, kind = self._work(leaf), _kind_of_event(leaf.name)
            if work is None or any(name != "float32" for name, _ in work.dtypes):
                continue
            becomes = kind
            if kind in kinds and work.traffic.weights:
                small, products = _narrower(work, dtype), products + 1
                if dtype == INT8_INT4:
                    changed += self._convert_ns(work.traffic.activations_read / _FLOAT32_BYTES)
            elif dtype == INT8 and (kind == FUNCTION or leaf.name.startswith(_TABLES)):
                small, becomes = _narrower(work, INT8), FUNCTION
            elif dtype == INT8 and leaf.name.startswith(_QUANTIZED_EVENTS):
                small = _narrower(work, INT8)
            else:
                continue
            # By the ratio: short events are logged as no time at all.
            all_small = self._weights * small.traffic.weights / (work.traffic.weights or 1.0)
            before = self._least_ns(work, kind, self._weights)
            ratio = self._least_ns(small, becomes, all_small) / (before or 1.0)
            changed += self._ns[id(leaf)] * (ratio - 1)
        if not products:
            raise _NoEstimate(f"XNNPACK computes no products in float32 that {scheme} quantises")
        return changed + (self._conversions() if dtype == INT8 else 0.0)

    # parts

    @property
    def _call_ns(self) -> float:
        """The cost of a delegate's call."""
        peaks = self._limits.peaks
        return (peaks.delegate_call_ns if peaks is not None else None) or 0.0

    @cached_property
    def _weights(self) -> float:
        """Bytes of all weights that a run reads: what memory they come from depends on them, and
        not on those of one operator."""
        found = None if self._facts.work is None else self._facts.work.total
        return 0.0 if found is None else found.traffic.weights

    def _of(self, members: Iterable[Member]) -> float:
        return sum(self._ns[id(leaf)] for _, leaf in members)

    def _delegated(self) -> Iterator[Member]:
        for group, leaf in self._facts.time.members:
            if leaf.kind == "delegated" and "Xnnpack" in group.head.name:
                yield group, leaf

    def _work(self, leaf: object) -> Work | None:
        """The work of a row; None if it is not known."""
        found = None if self._facts.work is None else self._facts.work.of([leaf])  # type: ignore[list-item]
        return None if found is None or found.unknown or found.is_bound else found

    @cached_property
    def _reached(self) -> Mapping[tuple[str, str], float]:
        """The share of the peaks that XNNPACK's operators reach, in this run where it has some."""
        times: dict[tuple[str, str], tuple[float, float, float]] = {}
        for _, leaf in self._delegated():
            work = self._work(leaf)
            if work is None or not self._ns[id(leaf)]:
                continue
            dtypes = dict(work.dtypes) or {"float32": 0.0}
            key = _kind_of_event(leaf.name), max(dtypes, key=lambda name: dtypes[name])
            least = _roof(self._limits, work, self._weights)
            if key[0] == PRODUCT and least > (self._limits.compute_ns(work) or 0.0):
                continue  # with fewer bytes, memory is no longer the limit
            roof, ns, count = times.get(key, (0.0, 0.0, 0.0))
            calls = float(leaf.calls.mean())
            times[key] = roof + least, ns + self._ns[id(leaf)], count + calls
        # Shorter events say little: XNNPACK's are logged in whole microseconds.
        shortest = COARSE_STEPS * COARSE_STEP_NS
        known = {
            key: roof / ns
            for key, (roof, ns, count) in times.items()
            if roof and ns >= shortest * count
        }
        return {**_REACHED, **known}

    def _new_ns(self, work: Work, kind: str) -> float:
        """The time of an operator in XNNPACK, with what each takes."""
        return self._least_ns(work, kind) + self._call_ns

    def _least_ns(self, work: Work, kind: str, weights: float = 0.0) -> float:
        """The time of an operator's work in XNNPACK. weights: bytes of all weights of the run."""
        dtypes = dict(work.dtypes) or {"float32": 0.0}
        dtype = max(dtypes, key=lambda name: dtypes[name])
        known = self._reached
        if kind == PRODUCT and (kind, dtype) not in known:
            # Quantised products reach as much of their peak as those in float, by their sizes.
            return _roof(self._limits, work, weights) / min(1.0, known[kind, "float32"])
        reached = known.get((kind, dtype)) or known.get((MOVING, dtype)) or known[MOVING, "float32"]
        return _roof(self._limits, work, weights) / reached

    def _moved(self, kernels: Iterable[Kernel]) -> float:
        """The change of the time, if kernels move to XNNPACK: those that it takes."""
        changed, moved = 0.0, list[Node]()
        run = self._graph
        for kernel in kernels:
            if not takes(kernel.node.op) and stem(kernel.node.op) not in _FUSED:
                continue
            before = self._of(kernel.members)
            works = [self._work(leaf) for _, leaf in kernel.members]
            changed -= before
            moved.append(kernel.node)
            # What lays out weights does so when the program is loaded; parts of others, and other
            # shapes of the same elements, take no time.
            if id(kernel.node) in run.constant or self._is_fused(kernel.node):
                continue
            if stem(kernel.node.op) in SAME_VALUE:
                continue
            known = [work for work in works if work is not None]
            if len(known) < len(works):
                raise _NoEstimate(f"the work of {kernel.op} is not known")
            kind = _kind_of_node(kernel.node)
            self.moved_ns += sum(self._new_ns(_in_float32(work), kind) for work in known)
        if not moved:
            raise _NoEstimate("XNNPACK takes none of the operators outside of delegates")
        self.moved_ns += 0.0 if run.calls else self._call_ns
        return changed + self.moved_ns

    def _is_fused(self, node: Node) -> bool:
        """Return whether XNNPACK makes a node a part of the operator before it."""
        giver = next(self._graph.givers(node), None)
        return stem(node.op) in _FUSED and giver is not None and stem(giver.op) in _FUSED_INTO

    def _conversions(self) -> float:
        """The time of the conversions between int8 and float, at the ends of the model and of what
        stays in float."""
        run, found = self._graph, 0.0
        graph = run.partition.linked.graph
        for node in graph.nodes:
            if run.is_weight(node) or id(node) in run.constant or not node.outputs:
                continue
            readers = list(run.readers(node))
            here = self._is_int8(node)
            if readers and any(self._is_int8(one) != here for one in readers):
                found += self._convert_ns(bytes_of(node) / _FLOAT32_BYTES)
        return found

    def _is_int8(self, node: Node, depth: int = 0) -> bool:
        """Return whether a node computes in int8, if all are quantised that can be."""
        name = stem(node.op) if node.kind == "call_function" else ""
        if name in _QUANTIZED:
            return True
        if name not in _FOLLOWING or depth > 64:
            return False
        giver = next(self._graph.givers(node), None)
        return giver is not None and self._is_int8(giver, depth + 1)

    def _convert_ns(self, elements: float) -> float:
        """The time of converting float32 to int8, or back."""
        work = Work(traffic=Traffic(activations_read=4 * elements, activations_written=elements))
        return self._new_ns(work, MOVING)


_ATTENTION = "scaled_dot_product_attention"
_CHANGES: Mapping[str, Callable[[_Change, Mapping[str, object]], float]] = {
    "backend": _Change.backend,
    "dtype": _Change.dtype,
    "pass": _Change.rewritten,
    "channels_last": _Change.channels_last,
    "threads": _Change.threads,
    "quantize": _Change.quantize,
}


def _kind_of_node(node: Node) -> str:
    found = _KIND_OF_OPERATOR.get(stem(node.op), MOVING)
    groups = dict(node.arguments).get("groups", "1")
    return DEPTHWISE if found == CONVOLUTION and groups not in ("1", "None") else found


def _kind_of_event(name: str) -> str:
    if "DWConv" in name:
        return DEPTHWISE
    found = (kind for start, kind in _KIND_OF_EVENT.items() if name.startswith(start))
    return next(found, MOVING)


def _roof(limits: ProfileLimits, work: Work, weights: float = 0.0) -> float:
    """The least time of work, ns. weights: bytes of all weights of the run. Raises `_NoEstimate`
    without the peaks."""
    compute, memory = limits.compute_ns(work), limits.memory_ns(work, 1.0)
    rate = None if limits.peaks is None else limits.peaks.bandwidth(weights)
    if memory is not None and rate and weights > work.traffic.total:
        others = replace(work, traffic=replace(work.traffic, weights=0))
        memory = (limits.memory_ns(others, 1.0) or 0.0) + work.traffic.weights / rate * 1e9
    if compute is None or memory is None:
        types = ", ".join(name for name, _ in work.dtypes) if compute is None else "memory"
        raise _NoEstimate(f"the calibration has no peak of {types}")
    return max(compute, memory)


def _narrower(work: Work, dtype: str) -> Work:
    """Work in float32 as that of int8 activations, with weights of int8 or int4."""
    moved, bits = work.traffic, 4 if dtype == INT8_INT4 else 8
    activations = 1.0 if dtype == INT8_INT4 else 0.25  # of 8da4w those of the model stay in float
    narrow = Traffic(
        weights=moved.weights * bits / 32,
        activations_read=moved.activations_read * 0.25,
        activations_written=moved.activations_written * activations,
    )
    return replace(work, traffic=narrow).in_dtype(dtype)


def _in_float32(work: Work) -> Work:
    """Work in another type of floats as that in float32."""
    sizes = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
    types = dict(work.dtypes)
    main = max(types, key=lambda name: types[name], default="float32")
    factor = _FLOAT32_BYTES / sizes.get(main, _FLOAT32_BYTES)
    return replace(work, traffic=work.traffic.times(factor)).in_dtype("float32")
