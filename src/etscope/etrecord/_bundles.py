"""What a record takes from a bundled program: expected outputs and inputs of its test cases.

`BundledProgram`s, ExecuTorch's and ours, are known by their attributes: importing ExecuTorch's
would load all its tools.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from etscope.errors import RecordError, UsageError


def is_bundled(program: object) -> bool:
    """Whether it is a bundled program."""
    return hasattr(program, "method_test_suites") and hasattr(program, "executorch_program")


def bundled_program(bundle: Any) -> Any:
    """The ExecuTorch program in the bundle."""
    if bundle.executorch_program is None:
        raise RecordError(
            "this BundledProgram was made of a .pte file, which has no debug maps",
            hint="bundle the program that to_executorch() gives",
        )
    return bundle.executorch_program


def bundled_outputs(bundle: Any) -> dict[str, list[Any]]:
    """method -> the expected outputs of each of its test cases."""
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
    """The inputs of the first test case of "forward", or of the only method that has cases."""
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
    """The values with arrays as tensors of torch: a record saves no others."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return values
    from etscope.bridge.tensors import tensor_from_numpy

    return [tensor_from_numpy(v) if isinstance(v, np.ndarray) else v for v in values]
