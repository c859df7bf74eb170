"""`explain`: the findings of all rules on a run, those with most time at stake first."""

from __future__ import annotations

from collections.abc import Collection

from etscope.analysis.explain.facts import Facts
from etscope.analysis.explain.rules import rules
from etscope.errors import UsageError
from etscope.model.finding import Finding, ranked

LEAST_SHARE = 0.02  # of the method's time; less is not worth a change


def explain(
    facts: Facts, least_share: float = LEAST_SHARE, only: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return why a method takes its time: the findings of all rules, ranked by severity and by the
    time at stake; those with a smaller share of the method's time are left out.

    only: names of the rules to apply; all by default. Raises `UsageError` for an unknown name.
    """
    known = rules()
    for name in only:
        if name not in known:
            raise UsageError(f"no rule is called {name!r}", hint=f"rules: {', '.join(known)}")
    applied = [rule for name, rule in known.items() if not only or name in only]
    found = (one for rule in applied for one in rule.find(facts))
    return ranked([one for one in found if _share(one) >= least_share])


def _share(finding: Finding) -> float:
    quantity = finding.quantity
    return 0.0 if quantity is None or quantity.share is None else quantity.share
