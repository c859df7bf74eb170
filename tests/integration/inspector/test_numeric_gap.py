"""`calculate_numeric_gap` and `numeric_gap` of the Inspector: columns, choices, errors."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope import Inspector  # noqa: E402
from etscope.diagnosis.numeric_gap import COLUMNS  # noqa: E402
from etscope.errors import EtscopeWarning, NumericGapError, UsageError  # noqa: E402
from etscope.etrecord import parse_etrecord  # noqa: E402
from etscope.inspector.numerical_comparator import NumericalComparatorBase  # noqa: E402
from etscope.support.tensor_spill import TensorSpill  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.numeric_runs import ATEN, EDGE, inputs_of, inspector  # noqa: E402


@pytest.fixture(autouse=True)
def _the_same_numbers() -> None:
    """Weights and inputs do not depend on which tests ran before in this process."""
    torch.manual_seed(0)


@pytest.fixture
def batched() -> Inspector:
    return inspector("batched_linear")


def gaps(frame: Any) -> list[float]:
    return [gap for cell in frame["gap"] for gap in cell]


def test_the_columns_are_upstreams(batched: Inspector) -> None:
    frame = batched.calculate_numeric_gap("MSE", inputs=inputs_of("batched_linear"))
    assert tuple(frame.columns) == COLUMNS
    first = frame.iloc[0]
    assert first["aot_debug_handle"] == first["runtime_debug_handle"] == (1,)
    assert first["aot_ops"] == ["linear"]
    assert first["runtime_ops"] == ["native_call_addmm.out"]
    assert first["aot_intermediate_output"].shape == (2, 3, 6)
    assert torch.allclose(first["aot_intermediate_output"], first["runtime_intermediate_output"])
    assert isinstance(first["gap"], list) and first["gap"][0] < 1e-10
    assert "self.first(x)" in first["stacktraces"]["linear"]


@pytest.mark.parametrize("distance", ["MSE", "mse", " L1 ", "Snr", "max_abs"])
def test_distances_by_name(batched: Inspector, distance: str) -> None:
    frame = batched.calculate_numeric_gap(distance, inputs=inputs_of("batched_linear"))
    assert len(frame) == 3
    assert all(np.isfinite(gap) or distance == "Snr" for gap in gaps(frame))


def test_a_comparator_of_ones_own(batched: Inspector) -> None:
    class Largest(NumericalComparatorBase):
        def preprocessing(self, mapping: Any) -> Any:
            assert all(len(handles) == 1 for handles, _ in mapping)
            return {key: (handles, value + 1) for key, (handles, value) in mapping.items()}

        def element_compare(self, a: Any, b: Any) -> float:
            return float((a - b).abs().max())

    comparator = Largest()
    frame = batched.calculate_numeric_gap(comparator, inputs=inputs_of("batched_linear"))
    assert tuple(frame.columns) == COLUMNS
    assert comparator.inspector is batched
    assert gaps(frame) == pytest.approx([1, 1, 1], rel=1e-5)


def test_one_of_upstreams_comparators_will_do(batched: Inspector) -> None:
    upstream = pytest.importorskip("executorch.devtools.inspector.numerical_comparator")
    inputs = inputs_of("batched_linear")
    frame = batched.calculate_numeric_gap(upstream.L1Comparator(), inputs=inputs)
    ours = batched.calculate_numeric_gap("L1", inputs=inputs)
    assert gaps(frame) == pytest.approx(gaps(ours), rel=1e-9)


@pytest.mark.parametrize("distance", ["euclid", "", 3, None, object()])
def test_an_unknown_distance(batched: Inspector, distance: Any) -> None:
    with pytest.raises(UsageError, match="Unsupported distance metric"):
        batched.calculate_numeric_gap(distance)


def test_graphs_by_name(batched: Inspector) -> None:
    inputs = inputs_of("batched_linear")
    exported = batched.calculate_numeric_gap("MSE", reference_graph=ATEN, inputs=inputs)
    edge = batched.calculate_numeric_gap("MSE", reference_graph=EDGE, inputs=inputs)
    assert (len(exported), len(edge)) == (3, 6)
    with pytest.raises(NumericGapError, match="no reference graph 'other'") as caught:
        batched.calculate_numeric_gap("MSE", reference_graph="other", inputs=inputs)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, LookupError)
    assert f"{ATEN}, {EDGE}" in str(caught.value)


def test_a_graph_of_a_pass_is_a_reference() -> None:
    opened = inspector("replaced_operators")
    assert opened.trace.record is not None
    after = next(name for name in opened.trace.record.graph_names if "after" in name)
    inputs = inputs_of("replaced_operators")
    before = opened.calculate_numeric_gap("MSE", reference_graph=EDGE, inputs=inputs)
    same = opened.calculate_numeric_gap("MSE", reference_graph=after, inputs=inputs)
    assert max(gaps(same)) < 1e-10 < 1e-3 < max(gaps(before))


def test_an_exported_program_that_is_not_all_linked_is_not_the_default() -> None:
    opened, inputs = inspector("dynamic_shape"), inputs_of("dynamic_shape")
    with pytest.warns(EtscopeWarning, match="disable_debug_handle_valdiation"):
        frame = opened.calculate_numeric_gap("MSE", inputs=inputs)
    assert frame["aot_ops"].iloc[-1] == ["aten_add_tensor"]
    forced = opened.calculate_numeric_gap("MSE", True, inputs=inputs)
    assert forced["aot_ops"].iloc[-1] == ["add"]


def test_one_of_several_methods_must_be_named() -> None:
    with pytest.raises(UsageError, match="several methods ran"):
        inspector("two_methods").calculate_numeric_gap("MSE")


def test_the_coverage_of_a_gap(batched: Inspector) -> None:
    gap = batched.numeric_gap(["mse", "snr"], inputs=inputs_of("batched_linear"))
    assert [metric.name for metric in gap.metrics] == ["mse", "snr"]
    assert not gap.coverage.nodes
    assert "3 of 6 logged values" in str(gap.coverage)
    assert {item.kind for item in gap.coverage.outputs} == {"inside"}


# -- what must be there


def opened(name: str, **changes: Any) -> Inspector:
    made = artifacts(name)
    files: dict[str, Any] = {
        "etdump_path": made.etdump,
        "etrecord": made.etrecord,
        "debug_buffer_path": made.debug_buffer,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Inspector(**{**files, **changes})


def test_no_record() -> None:
    with pytest.raises(NumericGapError, match="needs an ETRecord"):
        opened("batched_linear", etrecord=None).calculate_numeric_gap("MSE")


def test_no_values() -> None:
    made = artifacts("cnn_portable")
    with pytest.raises(NumericGapError, match="no values of operators"):
        opened("cnn_portable", etdump_path=made.etdump_timing).calculate_numeric_gap("MSE")


def test_no_inputs() -> None:
    with pytest.raises(NumericGapError, match="no inputs") as caught:
        opened("batched_linear").calculate_numeric_gap("MSE")
    assert "update_representative_inputs" in str(caught.value)


def test_inputs_of_the_record(tmp_path: Path) -> None:
    record = parse_etrecord(str(artifacts("batched_linear").etrecord))
    record.update_representative_inputs(list(inputs_of("batched_linear")))
    in_memory = opened("batched_linear", etrecord=record).calculate_numeric_gap("MSE")
    record.save(tmp_path / "with_inputs.etrecord")
    saved = opened("batched_linear", etrecord=tmp_path / "with_inputs.etrecord")
    assert gaps(saved.calculate_numeric_gap("MSE")) == gaps(in_memory)


def test_a_record_that_was_never_saved_has_other_names(tmp_path: Path) -> None:
    """torch names nodes anew when it reads a record; both forms must give the same."""
    from etscope.run import run
    from tests.support.artifact_recipes.values import ManyOutputs
    from tests.support.artifact_recipes.workbench import exported, portable

    x = torch.randn(3, 4)
    program = portable(exported(ManyOutputs(), (x,))).to_executorch()
    (tmp_path / "program.pte").write_bytes(program.buffer)
    program.get_etrecord().save(str(tmp_path / "saved.etrecord"))
    done = run(tmp_path / "program.pte", inputs=[x], debug_level="intermediate_outputs")
    in_memory = done.inspector(etrecord=program.get_etrecord())
    saved = done.inspector(etrecord=tmp_path / "saved.etrecord")
    for graph in (EDGE, ATEN):
        one = in_memory.calculate_numeric_gap("MSE", False, graph, inputs=[x])
        other = saved.calculate_numeric_gap("MSE", False, graph, inputs=[x])
        assert len(one) == 9
        assert gaps(one) == gaps(other)
        assert list(one["aot_ops"]) == list(other["aot_ops"])


def test_the_float_model_is_a_reference_of_its_int8_program() -> None:
    from etscope.export import export
    from etscope.run import run
    from tests.support.artifact_recipes.numerics import ManyDelegates

    x = torch.randn(2, 4)
    made = export(ManyDelegates(), (x,), backend="xnnpack", quantize=True)
    opened = run(made.record, inputs=[x], debug_level="intermediate_outputs").inspector()
    frame = opened.calculate_numeric_gap("MSE", reference_graph="float")
    assert {ops[-1] for ops in frame["aot_ops"]} >= {"topk", "erf", "mul"}
    assert 0 < max(gaps(frame)) < 0.05  # the error of int8
    exported = opened.calculate_numeric_gap("MSE", reference_graph=ATEN)
    assert max(gaps(exported)) < max(gaps(frame)) / 10  # at most a step of rounding apart


def test_the_exported_program_is_a_reference_of_a_record_made_after_lowering(
    tmp_path: Path,
) -> None:
    import copy

    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge

    from etscope.etrecord import generate_etrecord
    from etscope.run import run
    from tests.support.artifact_recipes.numerics import ManyDelegates
    from tests.support.artifact_recipes.workbench import exported

    x = torch.randn(2, 4)
    program = exported(ManyDelegates(), (x,))
    edge = to_edge(program).to_backend(XnnpackPartitioner())
    before = copy.deepcopy(edge)
    record = tmp_path / "lowered.etrecord"
    generate_etrecord(record, before, edge.to_executorch(), program)
    opened = run(record, inputs=[x], debug_level="intermediate_outputs").inspector()
    frame = opened.calculate_numeric_gap("MSE", False, ATEN, inputs=[x])
    assert len(frame) == 7 and max(gaps(frame)) < 1e-10
    calls = opened.calculate_numeric_gap("MSE", False, EDGE, inputs=[x])
    assert len(calls) == 8 and max(gaps(calls)) < 1e-10


def test_state_is_compared_in_its_first_run(tmp_path: Path) -> None:
    from etscope.run import Call, run
    from tests.support.artifact_recipes.numerics import Rewritten
    from tests.support.artifact_recipes.workbench import exported, portable

    inputs = [torch.randn(4), torch.randn(4)]
    program = portable(exported(Rewritten(), (inputs[0],))).to_executorch()
    (tmp_path / "program.pte").write_bytes(program.buffer)
    calls = [Call(inputs=[x]) for x in inputs]
    done = run(tmp_path / "program.pte", calls, debug_level="intermediate_outputs")
    told = done.inspector(etrecord=program.get_etrecord())
    alone = Inspector(
        etdump_path=shutil.copy(done.etdump_path, tmp_path / "alone.etdp"),
        etrecord=program.get_etrecord(),
        debug_buffer_path=shutil.copy(done.debug_buffer_path, tmp_path / "alone.bin"),
    )
    for opened in (told, alone):
        first = opened.calculate_numeric_gap("MSE", False, EDGE, run=0, inputs=[inputs[0]])
        assert max(gaps(first)) < 1e-10
    # The run knows the inputs of the one before; the dump alone does not.
    second = told.calculate_numeric_gap("MSE", False, EDGE, run=1, inputs=[inputs[1]])
    assert max(gaps(second)) < 1e-10
    with pytest.raises(NumericGapError, match="keeps state"):
        alone.calculate_numeric_gap("MSE", False, EDGE, run=1, inputs=[inputs[1]])


# -- the spill


def test_a_spool_gives_back_what_it_took() -> None:
    spill = TensorSpill()
    values = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.int64).reshape(2, 3).T,
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2],
        np.broadcast_to(np.float32(3.0), (2, 2)),
        np.zeros((0, 3), np.float32),
        np.array(5.0),
        True,
        7,
    ]
    kept = [spill.add(value) for value in values]
    for value, key in zip(values, kept, strict=True):
        back = spill.get(key)
        np.testing.assert_array_equal(back, value)
        assert np.asarray(back).dtype == np.asarray(value).dtype
    first = spill.get(kept[0])
    first += 1  # a table's cell may be written to


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float16"])
def test_tensors_over_arrays_of_any_type(name: str) -> None:
    from etscope.bridge.tensors import numpy_from_tensor, tensor_over

    tensor = torch.arange(4.0).to(getattr(torch, name))
    array = np.array(numpy_from_tensor(tensor))
    made = tensor_over(array)
    assert made.dtype == tensor.dtype and torch.equal(made.float(), tensor.float())
