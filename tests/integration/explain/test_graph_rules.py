"""The rules that look at the graph: each finds what was put into a tiny model, and says nothing
about a model that has not got it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from etscope.analysis.explain.explain import explain  # noqa: E402
from etscope.analysis.explain.facts import Facts  # noqa: E402
from etscope.analysis.explain.rules.graph.lost_fusion import parts_of  # noqa: E402
from etscope.analysis.explain.rules.graph.unrolled_loops import loops  # noqa: E402
from etscope.analysis.profile.scale import Scale  # noqa: E402
from etscope.errors import EtscopeWarning  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.model.finding import Finding  # noqa: E402
from etscope.run import run  # noqa: E402
from etscope.units import TimeScale  # noqa: E402

WIDTH, LENGTH, HEADS = 32, 16, 4
Step = Callable[[Any], Any]


class Between(nn.Module):
    """A step between two linear layers."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.step = step

    def forward(self, x: Any) -> Any:
        return self.last(self.step(self.first(x)))


class Convolved(nn.Module):
    """A step between two convolutions."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.step = step

    def forward(self, x: Any) -> Any:
        return functional.relu(self.last(self.step(self.first(x))))


class Attention(nn.Module):
    """Self-attention. way: "function", "products" of four dimensions, or "bmm" of three."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        size = WIDTH // HEADS
        parts = [part(x) for part in (self.q, self.k, self.v)]
        if self.way == "bmm":
            q, k, v = (part.view(LENGTH, HEADS, size).permute(1, 0, 2) for part in parts)
            weights = torch.softmax(torch.bmm(q, k.permute(0, 2, 1)) * size**-0.5, -1)
            return self.out(torch.bmm(weights, v).permute(1, 0, 2).reshape(1, LENGTH, WIDTH))
        q, k, v = (part.view(1, LENGTH, HEADS, size).transpose(1, 2) for part in parts)
        if self.way == "function":
            found = functional.scaled_dot_product_attention(q, k, v)
        else:
            found = torch.softmax(q @ k.transpose(-1, -2) * size**-0.5, -1) @ v
        return self.out(found.transpose(1, 2).reshape(1, LENGTH, WIDTH))


class Positions(nn.Module):
    """Adds positions, which it computes or has."""

    def __init__(self, computes: bool) -> None:
        super().__init__()
        self.computes = computes
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("positions", self.made())

    def made(self) -> Any:
        steps = torch.arange(LENGTH).float()[:, None]
        rates = torch.exp(torch.arange(WIDTH).float() * -0.3)
        return torch.sin(steps * rates)

    def forward(self, x: Any) -> Any:
        positions = self.made() if self.computes else self.positions
        return self.last(functional.relu(self.first(x + positions)))


class Cache(nn.Module):
    """Writes a row of a buffer, and reads all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(64, WIDTH))
        self.first = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any, at: Any) -> Any:
        self.rows.index_put_((at,), self.first(x))
        return self.rows.sum(0)


class Moved(Cache):
    """Moves the rows of a buffer up by one for a new one, and reads all of it."""

    def forward(self, x: Any, at: Any) -> Any:
        rows = torch.cat([self.rows[1:], self.first(x)])
        self.rows.copy_(rows)
        return rows.sum(0)


class Layers(nn.Module):
    """Layers with weights of their own, each of which reads a row of the second input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(10))

    def forward(self, x: Any, rows: Any) -> Any:
        for index, layer in enumerate(self.layers):
            x = layer(x) * rows[:, index : index + 1]
        return x


class Rms(nn.Module):
    """Divides by the root of the mean of squares."""

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Chain(nn.Module):
    """Steps one after the other, each between linear layers."""

    def __init__(self, steps: Iterable[Step]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in self.steps)

    def forward(self, x: Any) -> Any:
        for step, layer in zip(self.steps, self.layers, strict=True):
            x = step(layer(x))
        return x


def normalised(x: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)


def in_pieces(x: Any) -> Any:
    """Scales pairs of elements, one after the other."""
    return torch.cat([x[..., at : at + 2] * (1.0 + at) for at in range(0, WIDTH, 2)], -1)


def halves_exchanged(x: Any) -> Any:
    return torch.cat([x[:, LENGTH // 2 :], x[:, : LENGTH // 2]], 1)


class Scaled(nn.Module):
    """Scales rows, as the last of the dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(LENGTH))

    def forward(self, x: Any) -> Any:
        return (x.transpose(1, 2) * self.scale).transpose(1, 2)


def shifted_softmax(x: Any) -> Any:
    raised = torch.exp(x - x.amax(-1, keepdim=True))
    return raised / raised.sum(-1, keepdim=True)


def over_rows(x: Any) -> Any:
    """Normalised as well, but not over the last dimension."""
    mean = x.mean(1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(1, keepdim=True) + 1e-5)


# Operators written by hand, of which there is a kernel.
BY_HAND: dict[str, Step] = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    'gelu(..., approximate="tanh")': lambda x: (
        0.5 * x * (1 + torch.tanh(0.7978846 * (x + 0.044715 * x**3)))
    ),
    "layer_norm": normalised,
    "hardswish": lambda x: x * functional.relu6(x + 3) / 6,
    "softmax": lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),
}
# What looks alike and is something else, or is whole.
ALIKE: tuple[Step, ...] = (
    functional.gelu,
    lambda x: x * 0.5 * (1 + torch.tanh(x * 0.5)),
    lambda x: functional.relu6(x + 3) / 6,
    lambda x: torch.softmax(x, -1),
    nn.LayerNorm(WIDTH),
    over_rows,
    lambda x: torch.exp(x) / (torch.exp(x) + 1),
    lambda x: torch.erf(x.view(LENGTH, WIDTH)).view(1, LENGTH, WIDTH),
)
STEPS: dict[str, Step] = {
    "islands": nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), Rms()),
    "double": lambda x: torch.sqrt(x.double() ** 2 + 1).float(),
    "unsqueeze": lambda x: torch.erf(x.unsqueeze(0)).squeeze(0),
    "flip": lambda x: torch.flip(x, [3]),
    "cumsum": lambda x: torch.cumsum(x, 3),
    "erf": torch.erf,
    "nothing": lambda x: x,
    "channels": lambda x: functional.relu(x.to(memory_format=torch.channels_last)),
}


@cache
def facts(kind: str, step: str = "nothing", backend: str = "xnnpack", quantize: str = "") -> Facts:
    """The facts of three runs of a model."""
    torch.manual_seed(0)
    row, image = (torch.randn(1, LENGTH, WIDTH),), (torch.randn(1, 3, 32, 32),)
    makers: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
        "between": (lambda: Between(STEPS[step]), row),
        "convolved": (lambda: Convolved(STEPS[step]), image),
        "channels last": (
            lambda: Convolved(STEPS[step]),
            (image[0].to(memory_format=torch.channels_last),),
        ),
        "attention": (lambda: Attention(step), row),
        "positions": (lambda: Positions(step == "computed"), row),
        "cache": (Cache, (torch.randn(1, WIDTH), torch.tensor([3]))),
        "batch norm": (lambda: Convolved(nn.BatchNorm2d(8)), image),
        "by hand": (lambda: Chain(BY_HAND.values()), row),
        "alike": (lambda: Chain(ALIKE), row),
        "moved cache": (Moved, (torch.randn(1, WIDTH), torch.tensor([3]))),
        "layers": (Layers, (row[0], torch.randn(1, LENGTH, WIDTH))),
        "in delegates": (
            lambda: nn.Sequential(Scaled(), Chain((in_pieces, halves_exchanged, shifted_softmax))),
            row,
        ),
    }
    make, inputs = makers[kind]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", EtscopeWarning)  # of what is not delegated
        exported = export(
            make().eval(), inputs, backend=backend, quantize=quantize or False, strict=False
        )
    done = run(
        exported.record, inputs, iterations=3, isolate=False, separate=False, runner="python"
    )
    trace = done.trace
    (profile,) = trace.profiles()
    return Facts(trace, profile, Scale(TimeScale.NS, TimeScale.MS))


def findings(rule: str, *model: str) -> list[Finding]:
    return list(explain(facts(*model), 0.0, (rule,)))


def one(rule: str, *model: str) -> Finding:
    """The only finding of a rule, whose parts fit together."""
    (finding,) = findings(rule, *model)
    explained, quantity = finding.explanation, finding.quantity
    assert explained is not None and quantity is not None and quantity.share is not None
    assert 0 < quantity.share <= 1
    assert explained.low is not None and explained.low <= quantity.value <= (explained.high or 0)
    assert explained.sites and explained.evidence and explained.remedies
    assert sum(site.time or 0 for site in explained.sites) == pytest.approx(quantity.value)
    assert "test_graph_rules.py:" in finding.sentence or rule == "layout-conversions"
    return finding


def evidence(finding: Finding) -> str:
    assert finding.explanation is not None
    return " ".join(finding.explanation.evidence)


def changes(finding: Finding) -> list[tuple[str, dict[str, Any]]]:
    """The changes of the remedies that can be tried."""
    assert finding.explanation is not None
    remedies = finding.explanation.remedies
    return [(one.change, dict(one.arguments)) for one in remedies if one.change is not None]


def names(finding: Finding) -> set[str]:
    assert finding.explanation is not None
    return {site.name.partition(".")[0] for site in finding.explanation.sites}


# -- operators in parts


def test_the_guard_of_attention() -> None:
    found = one("lost-fusion", "attention", "function")
    assert "scaled_dot_product_attention is decomposed" in found.sentence
    assert {"eq", "logical_not", "any", "full_like", "where"} <= names(found)
    assert "bmm" not in names(found) and "expand_copy" not in names(found)
    assert changes(found) == [("pass", {"name": "fuse_sdpa"})]


@pytest.mark.parametrize("way", ["products", "bmm"])
def test_attention_by_hand_has_no_guard(way: str) -> None:
    assert findings("lost-fusion", "attention", way) == []


def test_the_guard_of_attention_without_delegates() -> None:
    found = one("lost-fusion", "attention", "function", "portable")
    assert names(found) == {"eq", "logical_not", "any", "full_like", "where"}


def test_operators_written_by_hand() -> None:
    graph = facts("by hand").run_graph
    assert graph is not None
    found = [parts.kind for parts in parts_of(graph)]
    assert sorted(found) == ["gelu", "gelu", "hardswish", "layer_norm", "softmax"]
    texts = [
        remedy.text
        for finding in findings("lost-fusion", "by hand")
        for remedy in finding.explanation.remedies  # type: ignore[union-attr]
    ]
    for function in BY_HAND:
        (text,) = (text for text in texts if f"functional.{function}`" in text)
        assert text.startswith("Write `torch.nn.functional.")
        assert " at test_graph_rules.py:" in text


def test_a_softmax_in_parts_has_its_shift_inside_of_delegates_too() -> None:
    found = one("lost-fusion", "in delegates")
    assert {name.partition(" ")[0] for name in names(found)} >= {"amax", "Subtract", "Exp"}


def test_what_only_looks_alike_is_no_lost_fusion() -> None:
    assert findings("lost-fusion", "alike") == []


def test_batch_norm_beside_its_convolution() -> None:
    found = one("lost-fusion", "batch norm", "", "portable")
    assert names(found) == {"_native_batch_norm_legit_no_training"}
    assert ("backend", {"backend": "xnnpack"}) in changes(found)
    assert findings("lost-fusion", "convolved", "nothing", "portable") == []


# -- the same in each run


def test_positions_that_are_computed_in_each_run() -> None:
    found = one("runtime-constants", "positions", "computed")
    assert {"arange", "exp", "sin"} <= names(found) | {"exp", "sin"}
    assert "arange" in names(found)
    assert changes(found) == [("pass", {"name": "fold_constants"})]
    assert "What is read of them takes 2.00 KiB." in evidence(found)


def test_weights_that_are_laid_out_in_each_run() -> None:
    found = one("runtime-constants", "between", "nothing", "portable")
    assert names(found) == {"permute_copy"}
    assert "They read first.weight and last.weight." in evidence(found)


@pytest.mark.parametrize("model", [("positions", "kept"), ("cache",)])
def test_buffers_and_inputs_are_no_constants(model: tuple[str, ...]) -> None:
    assert findings("runtime-constants", *model) == []


# -- quantised


def test_float_between_int8() -> None:
    found = one("float-among-quantized", "convolved", "cumsum", "xnnpack", "int8")
    assert "cumsum computes in float among int8" in found.sentence
    assert "cumsum is not an operator of XnnpackBackend" in evidence(found)
    assert "2 delegate calls would be 1." in evidence(found)
    assert findings("outside-delegates", "convolved", "cumsum", "xnnpack", "int8") == []


def test_a_move_between_int8_is_quantised_for_nothing() -> None:
    found = one("cancelling-quantization", "convolved", "flip", "xnnpack", "int8")
    assert "Nothing but flip is between them" in evidence(found)
    assert changes(found) == [("pass", {"name": "cancel_qdq"})]
    assert findings("float-among-quantized", "convolved", "flip", "xnnpack", "int8") == []


@pytest.mark.parametrize("rule", ["float-among-quantized", "cancelling-quantization"])
def test_int8_throughout_is_fine(rule: str) -> None:
    assert findings(rule, "convolved", "nothing", "xnnpack", "int8") == []
    assert findings(rule, "convolved", "flip") == []  # in float


# -- copies


def test_copies_that_change_nothing_and_part_delegates() -> None:
    found = one("needless-copies", "attention", "products")
    assert names(found) == {"expand_copy"}
    assert "3 delegate calls would be 1." in evidence(found)
    assert changes(found) == [("pass", {"name": "remove_dead_copies"})]
    assert len(facts("attention", "bmm").run_graph.calls) == 1  # type: ignore[union-attr]


def test_copies_that_a_view_could_be() -> None:
    found = one("needless-copies", "between", "unsqueeze")
    assert names(found) == {"unsqueeze_copy", "squeeze_copy"}
    assert findings("needless-copies", "alike") == []


def test_a_buffer_that_is_copied_to_change_a_row() -> None:
    found = one("rewritten-buffers", "cache")
    assert "Buffers of 8.00 KiB are copied twice" in found.sentence
    assert names(found) == {"index_put", "copy_"}
    assert all("index_put" not in names(f) for f in findings("outside-delegates", "cache"))


def test_a_buffer_whose_rows_are_moved() -> None:
    found = one("rewritten-buffers", "moved cache")
    assert "Buffers of 8.00 KiB are copied twice" in found.sentence
    assert {name.partition(" ")[0] for name in names(found)} >= {"copy_", "Copy"}
    assert found.explanation is not None
    assert "`buffer.index_copy_(1, position % length, new)`" in found.explanation.remedies[0].text


def test_slices_that_are_put_together_again() -> None:
    (found,) = findings("needless-copies", "in delegates")
    assert "Slices that are put together again" in found.sentence
    assert {name.partition(" ")[0] for name in names(found)} >= {"Slice", "Copy"}
    assert "test_graph_rules.py:" in found.sentence


# -- loops


def test_a_loop_inside_of_a_delegate() -> None:
    (found,) = findings("unrolled-loops", "in delegates")
    assert found.quantity is not None and 0 < (found.quantity.share or 0) <= 1
    assert "A loop of 16 steps, which export wrote out, runs as " in found.sentence
    assert "test_graph_rules.py:" in found.sentence
    # Of 32 events the 20 with most time are named.
    assert (
        {"Multiply"} <= {name.partition(" ")[0] for name in names(found)} <= {"Slice", "Multiply"}
    )
    assert found.explanation is not None
    assert "`torch.bmm`" in found.explanation.remedies[0].text


def test_layers_one_after_the_other_are_no_loop() -> None:
    graph = facts("layers").run_graph
    assert graph is not None
    assert loops(graph) == ()
    assert findings("unrolled-loops", "alike") == []


# -- layouts


def test_transposes_inside_of_a_delegate_that_undo_each_other() -> None:
    (found,) = findings("layout-conversions", "in delegates")
    assert "Transposes that undo each other" in found.sentence
    assert "Nothing but mul is between them" in evidence(found)
    assert changes(found) == []


def test_images_that_xnnpack_lays_out() -> None:
    found = one("layout-conversions", "convolved", "nothing")
    assert {name.partition(" ")[0] for name in names(found)} == {"Transpose"}
    assert changes(found) == [("channels_last", {})]
    assert findings("layout-conversions", "channels last", "nothing") == []


def test_a_copy_to_another_layout() -> None:
    found = one("layout-conversions", "convolved", "channels", "portable")
    assert names(found) == {"_to_dim_order_copy"}
    assert "dimensions in the order (0, 1, 2, 3) to (0, 2, 3, 1)" in evidence(found)
    assert findings("layout-conversions", "convolved", "nothing", "portable") == []


# -- types


def test_a_type_that_is_not_taken() -> None:
    found = one("untaken-types", "between", "double")
    assert "on float64 run outside of delegates" in found.sentence
    assert changes(found) == [("dtype", {"dtype": "float32"})]
    assert findings("outside-delegates", "between", "double") == []
    assert findings("untaken-types", "alike") == []


# -- islands


def test_an_operator_outside_of_delegates_and_why() -> None:
    both = findings("outside-delegates", "between", "islands")
    norm, mean = sorted(both, key=lambda found: "mean" in names(found))
    assert "native_layer_norm runs outside of delegates" in norm.sentence
    assert "native_layer_norm is not an operator of XnnpackBackend" in evidence(norm)
    assert "3 delegate calls would be 2." in evidence(norm)
    assert "2 values of 4.00 KiB go between" in evidence(norm)
    assert "refused mean: “mean.dim only supports averaging 4D tensors" in evidence(mean)
    assert mean.explanation is not None
    assert "x.unsqueeze(-1).mean((2, 3), keepdim=True)" in mean.explanation.remedies[0].text


def test_an_island_costs_the_transposes_at_its_borders() -> None:
    found = one("outside-delegates", "convolved", "erf")
    assert {name.partition(" ")[0] for name in names(found)} == {"erf", "Transpose"}
    outer = one("layout-conversions", "convolved", "erf")
    assert found.explanation is not None and outer.explanation is not None
    sites = {(site.instruction, site.name) for site in found.explanation.sites}
    assert not sites & {(site.instruction, site.name) for site in outer.explanation.sites}


# A busy machine may have these of any model.
OF_THE_MACHINE = ("first-run", "unsteady", "threads", "delegate-rest", "outside-instructions")


@pytest.mark.parametrize(
    "model",
    [
        ("attention", "bmm"),
        ("positions", "kept"),
        ("channels last", "nothing"),
    ],
)
def test_sound_models_have_no_findings(model: tuple[str, ...]) -> None:
    found = explain(facts(*model), 0.0)
    assert [one.sentence for one in found if one.kind not in OF_THE_MACHINE] == []
