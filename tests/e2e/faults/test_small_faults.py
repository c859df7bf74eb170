"""Faults in one channel, row, weight or element are told, and named where they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402

from etscope.analysis.numerics.rows import Numerics  # noqa: E402
from etscope.export import Exported, export  # noqa: E402
from etscope.run import run  # noqa: E402

Change = Callable[[Any], Any]


def numbers(seed: int, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(nn.functional.gelu(self.up(x))))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.each = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.each(torch.relu(self.first(x))))
        return self.head(x.mean((2, 3)))


class Large(nn.Module):
    """262,144 elements."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.randn(512, 512)), nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x * self.scale))


class OneLarge(nn.Module):
    """One channel is 30,000 times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(64, 64), nn.Linear(64, 8)
        with torch.no_grad():
            self.layer.weight[7] *= 30_000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.layer(x)))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(1000, 32), nn.Parameter(torch.randn(1, 64, 32))
        self.layer = nn.Linear(32, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.layer(self.table(tokens) + self.places), -1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, 32, 4, 16).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = map(self.heads, (self.query(x), self.key(x), self.value(x)))
        weights = torch.softmax(query @ key.transpose(-1, -2) / 4, -1)
        return self.out((weights @ value).transpose(1, 2).reshape(1, 32, 64))


INPUTS: dict[type[nn.Module], tuple[Any, ...]] = {
    FeedForward: (numbers(1, 2, 32, 64),),
    Convolutions: (numbers(2, 1, 3, 16, 16),),
    Large: (numbers(3, 512, 512),),
    OneLarge: (numbers(4, 32, 64),),
    Embedded: (torch.arange(5, 645, 10).reshape(1, 64),),
    Attention: (numbers(6, 1, 32, 64),),
}
SMALL = [one for one in range(64) if one != 7]

# The model, the parameter and the place in it, by what it is multiplied, the operator that is wrong
# on XNNPACK (on portable kernels, a matrix is transposed by an operator of its own before).
FAULTS: list[tuple[type[nn.Module], str, Any, float, str]] = [
    (FeedForward, "up.weight", 5, 1.01, "linear"),
    (FeedForward, "up.weight", (7, 7), 1.01, "linear"),
    (FeedForward, "down.bias", 3, 1.05, "linear"),
    (FeedForward, "norm.weight", 63, 1.002, "native_layer_norm"),
    (Convolutions, "each.weight", 4, 1.01, "convolution"),
    (Convolutions, "first.weight", (1, 1, 1, 1), 1.05, "convolution"),
    (Convolutions, "head.bias", 2, 1.01, "linear"),
    (Large, "scale", (100, 200), 1.01, "mul"),
    (Large, "scale", 511, 1.0002, "mul"),
    (Large, "layer.weight", (3, 5), 1.01, "linear"),
    (OneLarge, "layer.weight", SMALL, 1.01, "linear"),
    (OneLarge, "layer.weight", 20, 1.01, "linear"),
    (OneLarge, "head.weight", 3, 1.001, "linear"),
    (Embedded, "table.weight", 15, 1.00005, "embedding"),
    (Embedded, "places", (0, 9, 9), 1.001, "add"),
    (Embedded, "places", (0, 63), 1.0002, "add"),
    (Attention, "value.weight", 11, 1.01, "linear"),
    (Attention, "query.bias", 11, 1.1, "linear"),
    (Attention, "out.weight", 60, 1.0005, "linear"),
]
NAMES = [
    f"{kind.__name__}-{name}-x{factor}-{i}" for i, (kind, name, _, factor, _) in enumerate(FAULTS)
]


def model_of(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


@cache
def exported(kind: type[nn.Module], backend: str) -> Exported:
    taps = ("op:*",) if backend == "xnnpack" else ()
    return export(model_of(kind), INPUTS[kind], backend=backend, taps=taps)


def diagnosed(ran: Exported, kind: type[nn.Module], backend: str) -> Numerics:
    """What is found in a run of a program, with the record of the model without fault."""
    with (
        warnings.catch_warnings(),
        run(
            ran.program,
            INPUTS[kind],
            debug_level="intermediate_outputs",
            separate=False,
            isolate=False,
            iterations=1,
            warmup=0,
        ) as done,
    ):
        warnings.simplefilter("ignore")
        inspector = done.inspector(etrecord=exported(kind, backend).record, verify=False)
        return inspector.diagnose_numerics(inputs=INPUTS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
@pytest.mark.parametrize("kind", INPUTS)
def test_sound_models_have_no_wrong_part(kind: type[nn.Module], backend: str) -> None:
    found = diagnosed(exported(kind, backend), kind, backend)
    assert found.is_fine, found.verdict


def check(fault: int, backend: str) -> None:
    kind, name, place, factor, operator = FAULTS[fault]
    model = model_of(kind)
    with torch.no_grad():
        model.get_parameter(name)[place] *= factor
    taps = ("op:*",) if backend == "xnnpack" else ()
    wrong = export(model, INPUTS[kind], backend=backend, taps=taps)
    found = diagnosed(wrong, kind, backend)
    assert found.first is not None, found.notes
    if backend == "xnnpack":
        assert found.first.op.split(".")[1] == operator, found.verdict


@pytest.mark.parametrize("fault", [7, 9, 13], ids=NAMES.__getitem__)
def test_a_small_fault_is_told(fault: int) -> None:
    check(fault, "xnnpack")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
@pytest.mark.parametrize("fault", range(len(FAULTS)), ids=NAMES.__getitem__)
def test_all_small_faults_are_told(fault: int, backend: str) -> None:
    check(fault, backend)
