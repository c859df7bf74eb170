"""`Rule`: what finds one kind of inefficiency."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from etscope.analysis.insights.facts import Facts
from etscope.model.finding import Finding


@dataclass(frozen=True)
class Rule:
    """One kind of inefficiency.

    name: the `kind` of its findings, and the section of docs/reference/findings.md
    ("not-delegated"). title: what it is, in a few words. find: returns the findings of a method's
    runs; those below the threshold of time are left out afterwards, so it need not look at shares.
    """

    name: str
    title: str
    find: Callable[[Facts], Iterable[Finding]]
