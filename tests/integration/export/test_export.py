"""What `export` gives: programs that run, records that explain them, bundles that verify."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.profile.scale import Scale
from etscope.errors import EtscopeWarning, ExportFailure, UsageError
from etscope.etrecord import parse_etrecord
from etscope.export import Exported, export
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.pte import read_pte
from etscope.model.exported_graph import graph_from_record
from etscope.run import run as run_program
from etscope.units import TimeScale
from tests.integration.export.conftest import COUNTING, INPUT, tiny
from tests.support.export import factories

MS = Scale(TimeScale.NS, TimeScale.MS)
EDGE = "edge_dialect_exported_program/forward"
EXPORTS = ["portable", "xnnpack", "quantized", "counting", "two_methods"]


@pytest.fixture(params=EXPORTS)
def exported(request: pytest.FixtureRequest) -> Exported:
    result: Exported = request.getfixturevalue(request.param)
    return result


def run(program: bytes, method: str, inputs: tuple[Any, ...]) -> list[Any]:
    from executorch.extension.pybindings import _C

    module = _C._load_for_executorch_from_buffer(program)
    outputs: list[Any] = module.run_method(method, inputs)
    return outputs


def test_the_program_answers_what_the_reference_says(exported: Exported) -> None:
    for method, inputs in exported.example_inputs.items():
        outputs = run(exported.program_bytes(), method, inputs)
        expected = exported.reference_outputs[method]
        torch.testing.assert_close(tuple(outputs), expected, rtol=1e-3, atol=1e-4)


def test_the_bundle_holds_inputs_and_expected_outputs(exported: Exported) -> None:
    from executorch.extension.pybindings import _C

    of_runtime = _C._load_bundled_program_from_buffer(exported.bundle())
    for method in exported.example_inputs:
        of_runtime.verify_result_with_bundled_expected_output(method, 0, rtol=1e-3, atol=1e-4)
    bundle = read_bundled(exported.bundle())
    assert bundle.program_bytes == exported.program_bytes()
    assert {suite.method for suite in bundle.suites} == set(exported.example_inputs)
    for suite in bundle.suites:
        (case,) = suite.cases
        for held, given in (
            (case.inputs, exported.example_inputs),
            (case.expected_outputs, exported.reference_outputs),
        ):
            for one, other in zip(held, given[suite.method], strict=True):
                np.testing.assert_array_equal(np.asarray(one), other.numpy())


def test_the_files_are_written_together(exported: Exported, tmp_path: Path) -> None:
    paths = exported.save(tmp_path / "new" / "folder", "net")

    assert [path.name for path in paths] == ["net.pte", "net.etrecord", "net.bpte"]
    program, record, bundle = paths
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    assert {method.name for method in read_pte(program).methods} == set(exported.example_inputs)
    assert parse_etrecord(record).program_buffer() == program.read_bytes()
    assert read_bundled(bundle).program_bytes == program.read_bytes()


def test_no_file_is_touched_when_one_cannot_be_written(
    portable: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pte").write_bytes(b"before")

    def fail(self: object) -> bytes:
        raise RuntimeError("no bundle")

    monkeypatch.setattr(Exported, "bundle", fail)
    with pytest.raises(RuntimeError, match="no bundle"):
        portable.save(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["model.pte"]
    assert (tmp_path / "model.pte").read_bytes() == b"before"


def test_names_of_files_are_names(portable: Exported, tmp_path: Path) -> None:
    for name in ("", ".", "..", "a/b", "/tmp/x"):
        with pytest.raises(UsageError, match="not a name for files"):
            portable.save(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_the_record_has_inputs_outputs_and_the_program(exported: Exported, tmp_path: Path) -> None:
    exported.record.save(tmp_path / "record")
    record = read_etrecord(tmp_path / "record")

    outputs = record.reference_outputs()
    assert outputs is not None
    assert set(outputs) == set(exported.example_inputs)
    for method, values in exported.reference_outputs.items():
        for one, other in zip(outputs[method][0], values, strict=True):
            np.testing.assert_array_equal(one, other.numpy())
    assert record.fingerprints is not None
    if len(outputs) == 1:
        inputs = record.representative_inputs()
        np.testing.assert_array_equal(inputs[0], exported.example_inputs["forward"][0].numpy())
    else:
        assert record.representative_inputs() is None


@pytest.mark.parametrize("name", ["portable", "xnnpack", "quantized"])
def test_operators_inside_delegates_have_lines_of_the_model(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    exported: Exported = request.getfixturevalue(name)
    exported.record.save(tmp_path / "record")
    graph = graph_from_record(read_etrecord(tmp_path / "record"), EDGE)
    (relu,) = [node for node in graph.nodes if "relu" in node.name]
    assert relu.debug_handle
    assert relu.stack_trace is not None
    innermost = relu.stack_trace.rpartition("  File ")[2]
    assert innermost.startswith(f'"{factories.__file__}"')
    assert "torch.relu(self.linear(x))" in innermost


def test_delegates_are_linked_to_operators(xnnpack: Exported) -> None:
    (method,) = read_pte(xnnpack.program_bytes()).methods
    assert [delegate.backend_id for delegate in method.delegates] == ["XnnpackBackend"]
    torch.testing.assert_close(xnnpack.reference_outputs["forward"][0], tiny()(INPUT).detach())
    handles = xnnpack.record._debug_handle_map
    assert handles is not None
    assert any(handles["forward"].values())


def test_a_quantized_export_keeps_the_graph_from_before(quantized: Exported) -> None:
    before = quantized.record.graph_map["float/forward"]  # type: ignore[index]
    expected = tiny()(INPUT)
    torch.testing.assert_close(before.module()(INPUT), expected)
    (answer,) = quantized.reference_outputs["forward"]
    assert not torch.equal(answer, expected)
    torch.testing.assert_close(answer, expected, rtol=0.1, atol=0.05)


def test_a_model_that_is_quantized_already_takes_its_float_model_along(tmp_path: Path) -> None:
    from torchao.quantization.granularity import PerAxis
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    model = tiny()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_granularity=PerAxis(0)))
    made = export(model, (INPUT,), backend="xnnpack", float_model=tiny())
    before = made.record.graph_map["float/forward"]  # type: ignore[index]
    torch.testing.assert_close(before.module()(INPUT), tiny()(INPUT))
    made.record.save(tmp_path / "record")
    assert "float/forward" in read_etrecord(tmp_path / "record").graph_names


def test_a_float_model_must_be_the_same_model() -> None:
    with pytest.raises(UsageError, match="differ in shape"):
        export(tiny(), (INPUT,), float_model=torch.nn.Linear(INPUT.shape[-1], 77))
    with pytest.raises(UsageError, match="already"):
        export(tiny(), (INPUT,), backend="xnnpack", quantize=True, float_model=tiny())


def test_calibration_sets_the_ranges() -> None:
    wide = export(
        tiny(), (INPUT,), backend="xnnpack", quantize=True, calibration=[(INPUT * 100,), INPUT]
    )
    error = (wide.reference_outputs["forward"][0] - tiny()(INPUT)).abs().max()
    assert error > 0.1  # a step is as wide as the range of the inputs it was calibrated on


def test_state_starts_from_what_it_was(counting: Exported) -> None:
    assert COUNTING.steps.tolist() == [1, 2]
    assert counting.reference_outputs["forward"][0].tolist() == [2, 3]
    assert run(counting.program_bytes(), "forward", (torch.ones(2),))[0].tolist() == [2, 3]


def test_the_mode_of_the_model_is_kept() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.ReLU())
    model[1].eval()
    exported = export(model, torch.ones(50))
    assert exported.reference_outputs["forward"][0].tolist() == [1.0] * 50
    assert [module.training for module in model.modules()] == [True, True, False]


def test_inputs_by_keyword_come_in_the_programs_order() -> None:
    inputs = {"second": torch.ones(3), "first": torch.zeros(3)}
    exported = export(factories.Keywords(), inputs)
    flat = exported.example_inputs["forward"]
    outputs = run(exported.program_bytes(), "forward", flat)
    torch.testing.assert_close(tuple(outputs), exported.reference_outputs["forward"])
    assert [output[0].item() for output in outputs] == [-2, 1]


def test_non_strict_export_is_told() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return x + 1

    with pytest.warns(EtscopeWarning, match="exported non-strictly, as strict export fails"):
        exported = export(Odd(), torch.ones(2))
    assert exported.reference_outputs["forward"][0].tolist() == [2, 2]
    with pytest.raises(ExportFailure, match=r"torch\.export cannot export") as caught:
        export(Odd(), torch.ones(2), strict=True)
    assert "strict" in str(caught.value.hint)


def test_a_model_that_torch_cannot_follow() -> None:
    with pytest.raises(ExportFailure, match=r"torch\.export cannot export") as caught:
        export(factories.Branching(), torch.ones(3))
    assert f"{factories.__file__}:" in str(caught.value)
    assert "if x.sum() > 0:" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_model_that_fails_in_pytorch() -> None:
    with pytest.raises(ExportFailure, match="fails in PyTorch, on its example inputs") as caught:
        export(factories.Failing(), torch.ones(3, 4))
    assert "return x @ x" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        ("Tiny", {}, "no example inputs"),
        ("Tiny", {"backend": "vulcan"}, r"unknown backend 'vulcan'\n  hint: .*portable, xnnpack"),
        ("Tiny", {"quantize": True}, "'portable' does not have a quantizer"),
        ("Tiny", {"calibration": []}, "for quantization to int8 only"),
        ("EagerModel", {}, "cannot export a EagerModel"),
    ],
)
def test_what_makes_no_sense(model: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        export(getattr(factories, model)(), **arguments)


def test_what_makes_no_sense_for_programs() -> None:
    program = factories.program()
    bare = torch.export.export(factories.Tiny(), (INPUT,))
    bare.example_inputs = None
    with pytest.raises(UsageError, match="'forward' has no example inputs"):
        export(bare)
    with pytest.raises(UsageError, match="exported already"):
        export(program, dynamic_shapes={"x": None})
    with pytest.raises(UsageError, match="inputs by method"):
        export({"a": program}, (INPUT,))


def test_dynamic_shapes_reach_the_program() -> None:
    model, inputs, shapes = factories.triple()
    exported = export(model, inputs, dynamic_shapes=shapes)
    with pytest.raises(UsageError, match="dynamic shapes"):
        export(exported.record.exported_program, backend="xnnpack", quantize=True)
    other = torch.randn(5, 8)
    (output,) = run(exported.program_bytes(), "forward", (other,))
    torch.testing.assert_close(output, model(other).detach())


def test_upstreams_tools_are_not_loaded() -> None:
    code = (
        "import sys, torch; from etscope.export import export; "
        "export(torch.nn.ReLU(), torch.ones(2)).bundle(); "
        "print([name for name in sys.modules if name.startswith('executorch.devtools')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_backend_that_takes_no_operator_is_told() -> None:
    model, x = torch.nn.Linear(4, 4).to(torch.bfloat16), torch.ones(2, 4, dtype=torch.bfloat16)

    with pytest.warns(EtscopeWarning, match="xnnpack took no operator of forward: all 2 run") as w:
        exported = export(model, (x,), backend="xnnpack")
    why = "XNNPACK takes float32, float16 and quantized int8, and the tensors are bfloat16 (5)"
    assert why in str(w[-1].message)
    ran = run_program(exported.program_bytes(), iterations=1)
    facts = Facts(ran.trace, ran.trace.profiles()[0], MS)
    (told,) = [one.sentence for one in insights(facts, Level.SUMMARY, only=["not-delegated"])]
    assert why in told


class HalfDelegated(torch.nn.Module):
    """XNNPACK takes the first layer; the two after it are of a type that it does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(256, 256)
        self.rest = torch.nn.Sequential(
            torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4)
        ).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x).to(torch.bfloat16))


def test_types_that_a_backend_left_are_told() -> None:
    with pytest.warns(EtscopeWarning, match="xnnpack left 6 operators of forward to portable") as w:
        exported = export(HalfDelegated(), (torch.ones(64, 256),), backend="xnnpack")
    why = r"XNNPACK takes float32, float16 and quantized int8, and most of their tensors are "
    assert f"{why}bfloat16 (10)" in str(w[-1].message)
    ran = run_program(exported.program_bytes(), iterations=1)
    facts = Facts(ran.trace, ran.trace.profiles()[0], MS)
    (told,) = [one.sentence for one in insights(facts, Level.SUMMARY, only=["outside-delegates"])]
    assert f"{why}bfloat16 (10)." in told


class Summed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)


def test_a_backend_without_the_operators_is_told_with_their_names() -> None:
    with pytest.warns(EtscopeWarning, match=r"does not support them \(aten::cumsum\)"):
        export(Summed(), (torch.ones(3),), backend="xnnpack")


class Writing(torch.nn.Module):
    """Its cache is a parameter, which PyTorch tracks."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, torch.arange(2), x[:2])
        return self.cache * 2


class Keeping(Writing):
    """Its cache is a buffer, which has gradients after a call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        del self.cache
        self.register_buffer("cache", torch.zeros(4))
        self(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.linear(x))


@pytest.mark.parametrize("kind", [Writing, Keeping])
def test_a_cache_that_gradients_are_recorded_of(kind: type[torch.nn.Module]) -> None:
    with pytest.raises(ExportFailure) as caught:
        export(kind(), (torch.ones(4),))
    assert "export under torch.no_grad()" in str(caught.value.hint)
    with torch.no_grad():
        exported = export(kind(), (torch.ones(4),))
    assert exported.program_bytes()
