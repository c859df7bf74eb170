"""`Rule`: what finds one kind of insight, and the decorator that makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

from etscope.analysis.insights.facts import Facts, Level
from etscope.model.finding import Finding

if TYPE_CHECKING:
    from etscope.analysis.graphs.run_graph import RunGraph

Find = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True)
class Rule:
    """One kind of insight.

    name: the `kind` of its findings ("not-delegated"); of a rule for the summary alone, what its
    kinds have in common. title: what it is, in a few words. find: returns the findings of a
    method's runs, and claims the nodes and leaves that they are about; those below the least share
    of time are left out afterwards. level: at which it is asked, by the list of rules.
    """

    name: str
    title: str
    find: Find
    level: Level = Level.FULL


def rule(title: str) -> Callable[[Find], Rule]:
    """Make a function the `Rule` of its name: `lost_fusion` finds "lost-fusion"."""
    return lambda find: Rule(find.__name__.replace("_", "-"), title, find)


def graph_rule(title: str) -> Callable[[Callable[[Facts, RunGraph], Iterable[Finding]]], Rule]:
    """Make a function of the facts and the graph a `Rule`; without a graph it finds nothing."""

    def made(find: Callable[[Facts, RunGraph], Iterable[Finding]]) -> Rule:
        @wraps(find)
        def with_graph(facts: Facts) -> Iterable[Finding]:
            run = facts.run_graph
            return () if run is None else find(facts, run)

        return rule(title)(with_graph)

    return made
