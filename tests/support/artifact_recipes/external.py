"""Programs whose weights are in a .ptd file beside them: those of kernels, and those of XNNPACK."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes.external_constants_pass import (
    delegate_external_constants_pass_unlifted,
)
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from torch import nn

from tests.support.artifact_recipes.workbench import (
    Call,
    Workbench,
    exported,
    portable,
    seeded,
    xnnpack,
)


class Twice(nn.Module):
    """Two layers, and a third that shares the first one's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tied(torch.relu(self.second(self.first(x))))


def external_portable(bench: Workbench) -> None:
    """`weights.ptd` has the tensors of kernels, by their qualified names."""
    call = _call()
    config = ExecutorchBackendConfig(external_constants=lambda node: "weights")
    program = bench.save(portable(exported(_model(), call.inputs)), config)
    _run(bench, program, call)


def external_xnnpack(bench: Workbench) -> None:
    """`weights.ptd` has what XNNPACK asks for by keys of its own."""
    call = _call()
    unlifted = exported(_model(), call.inputs).module()
    delegate_external_constants_pass_unlifted(module=unlifted, gen_tag_fn=lambda node: "weights")
    program = bench.save(xnnpack(torch.export.export(unlifted, call.inputs)))
    _run(bench, program, call)


def _run(bench: Workbench, program: Any, call: Call) -> None:
    program.write_tensor_data_to_file(str(bench.folder))
    module = _load_for_executorch(
        str(bench.pte), data_path=str(bench.folder / "weights.ptd"), enable_etdump=True
    )
    outputs = module.run_method("forward", call.inputs)
    torch.testing.assert_close(outputs[0], _model()(*call.inputs))
    module.write_etdump_result_to_file(str(bench.folder / "etdump.etdp"), None)
    bench.finish()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return Twice().eval()


def _call() -> Call:
    return Call((torch.randn(2, 8, generator=seeded(1)),))
