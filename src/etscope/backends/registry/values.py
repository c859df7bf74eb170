"""Convert values that a backend logs inside its call to the form of the reference graph.

Two backends of ExecuTorch log tensors: QNN and Core ML. Others log only times, or nothing. A
backend may log the graph's numbers in another order of dimensions, as integers, or in another type.
Its function in `VALUE_FORMS` returns the `Form` of each value of a call, or the reason why the
value cannot be compared: etscope does not guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from etscope.backends.common.inner import Form, InnerCall, Types, same_shape, type_form
from etscope.backends.coreml import values as coreml_values
from etscope.backends.qnn import values as qnn_values

ValueForms = Callable[[InnerCall], Sequence[Form | str]]

VALUE_FORMS: Mapping[str, ValueForms] = {
    "QnnBackend": qnn_values.forms,
    "CoreMLBackend": coreml_values.forms,
}
# Backends that keep values of a quantized model as integers, even if the graph has floats there.
IN_CODES = frozenset({"QnnBackend"})


def value_forms(backend: str | None, call: InnerCall) -> Sequence[Form | str]:
    """Return the form of each value of a call, or the reason why it cannot be compared. backend:
    its id; None if unknown."""
    forms = VALUE_FORMS.get(backend or "")
    if forms is not None:
        return forms(call)
    found: list[Form | str] = []  # of an unknown backend: only values in the graph's shapes
    for value in call.values:
        types = type_form(value)
        if isinstance(types, Types) and not same_shape(value.shape, value.spec.shape):
            found.append(value.other_shape)
        else:
            found.append(types.form() if isinstance(types, Types) else types)
    return found
