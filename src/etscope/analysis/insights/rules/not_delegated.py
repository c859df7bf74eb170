"""Nothing is delegated: all operators run on the runtime's own kernels."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.slow_products import slow_products
from etscope.model.finding import Explanation, Finding, Remedy, Sureness


def _find(facts: Facts) -> Iterator[Finding]:
    kernels = [member for member in facts.time.members if member[1].kind == "kernel"]
    if not kernels or facts.has_delegates:
        return
    types = facts.untaken_types
    evidence = [f"{len(kernels):,} kernels ran, and no delegate call."]
    remedy = Remedy(
        "Lower the model to a backend: `etscope export MODEL --backend xnnpack`.",
        "backend",
        {"backend": "xnnpack"},
    )
    if types:
        remedy = Remedy(
            "Export the model in float32 (`model.float()`), and lower it to XNNPACK.",
            "dtype",
            {"dtype": "float32"},
        )
    remedies = [remedy]
    slow = slow_products(facts) if Level.FULL in facts.level else None
    if slow is not None:
        evidence += slow.evidence
        remedies += slow.remedies
    taken = facts.time.with_share(facts.time.ticks(kernels))
    yield facts.finding(
        RULE.name,
        f"Nothing is delegated: kernels of the runtime take {taken}.{types}",
        kernels,
        Explanation(Sureness.MEASURED, tuple(evidence), remedies=tuple(remedies)),
        "kind:kernel",
    )


RULE = Rule("not-delegated", "Nothing runs on a backend", _find)
