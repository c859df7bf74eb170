"""Findings that name a cause outside of the kernels' times, and remedies to paste."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402

from etscope.analysis.insights.edits import patch_of  # noqa: E402
from etscope.analysis.memory.size import SizedFile, savings, size_files  # noqa: E402
from etscope.etrecord import ETRecord  # noqa: E402
from etscope.explain import explain  # noqa: E402
from etscope.export import Source, export, load_model  # noqa: E402
from etscope.model.finding import Finding, Remedy  # noqa: E402
from etscope.model.graph import Node, TensorSpec, Value  # noqa: E402
from etscope.run import run  # noqa: E402
from tests.support.explain import edits  # noqa: E402
from tests.support.explain import edits_of_sequences as sequences  # noqa: E402
from tests.support.explain.trying import applied, model_file, record_of, sqnr  # noqa: E402


def findings(record: ETRecord, rule: str) -> list[Finding]:
    with run(record, warmup=1, iterations=10, isolate=False) as ran:
        (method,) = explain(ran.trace, least_share=0.0)
    return [one for one in method.findings if one.kind == rule]


def found(model: nn.Module, rule: str, *inputs: Any, **options: Any) -> list[Finding]:
    source = Source("MODEL", "model", model.eval(), inputs)
    return findings(record_of(source, **{"backend": "xnnpack", **options}), rule)


def remedies(finding: Finding) -> tuple[Remedy, ...]:
    assert finding.explanation is not None
    return finding.explanation.remedies


# -- patches and commands


@cache
def exported(name: str, folder: Path, backend: str = "xnnpack") -> ETRecord:
    module = edits if name in edits.PAIRS else sequences
    spec = model_file(folder / name, Path(str(module.__file__)).read_text(), name)
    return record_of(load_model(spec), backend=backend)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("excitation_flat_mean", "outside-delegates"),
        ("pointnet_norm_first", "lost-fusion"),
        ("rotary_chosen", "rewritten-buffers"),
    ],
)
def test_a_remedy_is_applied_as_written_and_keeps_the_numbers(
    name: str, rule: str, tmp_path: Path
) -> None:
    slow = exported(name, tmp_path)
    (finding,) = findings(slow, rule)
    remedy = next(one for one in remedies(finding) if one.paste)
    new, _ = applied(remedy.paste, slow, {}, tmp_path)
    assert not findings(new, rule)
    numbers = sqnr(slow, new)
    assert numbers is not None and numbers > 60


X = torch.randn(2, 6, 5, 4)


def changed(
    line: str,
    op: str,
    x: torch.Tensor,
    y: torch.Tensor,
    inputs: tuple[str, ...] = (),
    **arguments: str,
) -> str:
    """A line with an operator that reads x and makes y, by its patch."""

    def node(name: str, value: torch.Tensor) -> Node:
        outputs = (Value(name, TensorSpec("float32", tuple(value.shape))),)
        trace = f'  File "/m/model.py", line 1, in forward\n    {line}\n'
        given = tuple(arguments.items())
        return Node(name, "call_function", op, op, inputs, given, outputs, stack_trace=trace)

    made = node("y", y)
    graph = SimpleNamespace(operators={"y": made})
    linked = SimpleNamespace(linked=SimpleNamespace(graph=graph))
    run = SimpleNamespace(
        partition=linked,
        givers=lambda _: iter([node("x", x)]),
        constant=(),
        is_weight=lambda _: True,
    )
    patch = patch_of(run, [made])  # type: ignore[arg-type]
    return "".join(text[2:] for text in patch.splitlines() if text.startswith("+"))


def computed(line: str, x: torch.Tensor, **more: Any) -> Any:
    names: dict[str, Any] = {"x": x, "torch": torch, "F": torch.nn.functional, **more}
    exec(line, names)
    return names["y"]


@pytest.mark.parametrize(
    ("line", "op", "rank", "arguments"),
    [
        ("y = torch.roll(x + 1, (-2, 1), (1, 2))", "roll", 4, {}),
        ("y = x.mean((2, 3))", "mean", 4, {"dim": "[2, 3]", "keepdim": "False"}),
        ("y = x.mean(-1, keepdim=True)", "mean", 3, {"dim": "[-1]", "keepdim": "True"}),
        ("y = x.mean(2)", "mean", 3, {"dim": "[2]", "keepdim": "False"}),
        ("y = torch.mean(x * 2, 1)", "mean", 3, {"dim": "[1]", "keepdim": "False"}),
        ("y = torch.amax(x + 1, (2, 3))", "amax", 4, {"dim": "[2, 3]", "keepdim": "False"}),
        ("y = x.amax((-2, -1), True)", "amax", 4, {"dim": "[-2, -1]", "keepdim": "True"}),
        ("y = x[:, 0]", "select", 4, {}),
        ("y = x[..., -1]", "select", 4, {}),
        ("y = x.softmax(1)", "softmax", 4, {}),
        ("y = torch.add(x, x * x, alpha=0.5)", "add", 4, {}),
        ("y = F.avg_pool2d(x, 3, 1, (1, 0))", "avg_pool2d", 4, {}),
        ("y = torch.where(x > 0, x, x * 0.1)", "where", 4, {}),
        ("y = torch.cat([x, x + 1, x, x, x, x, x * 2], 1)", "cat", 4, {}),
        ("y = (x + 1) ** 3", "pow", 4, {}),
        ("y = torch.pow(x * x, 0.5)", "pow", 4, {}),
        ("y = torch.cumsum(x + 1, 1)", "cumsum", 4, {}),
        ("y = x.cumsum(dim=-1)", "cumsum", 3, {}),
        ("y = F.softplus(x * 30)", "softplus", 4, {}),
        ("y = torch.linalg.vector_norm(x + 1, dim=-1, keepdim=True)", "linalg_vector_norm", 3, {}),
        ("y = x.norm(2, 2)", "linalg_vector_norm", 3, {}),
        ("y = (x + 1).masked_fill(x < 0, -2.0)", "masked_fill", 4, {}),
        ("y = F.dropout(x, 0.1, training=False) + F.dropout(x, 0.0)", "native_dropout", 4, {}),
    ],
)
def test_a_patched_line_computes_the_same(
    line: str, op: str, rank: int, arguments: dict[str, str]
) -> None:
    x = X if rank == 4 else X.flatten(2)
    y = computed(line, x)
    new = changed(line, op, x, y, **arguments)
    assert new and new != line
    torch.testing.assert_close(computed(new, x), y)


@pytest.mark.parametrize(
    "line", ["y = x.masked_fill(x < 0, -torch.inf)", "y = torch.cumsum(x.repeat(1, 99, 1, 1), 1)"]
)
def test_a_line_without_an_edit_that_helps_stays(line: str) -> None:
    op = "masked_fill" if "fill" in line else "cumsum"
    assert not changed(line, op, X, computed(line, X))


def test_a_product_with_rows_of_one_1_is_a_look_up() -> None:
    ids, table = torch.tensor([[3, 0, 2]]), torch.randn(5, 4)
    line = "y = F.one_hot(ids, 5).float() @ table"
    y = computed(line, X, ids=ids, table=table)
    new = changed(line, "one_hot", X, y)
    assert "one_hot" not in new
    torch.testing.assert_close(computed(new, X, ids=ids, table=table), y)


def test_instance_norm_is_written_out() -> None:
    norm = nn.InstanceNorm2d(6, affine=True)
    y = computed("y = norm(x)", X, norm=norm)
    new = changed("y = norm(x)", "InstanceNorm2d", X, y, inputs=("x", "weight"))
    assert "rsqrt" in new
    torch.testing.assert_close(computed(new, X, norm=norm), y)


def test_the_parts_of_a_split_are_the_same() -> None:
    line = "y = torch.split(x * 2, [4, 2], 1)"
    new = changed(line, "split_with_sizes", X, X, split_sizes="[4, 2]", dim="1")
    assert "split" not in new
    torch.testing.assert_close(computed(new, X), computed(line, X))


def test_a_command_has_the_words_of_the_export(tmp_path: Path) -> None:
    slow = exported("nerf_frequencies", tmp_path)
    (finding,) = findings(slow, "runtime-constants")
    path = slow.export_words[0]
    command = f"etscope export {path} --backend xnnpack -X passes=fold_constants"
    assert remedies(finding)[0].paste == command


# -- inputs


def test_padding_of_tokens() -> None:
    model, inputs = sequences.PAIRS["padded_tokens"].made()
    (finding,) = found(model, "padded-inputs", *inputs)
    assert "244 of 256 tokens are padding" in finding.sentence
    (remedy,) = remedies(finding)
    inputs_of_export = "--inputs 'int64[1,length=1..256]' --inputs 'float32[1,length=1..256]'"
    assert remedy.paste == f"etscope export MODEL --backend xnnpack {inputs_of_export}"


def test_tokens_without_padding_are_not_accused() -> None:
    model, (ids, _) = sequences.PAIRS["padded_tokens"].made()
    full = torch.arange(256)[None] % 999 + 1
    assert not found(model, "padded-inputs", full, torch.ones(1, 256))
    # The same number throughout is an example, and no sentence.
    assert not found(model, "padded-inputs", torch.ones_like(ids), torch.ones(1, 256))


# -- caches


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(64, 64)
        self.register_buffer("keys", torch.zeros(1, 512, 64))

    def forward(self, x: Any, position: Any) -> Any:
        self.keys[:, position] = self.key(x)
        return torch.bmm(x, self.keys.transpose(1, 2))


class Turned(Written):
    """A key of which a part is turned: its parts are put together before they are written."""

    def forward(self, x: Any, position: Any) -> Any:
        key = self.key(x)
        key = torch.cat([torch.sin(key[..., :16]), key[..., 16:]], -1)
        self.keys.index_copy_(1, position, key)
        return torch.bmm(x, self.keys.transpose(1, 2))


STEP = (torch.randn(1, 1, 64), torch.tensor([3]))


def test_no_pass_is_advised_that_the_kernel_refuses() -> None:
    (finding,) = found(Written(), "rewritten-buffers", *STEP)
    first, *others = remedies(finding)
    assert all(one.change is None for one in (first, *others))
    assert "+ self.keys.index_copy_(1, position, self.key(x))" in first.paste


def test_what_makes_the_written_part_does_not_move_the_buffer() -> None:
    (finding,) = found(Turned(), "rewritten-buffers", *STEP)
    evidence = " ".join(finding.explanation.evidence if finding.explanation else ())
    assert "index_put copies 1 whole buffer" in evidence
    assert remedies(finding)[0].change == "pass"


# -- layouts


class Permuted(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.layer = nn.Linear(channels, channels)

    def forward(self, x: Any) -> Any:
        y = self.conv(x).permute(0, 2, 3, 1)
        return self.layer(y).permute(0, 3, 1, 2)


def test_transposes_between_layers_are_not_of_the_inputs() -> None:
    model = nn.Sequential(*(Permuted() for _ in range(3)))
    between, outer = found(model, "layout-conversions", torch.randn(1, 16, 12, 12))
    if "at the model's inputs" in between.sentence:
        between, outer = outer, between
    # Of each block two of its own and one of XNNPACK, of the first and last at the borders.
    assert "between operators" in between.sentence and "in 10 places" in between.sentence
    assert "in 10 places" not in outer.sentence
    assert "`nn.Conv2d(c, d, 1)`" in remedies(between)[0].text


# -- weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(100, 64), nn.Linear(64, 100, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.table(ids))


def sized(model: nn.Module, inputs: Any, folder: Path) -> SizedFile:
    paths = export(model.eval(), (inputs,), backend="xnnpack").save(folder, bundle=False)
    (one,) = size_files(paths[:1])
    return one


def test_why_equal_weights_are_stored_twice(tmp_path: Path) -> None:
    notes = " ".join(savings(sized(Tied(), torch.arange(4)[None], tmp_path)).table.notes)
    assert "2 weights of 25,600 bytes are equal" in notes
    assert "A delegate has a copy of its own" in notes and "quantize_embeddings=8" in notes


def test_weights_that_are_exact_in_float16(tmp_path: Path) -> None:
    exact = nn.Linear(64, 64).half().float()
    told = "All float32 weights (16.2 KiB) are exact in float16: half of their bytes without loss"
    x = torch.randn(1, 64)
    assert told in " ".join(savings(sized(exact, x, tmp_path / "exact")).table.notes)
    other = " ".join(savings(sized(nn.Linear(64, 64), x, tmp_path / "other")).table.notes)
    assert "exact in float16" not in other
