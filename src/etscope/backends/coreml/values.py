"""Forms of the values that Core ML logs.

`ModelEventLoggerImpl::log_intermediate_tensors`
(backends/apple/coreml/runtime/sdk/model_event_logger_impl.mm) logs the outputs of operators by
their debug symbol, "output:operator", packed, in the graph's order of dimensions. A float16 is
widened to float32, and of the integers there is int32 alone. Core ML computes in float16 unless the
program was lowered with another precision.
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
    """Values of the graph's order; operators of Core ML may have dimensions of 1 more or less."""
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
