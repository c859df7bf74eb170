"""A reference run gives PyTorch's own values, forgets them in time, and changes nothing."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from executorch.exir import to_edge  # noqa: E402
from torch import nn  # noqa: E402

from etscope.bridge.reference.reference import (  # noqa: E402
    keeps_state,
    plain_tensors,
    reference_arrays,
    run_reference,
)
from etscope.errors import NumericGapError  # noqa: E402


class Steps(nn.Module):
    """A branch, a tuple, a number of PyTorch and an argument by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, _ = torch.topk(self.layer(x), 2)
        taken = torch.cond(values.sum() > 0, torch.sin, torch.cos, (values,))
        return taken * scale, values


class Counter(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2


def exported(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return torch.export.export(model.eval(), args, kwargs, strict=True)


@pytest.fixture(scope="module")
def steps() -> tuple[nn.Module, Any, Any]:
    torch.manual_seed(0)
    model = Steps()
    return model, exported(model, torch.randn(4, 3), scale=torch.ones(1)), torch.randn(4, 3)


@pytest.fixture(scope="module")
def counter() -> Any:
    return exported(Counter(), torch.ones(2))


def test_values_are_those_of_pytorch(steps: tuple[nn.Module, Any, Any]) -> None:
    model, program, x = steps
    found = dict(run_reference(program, ((x,), {"scale": torch.tensor([3.0])})))
    with torch.no_grad():
        expected, values = model(x, scale=torch.tensor([3.0]))
    assert torch.equal(found["mul"], expected)
    assert torch.equal(found["topk"][0], values)
    assert not any("getitem" in name for name in found)


def test_only_the_branch_that_is_taken_runs(steps: tuple[nn.Module, Any, Any]) -> None:
    _, program, x = steps
    names = [name for name, _ in run_reference(program, [x, torch.ones(1)])]
    inside = [name for name in names if "/" in name]
    assert len(inside) == 1 and inside[0].endswith(("/sin", "/cos"))
    assert names.index(inside[0]) < names.index("cond")


def test_edge_operators_run(steps: tuple[nn.Module, Any, Any]) -> None:
    _, program, x = steps
    edge = to_edge(program).exported_program()
    found = dict(run_reference(edge, [x, torch.ones(1)]))
    last = dict(run_reference(program, [x, torch.ones(1)]))["mul"]
    assert torch.allclose(found["aten_mul_tensor"], last)


def test_a_value_is_gone_after_its_last_use() -> None:
    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(6):
                x = torch.sin(x)
            return x

    alive: list[weakref.ref[Any]] = []
    most = 0
    for _, value in run_reference(exported(Chain(), torch.zeros(4)), [torch.ones(4)]):
        alive.append(weakref.ref(value))
        del value
        gc.collect()
        most = max(most, sum(ref() is not None for ref in alive))
    assert len(alive) == 6 and most <= 2


def test_state_of_the_record_is_not_written_to(counter: Any) -> None:
    given = torch.ones(2)
    for _ in range(2):
        found = dict(run_reference(counter, [given]))
        assert torch.equal(found["mul"], torch.full((2,), 2.0))
    assert torch.equal(counter.state_dict["count"], torch.zeros(2))
    assert torch.equal(given, torch.ones(2))


def test_state_goes_from_run_to_run_when_it_is_asked_for(
    counter: Any, steps: tuple[nn.Module, Any, Any]
) -> None:
    for program in (counter, to_edge(counter).exported_program()):
        state: dict[str, Any] = {}
        for _ in range(3):
            found = list(run_reference(program, [torch.ones(2)], state))
        assert torch.equal(found[-1][1], torch.full((2,), 6.0))
        assert torch.equal(state["count"], torch.full((2,), 3.0))
        assert keeps_state(program)
    assert not keeps_state(steps[1])


def test_arrays_of_any_type() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.to(torch.bfloat16) * 2, x.split(1)[0] > 0

    program = exported(Half(), torch.ones(2))
    found = dict(reference_arrays(program, [np.ones(2, np.float32)]))
    assert found["mul"].dtype.name == "bfloat16" and found["mul"].tolist() == [2, 2]
    assert [array.shape for array in found["split"]] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (None, "no inputs"),
        ([], "takes 1 inputs, not 0"),
        ([torch.ones(2), torch.ones(2)], "inputs, not 2"),
        ([torch.ones(3)], "float32[3]"),
        ([torch.ones(2, dtype=torch.float64)], "float64[2]"),
        ([torch.ones(2, 1)], "float32[2, 1]"),
        ([3], "int"),
    ],
)
def test_inputs_must_be_the_programs(counter: Any, inputs: Any, words: str) -> None:
    with pytest.raises(NumericGapError) as caught:
        list(run_reference(counter, inputs))
    assert words in str(caught.value)
    assert "update_representative_inputs" in str(caught.value)


def test_the_callers_gradient_mode_holds_between_values(
    steps: tuple[nn.Module, Any, Any],
) -> None:
    _, program, x = steps
    inputs = ((x,), {"scale": torch.tensor([3.0])})
    first, second = run_reference(program, inputs), run_reference(program, inputs)
    next(first)
    _, value = next(second)
    assert torch.is_grad_enabled()
    assert not value.requires_grad, "no gradients are recorded of the run itself"
    first.close()
    second.close()
    assert torch.is_grad_enabled(), "runs that end out of order leave the caller's mode"


def test_the_memory_of_a_tensor_subclass_is_in_its_parts() -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).eval()
    (plain,) = plain_tensors(model[0].bias)
    assert plain is model[0].bias
    quantize_(model, Int8WeightOnlyConfig())
    parts = list(plain_tensors(model[0].weight))
    assert {str(part.dtype) for part in parts} >= {"torch.int8", "torch.float32"}
    assert all(part.untyped_storage().data_ptr() for part in parts)
