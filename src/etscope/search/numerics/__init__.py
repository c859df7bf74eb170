"""Build a model, run it on the runtime, and find where along the way an error enters.

from etscope.search.numerics import model_stages

found = model_stages("model.py:make", backend="xnnpack", quantize=True)
print(found.verdict)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.search.numerics._fresh_run import model_stages
    from etscope.search.numerics._tap_search import narrow

__all__ = ["model_stages", "narrow"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "model_stages": "etscope.search.numerics._fresh_run",
        "narrow": "etscope.search.numerics._tap_search",
    },
)
