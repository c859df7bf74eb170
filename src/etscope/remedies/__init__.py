"""Try the remedies of a model's findings, and keep what is faster with the same numbers.

from etscope.remedies import try_remedies

found = try_remedies("model.py:make", backend="xnnpack")
print(found.command)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._lazy import lazy_names

if TYPE_CHECKING:
    from etscope.remedies._remedies import try_remedies
    from etscope.remedies._trials import Trial
    from etscope.remedies.results import Outcome, Remedies

__all__ = ["Outcome", "Remedies", "Trial", "try_remedies"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Outcome": "etscope.remedies.results",
        "Remedies": "etscope.remedies.results",
        "Trial": "etscope.remedies._trials",
        "try_remedies": "etscope.remedies._remedies",
    },
)
