"""What to keep in float in a quantised model: how much error each part of it costs, and how much
time it would take in float; measured on the runtime.

from etscope.sensitivity import sensitivity

found = sensitivity("model.py:make", tolerance=30)
print(found.keep_float)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._lazy import lazy_names

if TYPE_CHECKING:
    from etscope.sensitivity._sensitivity import sensitivity
    from etscope.sensitivity._variant import Sensitivity, Variant

__all__ = ["Sensitivity", "Variant", "sensitivity"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Sensitivity": "etscope.sensitivity._variant",
        "Variant": "etscope.sensitivity._variant",
        "sensitivity": "etscope.sensitivity._sensitivity",
    },
)
