"""Estimates of what remedies gain: on events of real programs, with times and peaks as each case
wants them, against numbers that are calculated by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.explain.estimates import Estimates, with_estimates
from etscope.analysis.explain.explain import explain
from etscope.analysis.explain.explain_table import explanation_table
from etscope.analysis.explain.facts import Facts
from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.calibration import Calibration
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.model.finding import Files, Remedy
from etscope.units import TimeScale
from tests.support.analysis.exact_peaks import calibration, number, peaks
from tests.support.artifacts import artifacts

US = 1000
THREADS = {"threads": 1, "conditions": {"at": 0.0, "cpu": "a chip", "cores": 2}}


def facts(
    folder: Path,
    name: str,
    found: Calibration | None,
    ns_of: Callable[[Row], int],
    saved: Mapping[str, Any] | None = None,
) -> Facts:
    """The facts of two runs of an artefact, in which each leaf takes so long, and nothing else any
    time."""
    made = artifacts(name)
    (folder / "run.json").write_text(json.dumps(THREADS if saved is None else saved))
    dump = folder / "run.etdp"
    dump.write_bytes((made.etdump_timing or made.etdump).read_bytes())
    trace = Trace(
        read_etdump(dump), record=read_etrecord(str(made.etrecord)), program=read_pte(made.pte)
    )
    (profile,) = trace.profiles()
    shape = profile.total.shape
    leaves = {id(leaf) for group in profile.instructions for leaf in group.leaves}
    rows: list[Row] = []
    total = 0
    for group in profile.instructions:
        times = {id(leaf): ns_of(leaf) for leaf in group.leaves}
        total += sum(times.values())
        for row in (group.head, *group.below):
            ns = times.get(id(row), sum(times.values()) if row is group.head else 0)
            rows.append(replace(row, ticks=np.full(shape, ns)))
    assert leaves
    profile = replace(profile, rows=tuple(rows), total=np.full(shape, total))
    return Facts(trace, profile, Scale(TimeScale.NS, TimeScale.MS), found)


def estimated(known: Facts, change: str, **arguments: Any) -> Remedy:
    return Estimates(known).of(Remedy("Do it.", change, arguments))


def share(known: Facts, change: str, **arguments: Any) -> float:
    found = estimated(known, change, **arguments)
    assert found.no_estimate is None
    assert found.estimate.low < found.estimate.share < found.estimate.high <= 1
    return found.estimate.share


def why_not(known: Facts, change: str, **arguments: Any) -> str:
    found = estimated(known, change, **arguments)
    assert found.estimate is None
    assert found.no_estimate is not None
    return found.no_estimate


def only(*starts: str) -> Callable[[Row], int]:
    """100 us for the leaves whose names start so."""
    return lambda row: 100 * US if row.name.startswith(starts) else 0


def test_products_in_int8_by_the_ratio_of_the_peaks(tmp_path: Path) -> None:
    # What is reached of the peak stays: four times the peak is a quarter of the time.
    rates = replace(peaks(float32=1e11, int8=4e11), delegate_call=number(1e-9))
    known = facts(tmp_path, "transformer", calibration(rates), only("Fully Connected"))
    products = [leaf for _, leaf in known.time.members if leaf.name.startswith("Fully")]
    assert products
    assert known.time.total == 100 * US * len(products)
    assert share(known, "quantize", scheme="int8") == pytest.approx(1 - 1 / 4, abs=1e-6)
    # A conversion at each border of int8 takes what a call does: 1 us, of 100 us for a product.
    dear = replace(known, calibration=calibration(peaks(float32=1e11, int8=4e11)))
    lost = (3 / 4 - share(dear, "quantize", scheme="int8")) * len(products) * 100
    assert lost == pytest.approx(round(lost), abs=1e-3)
    assert 2 <= lost < 40


def test_threads_by_the_peaks_of_both(tmp_path: Path) -> None:
    found = calibration(peaks(1, float32=1e11), peaks(4, float32=2.5e11))
    known = facts(tmp_path, "transformer", found, only("Fully Connected"))
    assert share(known, "threads", threads=4) == pytest.approx(1 - 1 / 2.5)
    assert why_not(known, "threads", threads=3) == "the calibration has no peaks of 3 threads"
    untold = facts(tmp_path, "transformer", found, only("Fully"), {})
    assert why_not(untold, "threads", threads=4) == "nothing tells the threads of the run"


def test_what_a_pass_leaves_out(tmp_path: Path) -> None:
    guard = ("eq", "logical_not", "any", "full_like", "where")
    found = calibration(peaks(float32=1e11))
    known = facts(tmp_path, "attention_xnnpack", found, lambda row: 100 * US)
    names = [leaf.name for _, leaf in known.time.members]
    gone = sum(name.startswith(guard) for name in names)
    assert gone
    # Beside the guard go the parts of the call outside of delegates, and calls become one.
    assert gone / len(names) <= share(known, "pass", name="fuse_sdpa") < 1
    assert why_not(known, "pass", name="fold_constants").startswith("the run has no operators")
    assert "nothing tells what the pass mine changes" in why_not(known, "pass", name="mine")


def test_a_portable_model_in_xnnpack(tmp_path: Path) -> None:
    # Convolutions at 30 % of the peak, linear layers at 95 %; of both nothing waits for memory.
    known = facts(
        tmp_path,
        "cnn_portable",
        calibration(replace(peaks(float32=1e10), delegate_call=number(1e-9))),
        lambda row: 10_000 * US if row.name.startswith(("convolution", "addmm")) else 0,
    )
    run = known.run_graph
    reached = {"convolution": 0.3, "addmm": 0.95}
    after = others = 0.0
    for kernel in run.kernels.values():
        for member in kernel.members:
            ns = known.work_of(member).flops / 1e10 * 1e9
            if kernel.op in reached:
                groups = dict(kernel.node.arguments).get("groups", "1")
                after += ns / (reached[kernel.op] if groups == "1" else 0.38)
            else:
                others += ns
    found = share(known, "backend", backend="xnnpack")
    assert found <= 1 - after / known.time.total + 1e-9
    assert found >= 1 - (after + 10 * others) / known.time.total


def test_why_there_is_no_estimate(tmp_path: Path) -> None:
    def each_100_us(name: str, *rates: float) -> Facts:
        flops = dict(zip(("float32", "int8"), rates, strict=False))
        return facts(tmp_path, name, calibration(peaks(**flops)), lambda row: 100 * US)

    known = each_100_us("cnn_xnnpack", 1e11)
    assert why_not(known, "backend", backend="xnnpack") == "the run is on XNNPACK already"
    reason = "the calibration is of XNNPACK's operators"
    assert why_not(known, "backend", backend="vulkan") == reason
    assert why_not(known, "quantize", scheme="int8") == "the calibration has no peak of int8"
    assert why_not(known, "quantize", scheme="8da8w") == "the calibration has no products of 8da8w"
    assert "does not tell what kernels changes" in why_not(known, "kernels", library="optimized")
    assert "XNNPACK takes none" in why_not(known, "dtype", dtype="float32")
    remedy = Remedy("Write it otherwise.")  # for the author: nothing to estimate
    assert Estimates(known).of(remedy) is remedy
    quantised = each_100_us("cnn_xnnpack_int8", 1e11, 4e11)
    assert "no products in float32" in why_not(quantised, "quantize", scheme="int8")
    portable = each_100_us("cnn_portable", 1e11)
    cycles = replace(portable, scale=Scale(TimeScale.CYCLES, TimeScale.CYCLES))
    assert why_not(cycles, "backend", backend="xnnpack") == "the clock of the run counts cycles"
    trace = Trace(portable.trace.dump, program=portable.trace.program)  # without the record
    bare = Facts(trace, portable.profile, portable.scale, portable.calibration)
    reason = "the graph of the method is not known, without an ETRecord"
    assert why_not(bare, "backend", backend="xnnpack") == reason


def test_findings_have_estimates_with_a_calibration_only(tmp_path: Path) -> None:
    found = calibration(peaks(float32=1e11), cpu="another chip")
    known = facts(tmp_path, "cnn_portable", found, lambda row: 100 * US)
    (one,) = explain(known, 0.0, ["not-delegated"])
    (remedy,) = one.explanation.remedies
    plain = one.plain(Files())["explanation"]["remedies"][0]
    assert plain["estimate"]["share"] == remedy.estimate.share
    table = explanation_table(known, [one], Files(), 0.0)
    notes = " ".join(table.notes)
    assert "Estimates are of this run and the calibration of it (another chip, 2 cores)" in notes
    assert "The calibration is not of this run: the CPU is another chip" in notes
    bare = replace(known, calibration=None)
    (one,) = explain(bare, 0.0, ["not-delegated"])
    assert [each.estimate for each in one.explanation.remedies] == [None]
    assert with_estimates(bare, [one]) == [one]
    assert "is estimated with a calibration" in " ".join(
        explanation_table(bare, [one], Files(), 0.0).notes
    )
