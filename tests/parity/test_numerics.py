"""`compare_results` and the comparators against upstream's, where upstream's are right.

Where they are not (NaN taken for 0, silent broadcasting, outputs left out), the unit tests have
what etscope says instead; see `docs/appendix/differences.md`.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from etscope import inspector
from etscope.inspector import numerical_comparator

torch = pytest.importorskip("torch")
upstream = pytest.importorskip("executorch.devtools.inspector")
theirs = pytest.importorskip("executorch.devtools.inspector.numerical_comparator")

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64)
NAMES = ("L1Comparator", "MSEComparator", "SNRComparator")


def values(seed: int, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """A reference and what differs from it a little, not zero and not equal."""
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randn(shape, generator=generator) * 10 + 20
    run = reference + 1 + torch.rand(shape, generator=generator)
    return reference.to(dtype), run.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1, 3, 5, 5)])
def test_compare_results(dtype: Any, shape: tuple[int, ...]) -> None:
    pairs = [values(seed, shape, dtype) for seed in range(5)]
    reference, run = [a for a, _ in pairs], [b for _, b in pairs]
    ours, its = (module.compare_results(reference, run) for module in (inspector, upstream))

    assert list(ours) == list(its)
    for name, numbers in its.items():
        # Rounded to two decimals there, and in float32.
        assert ours[name] == pytest.approx(numbers, abs=0.0051, rel=1e-5), name


def test_compare_results_of_channels_last_and_of_equal_outputs() -> None:
    a, b = values(0, (2, 3, 4, 5), torch.float32)
    last = b.to(memory_format=torch.channels_last)
    ours, its = (
        module.compare_results([a, a], [last, a.clone()], ["snr", "mse"])
        for module in (inspector, upstream)
    )
    assert list(ours) == ["snr", "mse"]
    for name, numbers in its.items():
        assert ours[name] == pytest.approx(numbers, abs=0.0051)
    assert ours["snr"][1] == its["snr"][1] == math.inf
    for module in (inspector, upstream):
        with pytest.raises(ValueError, match="must have the same shape"):
            module.compare_results([torch.ones(3)], [torch.ones(1)])


@pytest.mark.parametrize("name", NAMES)
def test_element_compare(name: str) -> None:
    ours, its = getattr(numerical_comparator, name)(), getattr(theirs, name)()
    # A sum over no elements is 0 there, as if something had been compared.
    shapes = [(), (5,), (3, 4)] + [(2, 0)] * (name != "L1Comparator")
    for dtype in (*DTYPES, torch.bool, torch.uint8):
        for seed, shape in enumerate(shapes):
            a, b = values(seed, shape, dtype)
            wanted = its.element_compare(a, b)
            assert ours.element_compare(a, b) == pytest.approx(wanted, nan_ok=True), (dtype, shape)
    assert ours.element_compare(2, 3.5) == pytest.approx(its.element_compare(2, 3.5))
    array = torch.arange(1.0, 5).numpy()
    assert ours.element_compare(array, array + 1) == pytest.approx(
        its.element_compare(array, array + 1)
    )
    one = torch.tensor([1.0, 2.0])
    for a, b in (
        (one, one.clone()),
        (torch.zeros(2), one),
        (one, torch.zeros(2)),
        (one, torch.tensor([1.0, math.inf])),
        (one, torch.tensor([-math.inf, 2.0])),
    ):
        assert ours.element_compare(a, b) == its.element_compare(a, b)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_compare(name: str, seed: int) -> None:
    """Random mappings: overlapping handles, single tensors, sequences of one, missing values."""
    generator = torch.Generator().manual_seed(seed)

    def number(below: int) -> int:
        return int(torch.randint(below, (), generator=generator))

    mapping, aot_names, runtime_names = {}, {}, {}
    for at in range(12):
        handle = tuple(range(at, at + 1 + number(3)))
        a, b = values(100 * seed + at, (1 + number(4), 2), DTYPES[number(4)])
        kind = number(4)
        if kind == 1:
            a, b = (a,), (b,)
        elif kind == 2 and at:
            b = None
        mapping[((at,), a)] = (handle, b)
        aot_names[(at,)] = [f"op_{at}", f"op_{at}_copy"][: 1 + number(2)]
        runtime_names[handle] = [f"native_call_{at}"]
    ours = getattr(numerical_comparator, name)().compare(mapping, aot_names, runtime_names)
    its = getattr(theirs, name)().compare(mapping, aot_names, runtime_names)

    assert list(ours.columns) == list(its.columns)
    assert len(ours) == len(its) > 0
    for column in ours.columns:
        for mine, other in zip(ours[column], its[column], strict=True):
            if column == "gap":
                assert isinstance(mine, list)
                assert mine == pytest.approx(other)
            elif column.endswith("_intermediate_output"):
                assert mine is other
            else:
                assert mine == other
                assert type(mine) is type(other)
