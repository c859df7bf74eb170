"""Find the smallest piece of a model that fails on the runtime.

from etscope.search.bisect import bisect

found = bisect("model.pt2", "bisected", backend="xnnpack")
print(found.nodes)
"""

from etscope.search.bisect._bisect import Bisected, BisectOptions, bisect
from etscope.search.bisect._probe import Answer

__all__ = ["Answer", "BisectOptions", "Bisected", "bisect"]
