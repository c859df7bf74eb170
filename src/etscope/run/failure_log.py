"""What the runtime's log says of a failure, in the words of a person who has to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# Lines of a healthy run on some machines, and of libraries that the Python process loads.
_NOISE = re.compile(
    r"\[cpuinfo_utils\.cpp:\d+\]|Failed to load .*torchao|KernelPreference|"
    r"dtype: \d+ \| dim order|^\s*$|torch/utils/_pytree\.py|terminate called|^Aborted"
)

DEBUG_BUFFER_FULL = "Ran out of space to store intermediate outputs"

# Backend -> what provides it.
_PROVIDERS = {
    "XnnpackBackend": "the Python package of ExecuTorch, or a runtime built with "
    "EXECUTORCH_BUILD_XNNPACK",
    "CoreMLBackend": "the Python package of ExecuTorch on macOS, or a runtime for Apple's systems "
    "built with EXECUTORCH_BUILD_COREML",
    "MPSBackend": "a runtime for Apple's systems built with EXECUTORCH_BUILD_MPS",
    "MetalBackend": "a runtime for macOS built with EXECUTORCH_BUILD_METAL",
    "MLXBackend": "a runtime for Apple silicon built with EXECUTORCH_BUILD_MLX",
    "VulkanBackend": "a runtime built with EXECUTORCH_BUILD_VULKAN, and a GPU with a Vulkan driver",
    "QnnBackend": "a Qualcomm device, or Qualcomm's AI Engine Direct SDK (QNN_SDK_ROOT), with a "
    "runtime built with EXECUTORCH_BUILD_QNN",
    "OpenvinoBackend": "Intel's OpenVINO: pip install openvino",
    "EthosUBackend": "a board or simulator with an Arm Ethos-U, and a runtime for it",
    "VgfBackend": "a runtime built with EXECUTORCH_BUILD_VGF, and Arm's ML SDK for Vulkan",
    "NeuropilotBackend": "a MediaTek device, and a runtime built with EXECUTORCH_BUILD_NEURON",
    "NeutronBackend": "an NXP board with an eIQ Neutron NPU, and a runtime for it",
    "EnnBackend": "a Samsung Exynos device, and a runtime built with EXECUTORCH_BUILD_ENN",
    "CudaBackend": "an NVIDIA GPU, and a runtime built with EXECUTORCH_BUILD_CUDA",
    "AotiBackend": "a runtime built with the AOTInductor backend",
}


def relevant(log: str, *, lines: int = 20) -> str:
    """The last lines of a log that say something of a failure."""
    kept = [line for line in log.splitlines() if not _NOISE.search(line)]
    return "\n".join(kept[-lines:])


def explained(log: str) -> tuple[str, str | None] | None:
    """(what is wrong, what to do) as far as the log tells it."""
    for pattern, explain in _EXPLANATIONS:
        found = list(dict.fromkeys(match[1] for match in re.finditer(pattern, log)))
        if found:
            return explain(found)
    return None


def _no_backend(names: list[str]) -> tuple[str, str]:
    listed = ", ".join(names)
    providers = [f"{name}: {_PROVIDERS.get(name, 'a runtime that links it')}" for name in names]
    return (
        f"the program needs the backend {listed}, which this runtime does not have",
        "what provides it: " + "; ".join(providers) + "; or lower the model for another backend",
    )


def _backend_unavailable(names: list[str]) -> tuple[str, str]:
    listed = ", ".join(names)
    return (
        f"the backend {listed} is in this runtime, and cannot work on this machine",
        "; ".join(f"it needs {_PROVIDERS.get(name, 'its libraries or device')}" for name in names),
    )


def _no_operator(names: list[str]) -> tuple[str, str]:
    return (
        f"this runtime has no kernel for {', '.join(names)}",
        "load the library that registers it (libraries=, --library), or lower the model so that "
        "the operator is decomposed or delegated",
    )


def _no_memory(_: Iterable[str]) -> tuple[str, str]:
    return "the runtime could not get the memory that it asked for", "see etscope info for the plan"


_EXPLANATIONS: tuple[tuple[str, Callable[[list[str]], tuple[str, str]]], ...] = (
    (r"Backend (\w+) is not registered", _no_backend),
    (r"Backend (\w+) is not available", _backend_unavailable),
    (r"Missing operator: \[\d+\] (\S+)", _no_operator),
    (r"(std::bad_alloc|MemoryError|Failed to allocate)", _no_memory),
)
