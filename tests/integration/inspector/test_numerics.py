"""`Inspector.diagnose_numerics`: real runs are fine, and what is wrong is named."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

import torch

from etscope import Inspector
from etscope.analysis.numerics.rows import FINE, INHERITED, WRONG, Numerics
from etscope.analysis.numerics.runs import TracedMethod
from etscope.errors import MismatchError, NumericGapError, UsageError
from etscope.run import Run, run
from tests.support.artifacts import artifacts
from tests.support.faults.recorded import found as found_in
from tests.support.faults.recorded import opened
from tests.support.numeric_runs import ATEN, EDGE, inputs_of, inspector

RIGHT = (
    "cnn_portable", "cnn_xnnpack", "cnn_xnnpack_lowered", "cnn_xnnpack_int8", "transformer", "cond",
    "while_loop", "channels_last", "int_outputs", "dynamic_shape", "many_delegates",
    "recurrent_xnnpack", "rewritten_state", "inf_output", "nan_output",
)  # fmt: skip
WITHOUT_ATEN = {"cnn_xnnpack_lowered"}


# Of the record of `net_faults.Net`, and those of the runs "other_inputs".
INPUTS = (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
OTHER_INPUTS = (INPUTS[0] * 2 + 1,)


def diagnosed(name: str, run: str) -> Numerics:
    """What is found in a recorded run when it is said to be on `INPUTS`."""
    return opened(name, run, verify=True).diagnose_numerics(inputs=INPUTS)


def line_of(mark: str, name: str = "net_portable") -> int:
    return int(artifacts(name).meta["lines"][mark])


def ran_on_others(*, verify: bool = True) -> Run:
    """A run of the right model, which knows its inputs."""
    made = artifacts("net_portable")
    return run(
        made.extra("right.pte"), OTHER_INPUTS, etrecord=made.etrecord, verify=verify,
        debug_level="intermediate_outputs", separate=False, isolate=False, iterations=1, warmup=0,
    )  # fmt: skip


@pytest.mark.parametrize("graph", [EDGE, ATEN])
@pytest.mark.parametrize("name", RIGHT)
def test_real_runs_are_fine(name: str, graph: str) -> None:
    if name in WITHOUT_ATEN and graph == ATEN:
        pytest.skip("the record has no exported program")
    found = inspector(name).diagnose_numerics(inputs=inputs_of(name), reference_graph=graph)
    assert found.is_fine, found.verdict
    assert not found.doubts
    assert {row.verdict for row in found.rows} == {FINE}
    gap = inspector(name).numeric_gap(
        ["sqnr"], graph, inputs=inputs_of(name), disable_debug_handle_validation=True
    )
    totals = {(row.pair, row.loop_pass): row.metrics["sqnr"] for row in gap.rows}
    assert len(totals) == len(found.rows)
    for row in found.rows:
        expected = totals[row.pair, row.loop_pass]
        assert row.total == expected or math.isnan(expected or 0.0)


def test_another_operator_on_the_device_is_wrong() -> None:
    found = inspector("replaced_operators").diagnose_numerics(
        inputs=inputs_of("replaced_operators")
    )
    assert [row.label for row in found.wrong] == ["cos", "cos"]


def test_local_and_inherited_errors() -> None:
    found = diagnosed("net_portable", "scale")
    assert found.first is not None and found.first.lines[0].line == line_of("scale")
    by_verdict = {
        verdict: [row.label for row in found.rows if row.verdict == verdict]
        for verdict in (FINE, WRONG, INHERITED)
    }
    assert by_verdict == {
        FINE: ["convolution", "relu"], WRONG: ["mul"], INHERITED: ["mean", "add", "log"],
    }  # fmt: skip
    (wrong,) = found.wrong
    assert wrong.local == pytest.approx(20, abs=0.1)
    assert wrong.total == pytest.approx(20, abs=0.1)
    assert wrong.inherited is not None and wrong.inherited > 100
    mean = next(row for row in found.rows if row.label == "mean")
    assert mean.local is not None and mean.local > 100
    assert mean.inherited == pytest.approx(20, abs=0.1)


class Centred(torch.nn.Module):
    """Its second mean is of terms that cancel: PyTorch's is 0 in some rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)).mean(-1, keepdim=True)


def test_a_mean_of_centred_numbers_is_sound() -> None:
    from executorch.exir import to_edge

    def inputs(seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return (100 * torch.randn(1, 1, 1000, generator=generator),)

    exported = torch.export.export(Centred().eval(), inputs(0))
    program = to_edge(exported, generate_etrecord=True).to_executorch()
    for seed in (0, 1, 13, 58):
        with run(
            program, inputs(seed), debug_level="intermediate_outputs", separate=False,
            isolate=False, iterations=1, warmup=0,
        ) as done:  # fmt: skip
            found = done.inspector().diagnose_numerics(inputs=inputs(seed))
        assert found.is_fine, found.verdict


def test_two_faults_are_told_from_each_other() -> None:
    found = diagnosed("net_portable", "two")
    assert [row.lines[0].line for row in found.wrong] == [line_of("scale"), line_of("addend")]
    assert [row.lines[0].line for row in found.suspects] == [line_of("addend"), line_of("scale")]
    assert found.notes[1] == found.what_it_is
    assert "times 1.001; this explains" in found.notes[1]
    assert found.notes[2].startswith("the cause: The program's weights are not the record's: ")
    assert any("wrong by themselves, too: instruction" in note for note in found.notes)


def test_nan_has_an_origin() -> None:
    found = diagnosed("net_portable", "nan")
    assert found.first is not None and found.first.lines[0].line == line_of("addend")
    origin = found.non_finite_origin
    # The logarithm does what it should with numbers below zero; that they are, is inherited.
    assert origin is not None and origin.label == "log" and origin.verdict == INHERITED
    assert (
        origin.non_finite is not None
        and origin.non_finite.nan == 4
        and origin.non_finite.is_unexpected
    )
    assert any("4 NaN come from instruction" in note for note in found.notes)


def test_nan_of_the_model_itself_is_told_but_not_wrong() -> None:
    found = inspector("nan_output").diagnose_numerics(inputs=inputs_of("nan_output"))
    assert found.is_fine and found.non_finite_origin is not None
    assert any("as in the reference" in note for note in found.notes)


def test_a_delegate_is_named_with_its_lines() -> None:
    found = diagnosed("net_xnnpack", "scale")
    first = found.first
    assert first is not None and first.is_delegate
    assert line_of("scale") in [line.line for line in first.lines]
    assert "the delegate call" in found.verdict and f":{line_of('scale')}" in found.verdict


def test_a_quantized_delegate() -> None:
    assert diagnosed("net_int8", "right").is_fine
    found = diagnosed("net_int8", "scale")
    assert found.first is not None and found.first.is_delegate
    assert line_of("scale") in [line.line for line in found.first.lines]


@pytest.mark.parametrize(("backend", "is_fine"), [("portable", True), ("xnnpack", False)])
def test_a_backend_that_computes_something_else(backend: str, is_fine: bool) -> None:
    """XNNPACK knows one gelu: that with "tanh" is computed as the exact one."""
    found = opened(f"net_gelu_{backend}").diagnose_numerics("max_abs", inputs=INPUTS)
    assert found.is_fine is is_fine
    (row,) = found.rows
    assert row.local is not None and (row.local < 1e-6) is is_fine


def test_other_inputs_are_told_by_a_delegate_that_logged_them() -> None:
    assert not diagnosed("net_xnnpack", "right").doubts
    with pytest.raises(MismatchError, match=r"not the inputs that ran.* for input 0"):
        diagnosed("net_xnnpack", "other_inputs")


def test_other_inputs_are_in_doubt_when_all_that_reads_them_is_wrong() -> None:
    (doubt,) = diagnosed("net_portable", "other_inputs").doubts
    assert "if these are not the inputs that ran" in doubt

    inspected = opened("net_twice", "other_inputs")
    (doubt,) = inspected.diagnose_numerics(inputs=INPUTS).doubts
    assert "may not be the inputs that ran" in doubt
    assert not inspected.diagnose_numerics(inputs=OTHER_INPUTS).doubts


def test_other_inputs_than_those_that_were_noted_are_refused() -> None:
    inspected = ran_on_others().inspector()
    assert inspected.diagnose_numerics(inputs=OTHER_INPUTS).is_fine
    assert inspected.diagnose_numerics(inputs=[OTHER_INPUTS[0].numpy()]).is_fine
    with pytest.raises(MismatchError, match="not the inputs that ran") as caught:
        inspected.diagnose_numerics(inputs=INPUTS)
    assert "leave out --inputs" in str(caught.value)
    forced = ran_on_others(verify=False).inspector()
    assert not forced.diagnose_numerics(inputs=INPUTS).is_fine


@pytest.mark.parametrize(("run", "is_fine"), [("right", True), ("decay", False)])
def test_a_scan_blames_no_operator_behind_it(run: str, is_fine: bool) -> None:
    found = found_in("net_scan", run)
    assert found.is_fine is is_fine
    assert {row.label for row in found.wrong} <= {"mul"}
    assert all(row.node.startswith("submodule_0/") for row in found.wrong)


def test_the_tolerance_is_in_the_metric() -> None:
    inspected = opened("net_portable", "scale")
    for metric, loose, tight in (("sqnr", 19.0, 21.0), ("max_rel", 0.11, 0.09)):
        fine = inspected.diagnose_numerics(metric, inputs=INPUTS, tolerance=loose)
        wrong = inspected.diagnose_numerics(metric, inputs=INPUTS, tolerance=tight)
        assert fine.is_fine and not wrong.is_fine
    with pytest.raises(UsageError, match="NaN"):
        inspected.diagnose_numerics(inputs=INPUTS, tolerance=math.nan)
    with pytest.raises(UsageError, match="unknown metric"):
        inspected.diagnose_numerics("euclid", inputs=INPUTS)


def test_a_run_diagnoses_itself() -> None:
    found = ran_on_others().numerics("max_abs")
    assert found.is_fine and not found.doubts
    assert found.metric.name == "max_abs"


def test_tables() -> None:
    found = diagnosed("net_portable", "scale")
    table = found.table()
    assert table.values["instruction"] == sorted(table.values["instruction"])
    assert table.values["verdict"].count("wrong") == 1
    assert found.table("error").values["verdict"][0] == "wrong"
    assert table.notes[0] == found.verdict
    assert repr(found) == f"<Numerics of forward: {found.verdict}>"
    with pytest.raises(UsageError, match="sorted by run or error"):
        found.table("size")


def test_what_is_missing_is_said() -> None:
    made = artifacts("cnn_portable")
    inputs = inputs_of("cnn_portable")
    with pytest.raises(NumericGapError, match="needs an ETRecord"):
        Inspector(made.etdump, debug_buffer_path=made.debug_buffer).diagnose_numerics()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = Inspector(made.etdump, etrecord=made.etrecord)
    with pytest.raises(NumericGapError, match="in the debug buffer, which is missing"):
        bare.diagnose_numerics(inputs=inputs)
    whole = inspector("cnn_portable")
    with pytest.raises(NumericGapError, match="of the reference graph: float32"):
        whole.diagnose_numerics(inputs=[np.zeros((2, 2), np.float32)])
    with pytest.raises(NumericGapError, match="no reference graph"):
        whole.diagnose_numerics(inputs=inputs, reference_graph="other")
    with pytest.raises(NumericGapError, match="no values of operators"):
        inspector("written_state").diagnose_numerics(inputs=inputs_of("written_state"))


def test_values_of_an_int8_model_have_the_scale_of_the_graph() -> None:
    inspected = opened("net_layers_int8")
    found = inspected.diagnose_numerics()
    graph = TracedMethod(inspected.trace, "forward").symbols.graph
    assert graph is not None
    (row,) = found.rows
    assert row.values is not None
    quantized = row.values.local.quantized
    assert quantized is not None
    arguments = dict(graph.by_name[quantized.node].arguments)
    assert quantized.scale == float(arguments["scale"])
    assert quantized.zero_point == int(arguments["zero_point"])
    assert row.values.local.tolerance == pytest.approx(quantized.scale)
    low, high = row.values.local.device.min, row.values.local.device.max
    assert low is not None and high is not None
    assert quantized.low is not None and quantized.high is not None
    rounding = 1e-5 * quantized.scale  # to float32
    assert quantized.low - rounding <= low < high <= quantized.high + rounding
    assert high / quantized.scale == pytest.approx(round(high / quantized.scale), abs=1e-3)
    # Calibrated with these inputs: their extremes are the ends of the range.
    ends = row.values.local.device_saturated
    assert ends is not None
    assert ends.low + ends.high >= 1
