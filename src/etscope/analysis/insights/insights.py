"""`insights`: the findings of all rules on a method's runs, those that matter most first.

To add a rule: write a function in the module of its theme in `rules`, add its name, module and
level to `_RULES`, and, if it explains anything, a section with the rule's name to
docs/reference/findings.md, which a test compares with this list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from etscope.analysis.insights.facts import Facts, Find, Level
from etscope.errors import UsageError
from etscope.model.finding import SEVERITIES, Finding, Sureness, ranked

__all__ = ["insights"]

# The order of precedence: a rule is not about what one before it claims, and findings that rank
# alike keep this order. The level is here, so that a summary imports no module without its rules.
_RULES: Mapping[str, tuple[str, Level]] = {
    "program_faults": ("faults", Level.ALL),
    "generation": ("time", Level.SUMMARY),
    "slowest_parts": ("time", Level.SUMMARY),
    "not_delegated": ("delegation", Level.ALL),
    "lost_fusion": ("fusion", Level.FULL),
    "runtime_constants": ("state", Level.FULL),
    "float_among_quantized": ("quantization", Level.FULL),
    "cancelling_quantization": ("quantization", Level.FULL),
    "whole_caches": ("state", Level.FULL),
    "rewritten_buffers": ("state", Level.FULL),
    "needless_copies": ("copies", Level.FULL),
    "layout_conversions": ("delegation", Level.ALL),
    "untaken_types": ("islands", Level.FULL),
    "portable_kernels": ("kernels", Level.FULL),
    "outside_delegates": ("delegation", Level.ALL),
    "first_run": ("runs", Level.ALL),
    "threads": ("runs", Level.FULL),
    "unsteady": ("runs", Level.ALL),
    "padded_inputs": ("overhead", Level.FULL),
    "small_operators": ("overhead", Level.FULL),
    "unrolled_loops": ("overhead", Level.FULL),
    "memory_bound": ("kernels", Level.FULL),
    "float_weights": ("quantization", Level.FULL),
    "outside_instructions": ("overhead", Level.ALL),
    "delegate_rest": ("delegation", Level.ALL),
    "inside_delegates": ("delegation", Level.SUMMARY),
    "unknown_work": ("kernels", Level.FULL),
    "single_runs": ("runs", Level.SUMMARY),
    "large_bounds": ("memory", Level.ALL),
    "memory": ("memory", Level.SUMMARY),
    "values": ("memory", Level.SUMMARY),
    "files": ("memory", Level.SUMMARY),
}


@dataclass(frozen=True)
class Rule:
    """A finder of one kind of insight, and the level at which it is asked.

    find: returns the findings of a method's runs, and claims their nodes and leaves. `insights`
    drops the findings below the least share of time.
    """

    find: Find
    level: Level


@cache
def rules(level: Level = Level.ALL) -> Mapping[str, Rule]:
    """Return the rules of a level in the order of precedence, by name: `lost_fusion` finds
    "lost-fusion"; a rule for the summary alone may find several kinds."""
    return {
        name.replace("_", "-"): Rule(
            getattr(import_module(f"{__package__}.rules.{module}"), name), own_level
        )
        for name, (module, own_level) in _RULES.items()
        if own_level & level
    }


LEAST_SHARE = 0.02  # of the method's time; less is not worth a change


def insights(
    facts: Facts,
    level: Level = Level.FULL,
    least_share: float = LEAST_SHARE,
    only: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return the findings of the rules of a level, ordered by severity and by the time that they
    explain. Findings that are only possible come after measured and likely ones, however much time
    they explain.

    least_share: causes that take a smaller share of the method's time are left out. only: names of
    the rules to apply; all by default. Raises `UsageError` for an unknown name.
    """
    for name in only:
        if name not in rules():
            raise UsageError(f"no rule is called {name!r}", hint=f"rules: {', '.join(rules())}")
    facts.level, facts.claimed = level, set()
    found: list[Finding] = []
    for name, rule in rules(level).items():  # those not wanted claim what they are about, too
        told = list(rule.find(facts))
        if Level.FULL in rule.level:  # a cause; a number that is not a part of the time stays
            shares = [None if one.quantity is None else one.quantity.share for one in told]
            pairs = zip(told, shares, strict=True)
            told = [one for one, share in pairs if share is None or share >= least_share]
        found += told if not only or name in only else ()
    if not Level.FULL & level:
        found = [replace(one, explanation=None) for one in found]
    else:
        from etscope.analysis.insights.commands import with_commands

        found = [with_commands(one, facts) for one in found]
    phase, method = facts.profile.phase, facts.profile.method
    if phase is not None:  # the next command shows the same calls
        of_method = () if method is None or not facts.is_one_of_several else ("--method", method)
        inspect = ("inspect", *of_method, "--calls", phase)
        found = [
            replace(one, command=(*inspect, *one.command[1:]))
            if one.place is not None and one.command[:1] == ("inspect",)
            else one
            for one in found
        ]

    def rank(finding: Finding) -> tuple[int, bool]:
        reason = finding.explanation
        is_guess = reason is not None and reason.sureness is Sureness.POSSIBLE
        return SEVERITIES.index(finding.severity), is_guess

    return tuple(sorted(ranked(found), key=rank))
