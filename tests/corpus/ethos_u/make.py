"""Make the files of this folder; see README.md."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

import executorch.backends.arm.ethosu.backend as ethosu
import torch
from executorch.backends.arm.common.arm_compile_spec import ArmCompileSpec
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

HERE = Path(__file__).parent


class Net(torch.nn.Module):
    """Two convolutions, a pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 8, 3, stride=2)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        x = torch.nn.functional.max_pool2d(x, 2)
        return self.head(x.flatten(2).transpose(1, 2))


def main() -> None:
    torch.manual_seed(0)
    ethosu.logger.setLevel(logging.INFO)  # Vela runs with --verbose-all, and writes _per-layer.csv
    inputs = (torch.randn(1, 3, 9, 9),)
    spec = EthosUCompileSpec(
        target="ethos-u55-128",
        system_config="Ethos_U55_High_End_Embedded",
        memory_mode="Shared_Sram",
    )
    folder = tempfile.mkdtemp()
    spec.dump_intermediate_artifacts_to(folder).dump_debug_info(ArmCompileSpec.DebugMode.JSON)
    quantizer = EthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Net().eval(), inputs).module(), quantizer)
    prepared(*inputs)
    program = torch.export.export(convert_pt2e(prepared), inputs)
    edge = to_edge_transform_and_lower(
        program,
        partitioner=[EthosUPartitioner(spec)],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
        generate_etrecord=True,
    )
    edge.to_executorch().get_etrecord().save(HERE / "net.etrecord")
    shutil.copy(Path(folder, "debug.json"), HERE)
    for file in Path(folder, "output").glob("*.csv"):
        shutil.copy(file, HERE)


if __name__ == "__main__":
    main()
