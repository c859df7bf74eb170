"""Core AI, Apple's runtime of 2026.

Export is by `executorch.backends.apple.coreai` and coreai-torch, also on Linux. ExecuTorch 1.5 does
not have a runtime for it, so its events are unknown.
"""

from __future__ import annotations

from typing import Any

from etscope.errors import MissingDependencyError


def partitioners(*, minimum_deployment_target: str | None = None) -> list[Any]:
    """Make the partitioner; the asset becomes named data of the program.

    minimum_deployment_target: the oldest system to run on: "27.0".
    """
    from coreai.authoring import AIProgram
    from executorch.backends.apple.coreai import CoreAIPartitioner

    if not hasattr(AIProgram, "get_graph"):  # ExecuTorch 1.5.1 calls it for each delegate
        raise MissingDependencyError(
            "this coreai-core is too new for ExecuTorch's backend: AIProgram has no get_graph",
            hint="pip install coreai-torch==0.4.2, which takes coreai-core 1.0.0b2",
        )
    return [CoreAIPartitioner(min_deployment_version=minimum_deployment_target)]
