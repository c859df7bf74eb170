"""Share of faults whose kind is told, on models that the explanations were not made with.

Faults of known kinds are planted into transformers of Hugging Face and a CNN with random weights,
on portable kernels and in XNNPACK's calls, which compute several operators each. One fault in six
is of no kind: random numbers are added to a weight. A name for one of those is wrong.

    python -m benchmarks.named_kinds [portable|xnnpack] [FAULTS] [SEED] [MODEL]
"""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops
from torch import nn

from etscope.analysis.numerics.rows import Numerics
from etscope.run import run

EDGE = ops.edge.aten


class Logits(nn.Module):
    """A transformer that returns tensors."""

    def __init__(self, model: nn.Module, attribute: str) -> None:
        super().__init__()
        self.model, self.attribute = model, attribute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(x), self.attribute)


class Residual(nn.Module):
    """A small CNN with a residual connection, folded pools and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.Hardswish())
        self.one, self.two = nn.Conv2d(12, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.each, self.head = nn.Conv2d(12, 12, 5, padding=2, groups=12), nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.two(torch.sigmoid(self.one(x)))
        return self.head(nn.functional.relu6(self.each(x)).mean((2, 3)))


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Models with random weights, biases included, and inputs."""
    import transformers as hf

    torch.manual_seed(11)
    vit = hf.ViTModel(
        hf.ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            image_size=32, patch_size=8,
        )
    )  # fmt: skip
    gpt2 = hf.GPT2LMHeadModel(
        hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, use_cache=False)
    )
    llama = hf.LlamaForCausalLM(
        hf.LlamaConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=64, vocab_size=100, use_cache=False,
        )
    )  # fmt: skip
    bert = hf.BertModel(
        hf.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            vocab_size=100,
        ),
        add_pooling_layer=False,
    )  # fmt: skip
    resnet = hf.ResNetModel(
        hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    )
    found = {
        "ViT": (Logits(vit, "last_hidden_state"), torch.randn(1, 3, 32, 32)),
        "GPT-2": (Logits(gpt2, "logits"), torch.randint(0, 100, (1, 12))),
        "Llama": (Logits(llama, "logits"), torch.randint(0, 100, (1, 12))),
        "BERT": (Logits(bert, "last_hidden_state"), torch.randint(0, 100, (1, 12))),
        "ResNet": (Logits(resnet, "last_hidden_state"), torch.randn(1, 3, 32, 32)),
        "CNN": (Residual(), torch.randn(1, 3, 24, 24)),
    }
    for model, _ in found.values():
        for name, parameter in model.eval().named_parameters():
            with torch.no_grad():
                if parameter.dim() == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
                elif "emb" not in name:
                    parameter.mul_(3.0)
    return found


@dataclass(frozen=True)
class Planted:
    """A fault. change: of the model, or plant: of the portable edge program. kinds, words: by which
    it is named; no kinds for a fault that has none."""

    name: str
    kinds: tuple[str, ...]
    words: str
    change: Callable[[nn.Module], None] | None = None
    plant: Callable[[Any], bool] | None = None


def _parameter(
    name: str, other: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[nn.Module], None]:
    def change(model: nn.Module) -> None:
        parameter = model.get_parameter(name)
        with torch.no_grad():
            parameter.copy_(other(parameter.clone()))

    return change


def faults_of(model: nn.Module, chance: random.Random) -> Iterator[Planted]:
    """Yield faults in turn, each in a place picked at random."""
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    tables = ("emb", "wpe", "wte")
    matrices = [
        name
        for name, one in parameters.items()
        if one.dim() == 2 and not any(word in name for word in tables)
    ]
    kernels = [name for name, one in parameters.items() if one.dim() == 4 and one.shape[2] > 1]
    biases = [name for name in parameters if name.endswith("bias")]
    square = [name for name in matrices if len(set(parameters[name].shape)) == 1]
    weights = matrices + kernels
    pairs = [
        (one, other)
        for one in weights
        for other in weights
        if one != other and parameters[one].shape == parameters[other].shape
    ]
    while True:
        yield from _of_weights(parameters, weights, chance)
        if square:
            name = chance.choice(square)
            turned = _parameter(name, lambda w: w.T.contiguous())
            kinds = ("transposed", "transposed argument")
            yield Planted(f"{name} transposed", kinds, "transposed", turned)
        if pairs:
            name, other = chance.choice(pairs)
            swapped = _parameter(name, lambda w, other=other: parameters[other])
            words = f"{other} in place of"
            yield Planted(f"{other} for {name}", ("other weight",), words, swapped)
        if biases:
            name = chance.choice(biases)
            missing = _parameter(name, torch.zeros_like)
            yield Planted(f"{name} missing", ("left out",), f"{name} left out", missing)
            name = chance.choice(biases)
            kinds, words = ("argument scale",), "with the sign turned"
            yield Planted(f"{name} turned", kinds, words, _parameter(name, torch.neg))
        if kernels:
            name = chance.choice(kernels)
            turned = _parameter(name, lambda w: w.flip(2, 3))
            yield Planted(f"{name} turned", ("reversed argument",), "turned around", turned)
        yield from _of_operators(chance)


def _of_weights(
    parameters: Mapping[str, torch.Tensor], weights: Sequence[str], chance: random.Random
) -> Iterator[Planted]:
    scaled = ("scale", "argument scale", "weight part")
    name, factor = chance.choice(weights), chance.choice((0.5, 1.1, 1.5, 2.0))
    times = _parameter(name, lambda w: w * factor)
    yield Planted(f"{name} times {factor}", scaled, f"times {factor:g}", times)
    name = chance.choice(weights)
    row = chance.randrange(parameters[name].shape[0])

    def one_row(w: torch.Tensor) -> torch.Tensor:
        w[row] *= 1.5
        return w

    yield Planted(f"{name}[{row}] times 1.5", scaled, "times 1.5 in", _parameter(name, one_row))
    name = chance.choice(weights)
    kinds = ("rounded", "rounded argument")
    rounded = _parameter(name, lambda w: w.bfloat16().float())
    yield Planted(f"{name} as bfloat16", kinds, "rounded to bfloat16", rounded)
    name = chance.choice(weights)
    at = chance.randrange(parameters[name].numel())

    def one_element(w: torch.Tensor) -> torch.Tensor:
        w.view(-1)[at] += 1.0
        return w

    kinds = ("element", "weight element")
    yield Planted(f"{name} element {at}", kinds, "element", _parameter(name, one_element))
    for _ in range(2):
        name = chance.choice(weights)
        noisy = _parameter(name, lambda w: w + 0.05 * torch.randn_like(w))
        yield Planted(f"{name} plus noise", (), "", noisy)


def _of_operators(chance: random.Random) -> Iterator[Planted]:
    yield Planted("eps of a norm", ("eps", "number", "offset"), "", plant=_eps)
    yield Planted("another activation", ("activation",), "sigmoid in place of", plant=_activation)
    yield Planted("softmax over another", ("dimension",), "over dimension", plant=_dimension)
    kinds = ("number", "argument scale", "scale")
    yield Planted("a factor", kinds, "", plant=_factor(chance.random()))
    operands = _subtracted(chance.random())
    yield Planted("subtracted and not added", ("operands",), "a - b", plant=operands)


def _nodes(program: Any, *operators: str) -> list[Any]:
    names = [f".{one}." for one in operators]
    return [n for n in program.graph.nodes if any(one in f".{n.target}" for one in names)]


def _eps(program: Any) -> bool:
    for node in _nodes(program, "native_layer_norm", "_native_batch_norm_legit_no_training"):
        node.args = (*node.args[:-1], 0.05)
        return True
    for node in _nodes(program, "rsqrt"):
        constant = str(node.args[0].args[1])
        targets = program.graph_signature.inputs_to_buffers | (
            program.graph_signature.inputs_to_lifted_tensor_constants
        )
        held = program.state_dict if targets[constant] in program.state_dict else program.constants
        held[targets[constant]] = held[targets[constant]] * 0 + 0.5
        return True
    return False


def _activation(program: Any) -> bool:
    for node in _nodes(program, "gelu", "tanh", "hardswish", "relu", "hardtanh"):
        node.target, node.args, node.kwargs = EDGE.sigmoid.default, node.args[:1], {}
        return True
    return False


def _dimension(program: Any) -> bool:
    for node in _nodes(program, "_softmax"):
        node.args = (node.args[0], 2, *node.args[2:])
        return True
    return False


def _factor(chance: float) -> Callable[[Any], bool]:
    def plant(program: Any) -> bool:
        signature = program.graph_signature
        targets = signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
        found = [
            targets[str(node.args[1])]
            for node in _nodes(program, "mul")
            if str(node.args[1]) in targets and "float32" in str(node.args[1].meta["val"].dtype)
        ]
        if not found:
            return False
        name = found[int(chance * len(found))]
        held = program.state_dict if name in program.state_dict else program.constants
        held[name] = held[name] * 1.25
        return True

    return plant


def _subtracted(chance: float) -> Callable[[Any], bool]:
    def plant(program: Any) -> bool:
        found = [n for n in _nodes(program, "add") if all(hasattr(a, "meta") for a in n.args[:2])
                 and n.args[0].meta["val"].dtype == torch.float32]  # fmt: skip
        if found:
            found[int(chance * len(found))].target = EDGE.sub.Tensor
        return bool(found)

    return plant


def lowered(model: nn.Module, x: torch.Tensor, backend: str) -> Any:
    """The edge program of a model."""
    program = torch.export.export(model, (x,), strict=False)
    if backend == "portable":
        return to_edge(program, generate_etrecord=True)
    return to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )


def main(
    backend: str = "portable", count: str = "40", seed: str = "0", only: str | None = None
) -> None:
    """Plant faults into each model in turn, and print how they are named."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    totals: Counter[str] = Counter()
    for name, (model, x) in models().items():
        if only not in (None, name):
            continue
        chance = random.Random(f"{name}{seed}")
        edge = lowered(model, x, backend)
        record = copy.deepcopy(edge).to_executorch().get_etrecord()
        faults = faults_of(model, chance)
        done = 0
        while done < int(count):
            fault = next(faults)
            if fault.change is None and backend != "portable":
                continue
            torch.manual_seed(done)
            faulty = _faulty(model, x, fault, edge, backend)
            if faulty is None:
                continue
            done += 1
            result = _result(fault, diagnosed(faulty.to_executorch(), record, (x,)))
            totals[result.partition(":")[0]] += 1
            print(f"{name:6} {fault.name}: {result}", flush=True)
    print(backend, dict(totals))


def diagnosed(program: Any, record: Any, inputs: tuple[torch.Tensor, ...]) -> Numerics:
    """Diagnose a run of a program with the record of the one without fault."""
    with run(
        program,
        inputs,
        debug_level="intermediate_outputs",
        separate=False,
        isolate=False,
        iterations=1,
        warmup=0,
    ) as done:
        return done.inspector(etrecord=record, verify=False).diagnose_numerics(inputs=inputs)


def _faulty(model: nn.Module, x: torch.Tensor, fault: Planted, edge: Any, backend: str) -> Any:
    if fault.change is not None:
        changed = copy.deepcopy(model)
        fault.change(changed)
        if backend != "portable":
            return lowered(changed, x, backend)
        faulty = copy.deepcopy(edge)
        program = faulty.exported_program()
        state = dict(changed.state_dict())
        program._state_dict = {
            name: state.get(name, one) for name, one in program.state_dict.items()
        }
        return faulty
    faulty = copy.deepcopy(edge)
    program = faulty.exported_program()
    program._state_dict = dict(program.state_dict)
    program._constants = dict(program.constants)
    return faulty if fault.plant is not None and fault.plant(program) else None


def _result(fault: Planted, found: Any) -> str:
    if found.first is None:
        return "not wrong"
    told = found.first.explanation
    if told is None:
        return "no name, rightly" if not fault.kinds else "no name"
    if not fault.kinds:
        return f"named wrongly: {told}" if told.fits else f"nearest, of no kind: {told}"
    all_told = [told, *told.alternatives]
    if any(one.kind in fault.kinds and fault.words in one.text for one in all_told):
        return f"named{'' if told.fits else ' as nearest'}: {told}"
    return f"named {'wrongly' if told.fits else 'as nearest, wrongly'}: {told}"


if __name__ == "__main__":
    main(*sys.argv[1:])
