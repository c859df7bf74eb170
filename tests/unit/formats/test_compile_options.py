"""Compile options are shown in plain words, as the backends' own writers make them."""

from __future__ import annotations

import pytest

from etscope.formats.program.compile_options import option_texts


@pytest.mark.parametrize(
    ("backend", "key", "value", "shown"),
    [
        ("VulkanBackend", "require_dynamic_shapes", b"\1", {"require_dynamic_shapes": "true"}),
        ("VulkanBackend", "skip_tag_memory_metadata", b"\0", {"skip_tag_memory_metadata": "false"}),
        (
            "VulkanBackend",
            "storage_type_override",
            b"\1\0\0\0",
            {"storage_type_override": "TEXTURE_3D"},
        ),
        ("VulkanBackend", "texture_limits_x", b"\0\x08\0\0", {"texture_limits_x": "2048"}),
        ("CoreMLBackend", "compute_units", b"cpu_and_ne", {"compute_units": "cpu_and_ne"}),
        (
            "QnnBackend",
            "qnn_compile_spec",
            b"\xff" * 20,
            {"qnn_compile_spec": f"0x{'ff' * 16}… (20 bytes)"},
        ),
        ("Unknown", "flags", b"\1\2", {"flags": "0x0102"}),
    ],
)
def test_options_are_shown(backend: str, key: str, value: bytes, shown: dict[str, str]) -> None:
    assert option_texts(backend, key, value) == shown


def test_options_of_vulkan_are_those_of_its_partitioner() -> None:
    partitioner = pytest.importorskip("executorch.backends.vulkan.partitioner.vulkan_partitioner")
    schema = pytest.importorskip("executorch.backends.vulkan.serialization.vulkan_graph_schema")
    for layout in schema.VkMemoryLayout:
        (spec,) = partitioner.parse_compile_options({"memory_layout_override": layout})
        assert option_texts("VulkanBackend", spec.key, spec.value) == {spec.key: layout.name}
    for storage in schema.VkStorageType:
        (spec,) = partitioner.parse_compile_options({"storage_type_override": storage})
        assert option_texts("VulkanBackend", spec.key, spec.value) == {spec.key: storage.name}


def test_options_of_qnn_are_those_of_its_compiler() -> None:
    schema = pytest.importorskip("executorch.backends.qualcomm.serialization.qc_schema")
    writer = pytest.importorskip("executorch.backends.qualcomm.serialization.qc_schema_serialize")
    for name in ("SM8650", "SM8750", "QCS9100"):
        options = schema.QnnExecuTorchOptions(
            soc_info=schema.SocInfo(
                schema.QcomChipset[name], schema.HtpInfo(schema.HtpArch.V75, 8)
            ),
            backend_options=schema.QnnExecuTorchBackendOptions(
                backend_type=schema.QnnExecuTorchBackendType.kHtpBackend,
                htp_options=schema.QnnExecuTorchHtpBackendOptions(
                    performance_mode=schema.QnnExecuTorchHtpPerformanceMode.kHtpBurst,
                    precision=schema.QnnExecuTorchHtpPrecision.kHtpFp16,
                    use_weight_sharing=True,
                ),
            ),
            profile_level=schema.QnnExecuTorchProfileLevel.kProfileOptrace,
            dump_intermediate_outputs=True,
        )
        shown = option_texts("QnnBackend", "qnn_compile_spec", writer.option_to_flatbuffer(options))
        assert shown["soc_model"] == name
        assert shown["backend_type"] == "HTP"
        assert shown["htp_performance_mode"] == "burst"
        assert shown["htp_precision"] == "fp16"
        assert shown["profile_level"] == "optrace"
        assert shown["use_weight_sharing"] == shown["dump_intermediate_outputs"] == "true"
        assert "online_prepare" not in shown
