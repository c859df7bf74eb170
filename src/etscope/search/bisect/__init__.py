"""Find the smallest piece of a model that fails on the runtime.

from etscope.search.bisect import bisect

found = bisect("model.pt2", "bisected", backend="xnnpack")
print(found.nodes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.search.bisect._bisect import Bisected, BisectOptions, bisect
    from etscope.search.bisect._probe import Answer

__all__ = ["Answer", "BisectOptions", "Bisected", "bisect"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Answer": "etscope.search.bisect._probe",
        "BisectOptions": "etscope.search.bisect._bisect",
        "Bisected": "etscope.search.bisect._bisect",
        "bisect": "etscope.search.bisect._bisect",
    },
)
