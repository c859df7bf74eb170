"""Write the programs of this folder: one small CNN for each backend that compiles on a PC.

pip install executorch==1.5.1 ethos-u-vela==5.1.0 tosa-tools==2026.5.0 coreai-torch==0.4.2
python tests/corpus/delegates/make.py tests/corpus/delegates [NAME]...
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.backends.apple.coreai import CoreAIPartitioner
from executorch.backends.apple.coreml.partition import CoreMLPartitioner
from executorch.backends.native import get_default_compile_config
from executorch.backends.native.partitioner import NativePartitioner
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.native import to_native
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from etscope.analysis.info.etrecord_info import slim_etrecord

ALL = (
    *("vulkan", "vulkan_fp16", "vulkan_external", "coreml", "coreai", "native", "native_package"),
    *("ethos_u55", "ethos_u85", "ethos_u55_external"),
)


class Net(nn.Module):
    """Two convolutions and a layer, no two of their parameters of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 16, 3, padding=1, stride=4)
        self.classes = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.classes(x.flatten(1))


def lowered(
    model: nn.Module, inputs: tuple[Any, ...], wanted: Collection[str]
) -> Iterator[tuple[str, Any]]:
    """Yield each program's name and manager."""
    program = torch.export.export(model, inputs)
    for name, partitioner in (
        ("vulkan", VulkanPartitioner()),
        ("vulkan_fp16", VulkanPartitioner({"force_fp16": True})),
        ("vulkan_external", VulkanPartitioner({"external_constants_max_data_bytes": 1 << 20})),
        ("coreml", CoreMLPartitioner()),
        ("coreai", CoreAIPartitioner()),
        ("native", NativePartitioner(external_constants_tag=None)),
    ):
        if name in wanted:
            manager = to_edge_transform_and_lower(
                program,
                partitioner=[partitioner],
                compile_config=get_default_compile_config() if name == "native" else None,
                generate_etrecord=True,
            )
            yield name, manager
    if not any(name.startswith("ethos") for name in wanted):
        return
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.ethosu.compile_spec import VelaExternalBlockPlacements
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config

    for name, target in (
        ("ethos_u55", "ethos-u55-128"),
        ("ethos_u85", "ethos-u85-256"),
        ("ethos_u55_external", "ethos-u55-128"),
    ):
        if name not in wanted:
            continue
        spec = EthosUCompileSpec(target)
        if name == "ethos_u55_external":
            spec.external_block_placements = VelaExternalBlockPlacements(weight_data="flash")
        quantizer = EthosUQuantizer(spec)
        quantizer.set_global(get_symmetric_quantization_config())
        prepared = prepare_pt2e(program.module(), quantizer)
        prepared(*inputs)
        quantized = torch.export.export(convert_pt2e(prepared), inputs)
        yield name, to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])


def main(folder: Path, wanted: Collection[str]) -> None:
    """Write the programs, the records of those with weights by name, and the weights."""
    torch.manual_seed(0)
    model = Net().eval()
    inputs = (torch.randn(1, 3, 16, 16),)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    np.savez_compressed(folder / "weights.npz", **weights)
    if "native_package" in wanted:
        to_native(torch.export.export(model, inputs)).save(str(folder / "native.ptn"))
    for name, manager in lowered(model, inputs, wanted):
        program = manager.to_executorch()
        (folder / f"{name}.pte").write_bytes(program.buffer)
        if name.endswith("_external"):
            with tempfile.TemporaryDirectory() as written:
                program.write_tensor_data_to_file(written)
                (data,) = Path(written).iterdir()
                (folder / f"{name}.ptd").write_bytes(data.read_bytes())
        elif not name.startswith("ethos"):
            with tempfile.TemporaryDirectory() as whole:
                record = Path(whole) / "whole.etrecord"
                program.get_etrecord().save(str(record))
                slim_etrecord(record, folder / f"{name}.etrecord")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ALL)
