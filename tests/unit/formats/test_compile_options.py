"""Compile options are shown in plain words, as the backends' own writers make them."""

from __future__ import annotations

import pytest

from etscope.formats.program.delegate_data import option_texts


@pytest.mark.parametrize(
    ("backend", "key", "value", "shown"),
    [
        ("VulkanBackend", "require_dynamic_shapes", b"\1", "true"),
        ("VulkanBackend", "skip_tag_memory_metadata", b"\0", "false"),
        ("VulkanBackend", "storage_type_override", b"\1\0\0\0", "TEXTURE_3D"),
        ("VulkanBackend", "texture_limits_x", b"\0\x08\0\0", "2048"),
        ("CoreMLBackend", "compute_units", b"cpu_and_ne", "cpu_and_ne"),
        ("QnnBackend", "qnn_compile_spec", b"\xff" * 20, f"0x{'ff' * 16}… (20 bytes)"),
        ("Unknown", "flags", b"\1\2", "0x0102"),
    ],
)
def test_options_are_shown(backend: str, key: str, value: bytes, shown: str) -> None:
    assert option_texts(backend, key, value) == {key: shown}


def test_options_of_vulkan_are_those_of_its_partitioner() -> None:
    partitioner = pytest.importorskip("executorch.backends.vulkan.partitioner.vulkan_partitioner")
    schema = pytest.importorskip("executorch.backends.vulkan.serialization.vulkan_graph_schema")
    for option, values in (
        ("memory_layout_override", schema.VkMemoryLayout),
        ("storage_type_override", schema.VkStorageType),
    ):
        for value in values:
            (spec,) = partitioner.parse_compile_options({option: value})
            assert option_texts("VulkanBackend", spec.key, spec.value) == {spec.key: value.name}


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
