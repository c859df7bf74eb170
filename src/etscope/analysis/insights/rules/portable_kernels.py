"""Large operators on portable kernels: products that are slow for what they compute."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.slow_products import slow_products
from etscope.model.finding import Explanation, Finding, Sureness


def _find(facts: Facts) -> Iterator[Finding]:
    # Without delegates `not-delegated` has it among its evidence.
    found = slow_products(facts) if facts.has_delegates else None
    if found is None:
        return
    members = found.members
    taken = facts.time.with_share(facts.time.ticks(members))
    many = len(members) > 1
    yield facts.finding(
        RULE.name,
        f"{len(members):,} {'products and convolutions run' if many else 'operator runs'} on "
        f"{'portable kernels' if many else 'a portable kernel'} at {found.rate:.2g} GFLOP/s: "
        f"{taken}.",
        members,
        Explanation(
            Sureness.LIKELY if found.is_known else Sureness.POSSIBLE,
            tuple(found.evidence),
            remedies=tuple(found.remedies),
        ),
    )


RULE = Rule("portable-kernels", "Large operators on portable kernels", _find)
