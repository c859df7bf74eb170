"""Language models whose caches differ: shared by two methods, in windows, and quantised.

The last two are models of ExecuTorch's own `examples.models.llama`.
"""

from __future__ import annotations

from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
    replace_kv_cache_with_custom_kv_cache,
    replace_kv_cache_with_quantized_kv_cache,
    replace_kv_cache_with_ring_kv_cache,
)
from executorch.examples.models.llama.source_transformation.sdpa import (
    replace_sdpa_with_custom_op,
)
from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.external_constants_pass import (
    delegate_external_constants_pass_unlifted,
)
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from torch import nn
from torch.export import ExportedProgram
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

from tests.support.artifact_recipes.workbench import Workbench

CONTEXT, WINDOW, PREFILL = 32, 8, 8
LAYERS, HEADS, HEAD_SIZE = 2, 2, 16
METADATA = {"get_max_seq_len": CONTEXT, "get_max_context_len": CONTEXT, "use_kv_cache": True}


def llama_shared_external(bench: Workbench) -> None:
    """Methods `prefill` (8 tokens) and `decode` (1) of a Llama of transformers that share their
    caches; all weights, those of XNNPACK too, are in `weights.ptd`."""
    model = _llama()
    lowered = to_edge_transform_and_lower(
        {name: _tagged(model, count) for name, count in (("prefill", PREFILL), ("decode", 1))},
        partitioner={name: [XnnpackPartitioner()] for name in ("prefill", "decode")},
        constant_methods=METADATA,
        generate_etrecord=True,
    )
    config = ExecutorchBackendConfig(
        external_constants=lambda node: "weights",
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
    )
    bench.save(lowered, config).write_tensor_data_to_file(str(bench.folder))
    tokens = torch.ones((1, 1), dtype=torch.long)
    _run(bench, "decode", tokens, torch.tensor([0]), data_path=str(bench.folder / "weights.ptd"))


def llama_rings(bench: Workbench) -> None:
    """The first layer has a ring for a window of 8 tokens (of 16 positions), the second the whole
    context of 32."""
    model = replace_kv_cache_with_ring_kv_cache(_transformer(), [WINDOW, 0])
    bench.save(_portable(model))
    _run(bench, "forward", torch.ones((1, 1), dtype=torch.long), torch.tensor([0]))


def llama_quantized_cache(bench: Workbench) -> None:
    """Caches of int8 with scales and zero points for each position, written by
    `llama::update_cache`."""
    model = replace_kv_cache_with_custom_kv_cache(_transformer())
    model = replace_sdpa_with_custom_op(replace_kv_cache_with_quantized_kv_cache(model))
    bench.save(_portable(model))
    _run(bench, "forward", torch.ones((1, 1), dtype=torch.long), torch.tensor([0]))


def _llama() -> TorchExportableModuleForDecoderOnlyLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=HEADS,
            max_position_embeddings=CONTEXT,
        )
    )
    # Lowering takes no gradients, and decompositions fail with them.
    model = model.eval().requires_grad_(False)
    model.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=CONTEXT,
        cache_config={"batch_size": 1, "max_cache_len": CONTEXT},
    )
    return TorchExportableModuleForDecoderOnlyLM(model)


def _tagged(model: TorchExportableModuleForDecoderOnlyLM, tokens: int) -> ExportedProgram:
    """A method for a number of tokens whose weights XNNPACK asks for by name in `weights.ptd`."""
    inputs = {
        "input_ids": torch.ones((1, tokens), dtype=torch.long),
        "cache_position": torch.arange(tokens),
    }
    with torch.no_grad():
        unlifted = model.export(**inputs).module()
        delegate_external_constants_pass_unlifted(
            module=unlifted, gen_tag_fn=lambda node: "weights"
        )
        return torch.export.export(unlifted, (), kwargs=inputs)


def _transformer() -> nn.Module:
    torch.manual_seed(0)
    arguments = ModelArgs(
        dim=4 * HEAD_SIZE,
        hidden_dim=128,
        n_layers=LAYERS,
        n_heads=4,
        n_kv_heads=HEADS,
        vocab_size=256,
        max_batch_size=1,
        max_seq_len=CONTEXT,
        max_context_len=CONTEXT,
        use_kv_cache=True,
        enable_dynamic_shape=False,
    )
    model: nn.Module = construct_transformer(arguments)
    return model.eval().requires_grad_(False)


def _portable(model: nn.Module) -> EdgeProgramManager:
    inputs = torch.ones((1, 1), dtype=torch.long), {"input_pos": torch.tensor([0])}
    with torch.no_grad():
        program = torch.export.export(model, inputs, strict=True)
        return to_edge(program, constant_methods=METADATA, generate_etrecord=True)


def _run(bench: Workbench, method: str, *inputs: torch.Tensor, **options: Any) -> None:
    module = _load_for_executorch(str(bench.pte), enable_etdump=True, **options)
    module.run_method(method, inputs)
    module.write_etdump_result_to_file(str(bench.folder / "etdump.etdp"), None)
    bench.finish()
