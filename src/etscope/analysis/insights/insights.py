"""`explain`: the findings of all rules on a run, those with most time at stake first."""

from __future__ import annotations

from collections.abc import Collection

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rules import rules
from etscope.errors import UsageError
from etscope.model.finding import SEVERITIES, Finding, Sureness, ranked

__all__ = ["explain"]

LEAST_SHARE = 0.02  # of the method's time; less is not worth a change


def explain(
    facts: Facts, least_share: float = LEAST_SHARE, only: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return why a method takes its time: the findings of all rules, ranked by severity and by the
    time at stake; those with a smaller share of the method's time are left out. What is only
    possible comes after what is measured or likely, however much time it may concern.

    only: names of the rules to apply; all by default. Raises `UsageError` for an unknown name.
    """
    known = rules()
    for name in only:
        if name not in known:
            raise UsageError(f"no rule is called {name!r}", hint=f"rules: {', '.join(known)}")
    applied = [rule for name, rule in known.items() if not only or name in only]
    found = (one for rule in applied for one in rule.find(facts))
    largest = ranked([one for one in found if _is_worth_it(one, least_share)])
    return tuple(sorted(largest, key=lambda one: (SEVERITIES.index(one.severity), _is_guess(one))))


def _is_guess(finding: Finding) -> bool:
    explanation = finding.explanation
    return explanation is not None and explanation.sureness is Sureness.POSSIBLE


def _is_worth_it(finding: Finding, least_share: float) -> bool:
    """Return False for a part of the time that is too small; what is no part of it is told."""
    quantity = finding.quantity
    return quantity is None or quantity.share is None or quantity.share >= least_share
