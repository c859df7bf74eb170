"""Find what to keep in float in a quantized model.

The error that each part costs in int8, and its time in float, are measured on the runtime.

from etscope.search.sensitivity import sensitivity

found = sensitivity("model.py:make", tolerance=30)
print(found.keep_float)
"""

from etscope.search.sensitivity._sensitivity import SensitivityOptions, sensitivity
from etscope.search.sensitivity.results import Sensitivity, Variant

__all__ = ["Sensitivity", "SensitivityOptions", "Variant", "sensitivity"]
