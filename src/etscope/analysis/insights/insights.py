"""`insights`: the findings of all rules on a method's runs, those that matter most first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.rules import rules
from etscope.errors import UsageError
from etscope.model.finding import SEVERITIES, Finding, Sureness, ranked

__all__ = ["insights"]

LEAST_SHARE = 0.02  # of the method's time; less is not worth a change


def insights(
    facts: Facts,
    level: Level = Level.FULL,
    least_share: float = LEAST_SHARE,
    only: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return the findings of the rules of a level, ranked by severity and by the time at stake.
    What is only possible comes after what is measured or likely, however much time it may concern.

    least_share: of the method's time, below which causes are left out. only: names of the rules to
    apply; all by default. Raises `UsageError` for an unknown name.
    """
    for name in only:
        if name not in rules():
            raise UsageError(f"no rule is called {name!r}", hint=f"rules: {', '.join(rules())}")
    facts.level, facts.claimed = level, set()
    found: list[Finding] = []
    for name, rule in rules(level).items():  # those not wanted claim what they are about, too
        told = [one for one in rule.find(facts) if _is_worth_it(rule, one, least_share)]
        found += told if not only or name in only else ()
    if not Level.FULL & level:
        found = [replace(one, explanation=None) for one in found]
    largest = ranked([_of_phase(one, facts) for one in found])
    return tuple(sorted(largest, key=lambda one: (SEVERITIES.index(one.severity), _is_guess(one))))


def _is_guess(finding: Finding) -> bool:
    explanation = finding.explanation
    return explanation is not None and explanation.sureness is Sureness.POSSIBLE


def _is_worth_it(rule: Rule, finding: Finding, least_share: float) -> bool:
    """Return False for a cause with too small a part of the time. A quantity that is not a part of
    the time is always worth it."""
    quantity = finding.quantity
    if quantity is None or quantity.share is None or Level.FULL not in rule.level:
        return True
    return quantity.share >= least_share


def _of_phase(found: Finding, facts: Facts) -> Finding:
    """Let the next command show the same calls."""
    phase, method = facts.profile.phase, facts.profile.method
    if phase is None or found.place is None or found.command[:1] != ("inspect",):
        return found
    calls = ["--calls", phase]
    if method is not None and facts.is_one_of_several:
        calls = ["--method", method, *calls]
    return replace(found, command=("inspect", *calls, *found.command[1:]))
