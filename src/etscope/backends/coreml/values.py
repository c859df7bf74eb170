"""Convert values that Core ML logs to the form of the graph.

`ModelEventLoggerImpl::log_intermediate_tensors`
(backends/apple/coreml/runtime/sdk/model_event_logger_impl.mm) logs the outputs of operators by
their debug symbol, "output:operator", packed, in the graph's order of dimensions. It widens float16
to float32, and int32 is its only integer type. Core ML computes in float16 unless the program was
lowered with another precision.
"""

from __future__ import annotations

from etscope.backends.common.inner import (
    Form,
    InnerCall,
    Types,
    same_shape,
    type_form,
    without_ones,
)


def forms(call: InnerCall) -> list[Form | str]:
    """Return the form of each value of a call, or the reason why it cannot be compared. Core ML may
    add or drop dimensions of 1."""
    found: list[Form | str] = []
    for value in call.values:
        types, expected = type_form(value), value.spec.shape
        if not isinstance(types, Types):
            found.append(types)
        elif same_shape(value.shape, expected):
            found.append(types.form())
        elif without_ones(value.shape) == without_ones(expected):
            shape = tuple(size for size in expected if isinstance(size, int))
            found.append(types.form(shape=shape))
        else:
            found.append(value.other_shape)
    return found
