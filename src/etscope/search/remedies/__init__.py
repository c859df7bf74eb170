"""Try the remedies of a model's findings, and keep what is faster with the same numbers.

from etscope.search.remedies import try_remedies

found = try_remedies("model.py:make", backend="xnnpack")
print(found.command)
"""

from etscope.search.remedies._changes import Setting
from etscope.search.remedies._remedies import Effort, RemedyOptions, try_remedies
from etscope.search.remedies._trials import Laboratory, Runs
from etscope.search.remedies.results import Outcome, Remedies
from etscope.search.trial import Trial

__all__ = [
    "Effort", "Laboratory", "Outcome", "Remedies", "RemedyOptions", "Runs", "Setting", "Trial",
    "try_remedies",
]  # fmt: skip
