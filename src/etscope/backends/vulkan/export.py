"""Export for Vulkan and WebGPU, by `executorch.backends.vulkan` and `.webgpu`."""

from __future__ import annotations

from typing import Any, Literal

Storage = Literal["buffer", "texture_3d", "texture_2d"]
Layout = Literal["width_packed", "height_packed", "channels_packed"]


def partitioners(
    *,
    force_fp16: bool = False,
    require_dynamic_shapes: bool = False,
    small_texture_limits: bool = False,
    storage_type_override: Storage | None = None,
    memory_layout_override: Layout | None = None,
) -> list[Any]:
    """Make the partitioner of Vulkan.

    force_fp16: convert float32 tensors to float16 inside the delegate.
    require_dynamic_shapes: take only operators that support dynamic shapes.
    small_texture_limits: limit textures to 2048 texels, for desktop GPUs; else to the limits of
        phones.
    storage_type_override, memory_layout_override: set these for all tensors; by default Vulkan
        chooses.
    """
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    flags = {
        "force_fp16": force_fp16,
        "require_dynamic_shapes": require_dynamic_shapes,
        "small_texture_limits": small_texture_limits,
    }
    return [VulkanPartitioner(_options(flags, storage_type_override, memory_layout_override))]


def webgpu_partitioners(
    *, force_fp16: bool = False, require_dynamic_shapes: bool = False
) -> list[Any]:
    """Make the partitioner of WebGPU. Its delegates have Vulkan's id."""
    from executorch.backends.webgpu.partitioner import WebGPUPartitioner

    flags = {"force_fp16": force_fp16, "require_dynamic_shapes": require_dynamic_shapes}
    return [WebGPUPartitioner(_options(flags))]


def quantizer(*, weight_bits: Literal[8, 4] = 8, dynamic: bool = False) -> Any:
    """Make a quantizer of linear layers: weights by channel. With `dynamic`, also quantize their
    inputs to int8, with ranges that each run finds."""
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
        VulkanQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(is_dynamic=dynamic, weight_bits=weight_bits)
    return VulkanQuantizer().set_global(config)


def _options(
    flags: dict[str, bool], storage: Storage | None = None, layout: Layout | None = None
) -> dict[str, Any]:
    """Return the partitioner's options, without those left at their default."""
    from executorch.backends.vulkan.serialization.vulkan_graph_schema import (
        VkMemoryLayout,
        VkStorageType,
    )

    options: dict[str, Any] = {name: True for name, wanted in flags.items() if wanted}
    if storage is not None:
        options["storage_type_override"] = VkStorageType[storage.upper()]
    if layout is not None:
        options["memory_layout_override"] = VkMemoryLayout[f"TENSOR_{layout.upper()}"]
    return options
