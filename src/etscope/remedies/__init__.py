"""Try the remedies of a model's findings, and keep what is faster with the same numbers.

from etscope.remedies import try_remedies

found = try_remedies("model.py:make", backend="xnnpack")
print(found.command)
"""

from etscope.remedies._remedies import Effort, try_remedies
from etscope.remedies._trials import Runs
from etscope.remedies.results import Outcome, Remedies
from etscope.search import Trial

__all__ = ["Effort", "Outcome", "Remedies", "Runs", "Trial", "try_remedies"]
