"""FLOPs of a graph's nodes, against torch's own formulas and its counter on the eager module."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from executorch.exir.serde.serialize import serialize  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

from etscope.analysis.profile.trace import Trace  # noqa: E402
from etscope.analysis.work.formulas import work_of  # noqa: E402
from etscope.analysis.work.graph_work import GraphWork  # noqa: E402
from etscope.analysis.work.operation import Operand, Operation, operator_name, sum_of  # noqa: E402
from etscope.analysis.work.program_work import ProgramWork, operator_work  # noqa: E402
from etscope.formats.etdump.reader import read_etdump  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.formats.program.pte import read_pte  # noqa: E402
from etscope.model.exported_graph import graph_from_program_json  # noqa: E402
from etscope.model.graph import Graph  # noqa: E402
from tests.support.artifact_recipes.cnn import picture, small_cnn  # noqa: E402
from tests.support.artifact_recipes.llama import Logits  # noqa: E402
from tests.support.artifact_recipes.transformer import sentence, small_transformer  # noqa: E402
from tests.support.artifacts import Artifact, artifacts  # noqa: E402

# Operators that torch counts, and those that it decomposes into them.
COUNTED = frozenset(
    {
        *("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "mv", "convolution"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose1d"),
        "scaled_dot_product_attention",
    }
)


class Convolutions(nn.Module):
    """Grouped, dilated, strided, depthwise and transposed ones, of one to three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(8, 12, 3, groups=4, padding=1)
        self.dilated = nn.Conv2d(12, 6, 3, dilation=2, bias=False)
        self.strided = nn.Conv2d(6, 6, (3, 2), stride=(2, 1), groups=6)
        self.up = nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2, output_padding=1)
        self.line = nn.Conv1d(4, 3, 5)
        self.up_line = nn.ConvTranspose1d(3, 2, 4, stride=3)
        self.solid = nn.Conv3d(1, 2, (2, 3, 3), padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.up(self.strided(self.dilated(self.grouped(x))))
        line = self.up_line(self.line(x.flatten(2)))
        return line, self.solid(x.flatten(0, 1).unsqueeze(0).unsqueeze(0))


class Products(nn.Module):
    """Products of matrices and vectors in all ways that torch writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5))
        self.bias = nn.Parameter(torch.randn(5))
        self.lstm = nn.LSTM(6, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batched = torch.baddbmm(x @ y, x, y)
        return (
            torch.addmm(self.bias, x[0], self.weight),
            torch.einsum("bij,kj->bik", x, self.weight.T),
            batched,
            self.lstm(x)[0],
        )


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "transformer": (small_transformer, (sentence(),)),
    "llama": (Logits, (torch.arange(9).unsqueeze(0),)),
    "convolutions": (Convolutions, (torch.randn(2, 8, 12, 12),)),
    "products": (Products, (torch.randn(3, 4, 6), torch.randn(3, 6, 4))),
}
DAILY = ("transformer", "convolutions", "products")


def graph_of(program: Any) -> Graph:
    """The graph as a record has it, by ExecuTorch's own serializer."""
    return graph_from_program_json(json.loads(serialize(program).exported_program), "g")


def counted(graph: Graph) -> float:
    work = GraphWork(graph)
    nodes = (node for node in graph.walk() if node.kind == "call_function" and not node.subgraphs)
    works = [
        work.of(node) for node in nodes if operator_name(node.target)[0].split(".")[1] in COUNTED
    ]
    assert not any(one.unknown for one in works)
    return sum_of(works).flops


def counter_of(module: nn.Module, *inputs: torch.Tensor) -> int:
    """What torch counts; it has no formulas of the fused kernels of an LSTM."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), counter:
        module.eval()(*inputs)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", [*DAILY, pytest.param("llama", marks=pytest.mark.nightly)])
def test_flops_are_those_of_torch(name: str) -> None:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    exported = torch.export.export(module, inputs)
    core = exported.run_decompositions()
    graph = graph_of(core)
    # The sums are those of the counter.
    total = counter_of(module, *inputs)
    assert total > 0
    assert counted(graph) == total
    # One operator of the exported program holds a whole LSTM, and einsum is torch's to decompose.
    if not isinstance(module, Products):
        assert counted(graph_of(exported)) == total
    # Each node has the FLOPs of torch's formula.
    work = GraphWork(graph)
    compared = 0
    for node in core.graph.nodes:
        packet = getattr(node.target, "_overloadpacket", None)
        if packet not in flop_registry:
            continue
        values = tree_map(
            lambda one: one.meta["val"] if isinstance(one, torch.fx.Node) else one,
            (node.args, node.kwargs),
        )
        expected = flop_registry[packet](*values[0], **values[1], out_val=node.meta["val"])
        assert work.of(graph.by_name[node.name]).flops == expected, node.name
        compared += 1
    assert compared > 0


def test_attention_is_torchs_two_products() -> None:
    shapes = ((2, 4, 10, 16), (2, 4, 12, 16), (2, 4, 12, 8))
    query, key, value = (torch.empty(shape) for shape in shapes)
    formula = flop_registry[torch.ops.aten._scaled_dot_product_flash_attention]
    operands = tuple(("", Operand("float32", shape)) for shape in shapes)
    output = Operand("float32", (2, 4, 10, 8))
    ours = Operation("aten.scaled_dot_product_attention", "", operands, (output,))
    assert work_of(ours).flops == formula(query, key, value, out_val=query)


# -- quantized programs

PRODUCTS = ("Conv2d", "DepthwiseConv2d", "FullyConnected", "BatchMatrixMultiply")


def edge_graph(files: Artifact) -> Graph:
    assert files.etrecord is not None
    graph = Trace(read_etdump(files.etdump), read_etrecord(files.etrecord)).symbols("forward").graph
    assert graph is not None
    return graph


def test_a_quantized_program_has_the_products_of_the_float_model() -> None:
    total = counter_of(small_cnn(), picture())
    files = artifacts("cnn_xnnpack_int8")
    program = ProgramWork(read_pte(files.pte), "forward")
    operators = [
        node for record in program.records for node in program.operators(record.instruction_id)
    ]
    products = [operator_work(node, clamps=False) for node in operators if node.kind in PRODUCTS]
    assert len(products) > 5
    assert sum(one.flops for one in products) == total
    assert {one.dtypes for one in products} == {(("int8", one.flops),) for one in products}
    assert counted(edge_graph(files)) == total


@pytest.mark.parametrize("given", ["record", "program"])
def test_dynamic_activations_by_int4_weights_are_a_type_of_their_own(given: str) -> None:
    files = artifacts("llama_generate_8da4w")
    if given == "program":
        program = ProgramWork(read_pte(files.pte), "forward")
        numbers = [one.instruction_id for one in program.records]
        works = [program.of(number) for number in numbers]
        operators = [node for number in numbers for node in program.operators(number)]
        linear = [
            operator_work(one, clamps=False) for one in operators if one.kind == "FullyConnected"
        ]
    else:
        graph = edge_graph(files)
        work = GraphWork(graph)
        works = [work.of(node) for node in graph.nodes if node.delegate is not None]
        works = works or [work.together(graph.nodes)]
        named = [node for node in graph.walk() if operator_name(node.target)[0] == "aten.linear"]
        linear = [work.of(node) for node in named]
    products = sum(one.flops for one in linear)
    assert products > 1e6
    assert dict(sum_of(works).dtypes)["8da4w"] == products
