"""Inputs and expected outputs of a `BundledProgram`'s test cases, in the form of a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from etscope.errors import UsageError


def is_bundled(program: object) -> bool:
    """Recognize a `BundledProgram`, ExecuTorch's or ours, by its attributes: importing ExecuTorch's
    class loads all its tools."""
    return hasattr(program, "method_test_suites") and hasattr(program, "executorch_program")


def bundled_outputs(bundle: Any) -> dict[str, list[Any]]:
    """Map each method to the expected outputs of each of its test cases."""
    outputs: dict[str, list[Any]] = {}
    for suite in bundle.method_test_suites:
        for case in suite.test_cases:
            if not case.expected_outputs:
                raise UsageError(
                    f"Missing at least one set of expected outputs for method {suite.method_name}."
                )
        outputs[suite.method_name] = [_tensors(case.expected_outputs) for case in suite.test_cases]
    return outputs


def bundled_inputs(bundle: Any) -> Any:
    """Return the inputs of the first test case of "forward", or of the only method with cases."""
    suites = {suite.method_name: suite for suite in bundle.method_test_suites}
    suite = suites.get("forward") or (next(iter(suites.values())) if len(suites) == 1 else None)
    if suite is None:
        return None
    if not suite.test_cases:
        raise UsageError(
            f"The '{suite.method_name}' method is defined, but no corresponding input test cases "
            "are provided."
        )
    return _tensors(suite.test_cases[0].inputs)


def _tensors(values: list[Any]) -> list[Any]:
    """Convert arrays to torch tensors: a record saves only these."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return values
    from etscope.bridge.tensors import torch_values

    return torch_values(values)
