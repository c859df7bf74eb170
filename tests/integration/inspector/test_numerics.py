"""`Inspector.diagnose_numerics`: real runs are fine, and what is wrong is named."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope import Inspector  # noqa: E402
from etscope.analysis.numerics.rows import FINE, INHERITED, WRONG, Numerics  # noqa: E402
from etscope.analysis.numerics.runs import edge_symbols  # noqa: E402
from etscope.errors import MismatchError, NumericGapError, UsageError  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.run import Run, run  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.numeric_runs import ATEN, EDGE, inputs_of, inspector  # noqa: E402

RIGHT = (
    "cnn_portable", "cnn_xnnpack", "cnn_xnnpack_lowered", "cnn_xnnpack_int8", "transformer", "cond",
    "while_loop", "channels_last", "int_outputs", "dynamic_shape", "many_delegates",
    "recurrent_xnnpack", "rewritten_state", "inf_output", "nan_output",
)  # fmt: skip
WITHOUT_ATEN = {"cnn_xnnpack_lowered"}


class Net(torch.nn.Module):
    """A line for each operator; what may differ on the device are the arguments."""

    def __init__(self, scale: float = 1.0, small: float = 1e-5, addend: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.scale, self.small, self.addend = scale, small, addend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        y = torch.relu(y)
        y = y * self.scale  # scale
        y = y.mean((2, 3))
        y = y + self.addend  # addend
        return torch.log(y)


INPUTS = (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))


def ran(model: torch.nn.Module, inputs: Any = INPUTS, **options: Any) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = export(model, inputs, **options)
        return run(
            made.program, inputs, debug_level="intermediate_outputs", separate=False,
            isolate=False, iterations=1, warmup=0,
        )  # fmt: skip


@cache
def record_of(kind: type[torch.nn.Module], **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return export(kind(), INPUTS, **options).record


def without_notes(done: Run, record: Any) -> Inspector:
    """Open a run as a dump whose inputs nobody noted, as without the run.json beside it."""
    inspected = done.inspector(etrecord=record)
    inspected.trace.__dict__["known_calls"] = ()
    return inspected


def diagnosed(device: torch.nn.Module, inputs: Any = INPUTS, **options: Any) -> Numerics:
    """What is found in a run of `device` on `inputs` with the record of `Net`."""
    inspected = without_notes(ran(device, inputs, **options), record_of(Net, **options))
    return inspected.diagnose_numerics(inputs=INPUTS)


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
    found = diagnosed(Net(scale=1.1))
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


def test_two_faults_are_told_from_each_other() -> None:
    found = diagnosed(Net(scale=1.001, addend=5.0))
    assert [row.lines[0].line for row in found.wrong] == [line_of("scale"), line_of("addend")]
    assert [row.lines[0].line for row in found.suspects] == [line_of("addend"), line_of("scale")]
    assert found.notes[1] == found.what_it_is
    assert "times 1.001, or its other 1.001 in place of 1" in found.notes[1]
    assert "wrong by themselves, too: instruction" in found.notes[2]


def test_nan_has_an_origin() -> None:
    found = diagnosed(Net(addend=-50.0))
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
    found = diagnosed(Net(scale=1.1), backend="xnnpack")
    first = found.first
    assert first is not None and first.is_delegate
    assert line_of("scale") in [line.line for line in first.lines]
    assert "the delegate call" in found.verdict and f":{line_of('scale')}" in found.verdict


def test_a_quantised_delegate() -> None:
    assert diagnosed(Net(), backend="xnnpack", quantize=True).is_fine
    found = diagnosed(Net(scale=1.5), backend="xnnpack", quantize=True)
    assert found.first is not None and found.first.is_delegate
    assert line_of("scale") in [line.line for line in found.first.lines]


def test_a_backend_that_computes_something_else() -> None:
    """XNNPACK knows one gelu: that with "tanh" is computed as the exact one."""

    class Gelu(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(x, approximate="tanh")

    for backend, is_fine in (("portable", True), ("xnnpack", False)):
        opened = ran(Gelu(), backend=backend).inspector(etrecord=record_of(Gelu, backend=backend))
        found = opened.diagnose_numerics("max_abs", inputs=INPUTS)
        assert found.is_fine is is_fine
        (row,) = found.rows
        assert row.local is not None and (row.local < 1e-6) is is_fine


OTHER_INPUTS = (INPUTS[0] * 2 + 1,)


def test_other_inputs_are_told_by_a_delegate_that_logged_them() -> None:
    assert not diagnosed(Net(), backend="xnnpack").doubts
    with pytest.raises(MismatchError, match=r"not the inputs that ran.* for input 0"):
        diagnosed(Net(), OTHER_INPUTS, backend="xnnpack")


def test_other_inputs_are_in_doubt_when_all_that_reads_them_is_wrong() -> None:
    (doubt,) = diagnosed(Net(), OTHER_INPUTS).doubts
    assert "if these are not the inputs that ran" in doubt

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x) + torch.tanh(x)

    done = ran(Twice(), OTHER_INPUTS)
    inspected = without_notes(done, record_of(Twice))
    (doubt,) = inspected.diagnose_numerics(inputs=INPUTS).doubts
    assert "may not be the inputs that ran" in doubt
    assert not inspected.diagnose_numerics(inputs=OTHER_INPUTS).doubts


def test_other_inputs_than_those_that_were_noted_are_refused() -> None:
    inspected = ran(Net(), OTHER_INPUTS).inspector(etrecord=record_of(Net))
    assert inspected.diagnose_numerics(inputs=OTHER_INPUTS).is_fine
    assert inspected.diagnose_numerics(inputs=[OTHER_INPUTS[0].numpy()]).is_fine
    with pytest.raises(MismatchError, match="not the inputs that ran") as caught:
        inspected.diagnose_numerics(inputs=INPUTS)
    assert "without --inputs" in str(caught.value)
    forced = ran(Net(), OTHER_INPUTS).inspector(etrecord=record_of(Net), verify=False)
    assert not forced.diagnose_numerics(inputs=INPUTS).is_fine


class Scan(torch.nn.Module):
    """What goes from step to step is copied, and the copies are of no node; `decay` is what the
    device may do wrong."""

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = torch.nn.Linear(4, 4)
        self.decay = decay

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.scan import scan

        def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            carry = torch.tanh(torch.mul(carry, self.decay) + x)
            return carry, torch.mul(carry, 2.0)

        _, ys = scan(step, torch.mul(xs[0], 0.0), xs)
        return torch.mul(self.linear(ys), 3.0)


@pytest.mark.parametrize("decay", [0.9, 0.5])
def test_a_scan_blames_no_operator_behind_it(decay: float) -> None:
    xs = (torch.randn(5, 4, generator=torch.Generator().manual_seed(0)),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record = export(Scan(), xs).record
        program = export(Scan(decay), xs).program
    done = run(
        program, xs, debug_level="intermediate_outputs", separate=False, iterations=1, warmup=0
    )
    found = done.inspector(etrecord=record).diagnose_numerics(inputs=xs)
    assert found.is_fine is (decay == 0.9)
    assert {row.label for row in found.wrong} <= {"mul"}
    assert all(row.node.startswith("submodule_0/") for row in found.wrong)


def test_the_tolerance_is_in_the_metric() -> None:
    inspected = ran(Net(scale=1.1)).inspector(etrecord=record_of(Net))
    for metric, loose, tight in (("sqnr", 19.0, 21.0), ("max_rel", 0.11, 0.09)):
        fine = inspected.diagnose_numerics(metric, inputs=INPUTS, tolerance=loose)
        wrong = inspected.diagnose_numerics(metric, inputs=INPUTS, tolerance=tight)
        assert fine.is_fine and not wrong.is_fine
    with pytest.raises(UsageError, match="NaN"):
        inspected.diagnose_numerics(inputs=INPUTS, tolerance=math.nan)
    with pytest.raises(UsageError, match="unknown metric"):
        inspected.diagnose_numerics("euclid", inputs=INPUTS)


def test_a_run_diagnoses_itself() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = export(Net(), INPUTS)
    done = run(
        made.program, OTHER_INPUTS, etrecord=made.record, debug_level="intermediate_outputs",
        separate=False, isolate=False, iterations=1, warmup=0,
    )  # fmt: skip
    found = done.numerics("max_abs")
    assert found.is_fine and not found.doubts
    assert found.metric.name == "max_abs"


def test_tables() -> None:
    found = diagnosed(Net(scale=1.1))
    table = found.table()
    assert table.values["instruction"] == sorted(table.values["instruction"])
    assert table.values["verdict"].count("wrong") == 1
    assert found.table("error").values["verdict"][0] == "wrong"
    assert table.notes[0] == found.verdict
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
    with pytest.raises(NumericGapError, match="in the debug buffer, and none was given"):
        bare.diagnose_numerics(inputs=inputs)
    opened = inspector("cnn_portable")
    with pytest.raises(NumericGapError, match="of the reference graph: float32"):
        opened.diagnose_numerics(inputs=[np.zeros((2, 2), np.float32)])
    with pytest.raises(NumericGapError, match="no reference graph"):
        opened.diagnose_numerics(inputs=inputs, reference_graph="other")
    with pytest.raises(NumericGapError, match="no values of operators"):
        inspector("written_state").diagnose_numerics(inputs=inputs_of("written_state"))


def test_values_of_an_int8_model_have_the_scale_of_the_graph() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
    inputs = (torch.randn(4, 16),)
    exported = export(model.eval(), inputs, backend="xnnpack", quantize=True)
    options = {"separate": False, "isolate": False, "iterations": 1, "warmup": 0}
    with run(exported.program, inputs, debug_level="intermediate_outputs", **options) as done:
        opened = done.inspector(etrecord=exported.record, verify=False)
        found = opened.diagnose_numerics(inputs=inputs)
        graph = edge_symbols(opened.trace, "forward").graph
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
    assert quantized.low <= low < high <= quantized.high
    assert high / quantized.scale == pytest.approx(round(high / quantized.scale), abs=1e-3)
    # Calibrated with these inputs: their extremes are the ends of the range.
    ends = row.values.local.device_saturated
    assert ends is not None
    assert ends.low + ends.high >= 1
