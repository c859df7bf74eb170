"""The facts that rules of `etscope explain` look at, and the making of their findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from etscope.analysis.graphs.partition import Partition, partition
from etscope.analysis.graphs.run_graph import RunGraph
from etscope.analysis.insights.leaf_times import TimeFindings
from etscope.analysis.profile.profile import Leaf, MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import short_lines
from etscope.analysis.work.limits import ProfileLimits
from etscope.analysis.work.operation import NO_WORK, Work
from etscope.analysis.work.profile_work import ProfileWork, profile_work
from etscope.model.finding import Explanation, Finding, Place, Severity, Site
from etscope.model.student_t import t_quantile
from etscope.units import TimeScale

if TYPE_CHECKING:
    from etscope.formats.calibration import Calibration
    from etscope.formats.program.pte import Program

__all__ = ["Facts"]

Ticks = npt.NDArray[np.int64] | npt.NDArray[np.float64]
_SITES = 20  # of a finding; the others are counted


@dataclass(frozen=True)
class Facts:
    """A method's runs in one phase, with all that was given beside the dump.

    Each of `partition`, `work` and `program` is None where the files do not tell it: a rule that
    needs it finds nothing then. calibration: of the machine of the run, None if there is none.
    """

    trace: Trace
    profile: MethodProfile
    scale: Scale
    calibration: Calibration | None = None

    @cached_property
    def time(self) -> TimeFindings:
        """The times of the leaves, and the words for them."""
        return TimeFindings(self.profile, self.scale, self.program)

    @property
    def program(self) -> Program | None:
        return self.trace.recorded_program

    @cached_property
    def partition(self) -> Partition | None:
        """The backends of the nodes of the edge program, with the reasons of refusals."""
        record, method = self.trace.record, self.profile.method
        if record is None or method is None or method not in record.edge_methods:
            return None
        return partition(self.trace, method)

    @cached_property
    def run_graph(self) -> RunGraph | None:
        """The edge program with what ran of it."""
        return None if self.partition is None else RunGraph(self.partition, self.time.members)

    @cached_property
    def work(self) -> ProfileWork | None:
        """The FLOPs and bytes of the rows."""
        return profile_work(self.trace, self.profile)

    @cached_property
    def limits(self) -> ProfileLimits | None:
        """The rates of the rows, and with a calibration what bounds them."""
        if self.work is None:
            return None
        run = self.trace.saved_run
        return ProfileLimits(self.work, self.scale.source, self.calibration, self.threads, run)

    def work_of(self, member: Leaf) -> Work:
        """The work of a leaf in one run, the mean of its runs; none where it is not known."""
        found = None if self.work is None else self.work.of([member[1]])
        return NO_WORK if found is None else found

    def ns(self, ticks: float) -> float | None:
        """Ticks as nanoseconds; None of a clock of cycles."""
        if self.scale.source is TimeScale.CYCLES:
            return None
        return float(Scale(self.scale.source, TimeScale.NS)(ticks))

    @cached_property
    def untraced_ns(self) -> tuple[float, float] | None:
        """The medians of the method's runs without and with tracing of times, ns, by the clock
        around them; None where run.json does not have both."""
        saved, method = self.trace.saved_run, self.profile.method
        if saved is None:
            return None
        found: list[float] = []
        for traced in (None, "times"):
            if saved.generation is not None:
                one = saved.generation.of_pass(traced)
                if one is None or self.profile.phase is None:
                    return None
                names = np.array([name == method for name in one.calls.methods], np.bool_)
                mine = one.calls.in_phase(self.profile.phase) & names[one.calls.method]
                samples = one.calls.execute_ns[mine]
            else:
                calls = [
                    one.samples_ns
                    for one in saved.latencies
                    if (one.traced, one.method) == (traced, method)
                ]
                samples = np.concatenate([np.zeros(0, np.int64), *calls])
            if not len(samples):
                return None
            found.append(float(np.median(samples)))
        return found[0], found[1]

    @cached_property
    def tracing_ticks(self) -> float:
        """The ticks by which tracing makes a run longer, most of it between the events of calls; 0
        where run.json does not tell."""
        untraced, tick = self.untraced_ns, self.ns(1.0)
        if untraced is None or not tick:
            return 0.0
        without, traced = untraced
        return max(0.0, traced - without) / tick

    @property
    def threads(self) -> int | None:
        """The threads of the run, where run.json tells."""
        saved = self.trace.saved_run
        return None if saved is None else saved.count("threads")

    def members(self, instructions: Iterable[int | None]) -> list[Leaf]:
        """The leaves of instructions."""
        wanted = set(instructions)
        return [one for one in self.time.members if one[0].head.instruction_id in wanted]

    def finding(
        self,
        rule: str,
        sentence: str,
        members: Sequence[Leaf],
        explanation: Explanation,
        select: str = "",
        severity: Severity = Severity.COST,
    ) -> Finding:
        """Make a finding about leaves, whose time is at stake; its interval and sites are added to
        the explanation.

        select: a selector that may pick just these leaves; else they are picked by instructions.
        """
        ids = dict.fromkeys(group.head.instruction_id for group, _ in members)
        numbered = " or ".join(f"id:{one}" for one in ids if one is not None)
        selectors = filter(None, (select, numbered if len(ids) <= _SITES else ""))
        found = self.time.finding(rule, severity, sentence, members, *selectors)
        low, high = self._interval([leaf.ticks for _, leaf in members])
        sites = explanation.sites or tuple(self.sites(members))
        explained = replace(explanation, low=low, high=high, sites=sites)
        command = (
            found.command if len(found.command) > 1 else ()
        )  # one that picks nothing says nothing
        return replace(found, command=command, explanation=explained)

    def part(
        self,
        rule: str,
        sentence: str,
        ticks: Ticks,
        explanation: Explanation,
        severity: Severity = Severity.COST,
    ) -> Finding:
        """Make a finding about a part of the method's time that is no sum of leaves.

        ticks: the part, of each run.
        """
        low, high = self._interval([ticks])
        return Finding(
            rule,
            severity,
            sentence,
            self.profile.method,
            self.time.quantity(float(ticks.mean())),
            Place("events"),
            explanation=replace(explanation, low=low, high=high),
        )

    def sites(self, members: Sequence[Leaf]) -> list[Site]:
        """The operators of leaves, those with most time first, at most 20."""
        ordered = sorted(members, key=lambda one: -self.time.averages[id(one[1])])
        return [
            Site(
                leaf.name,
                group.head.instruction_id,
                float(self.scale(self.time.averages[id(leaf)])),
                leaf.attribution.module or None,
                short_lines(leaf.attribution.lines[:1]) or None,
            )
            for group, leaf in ordered[:_SITES]
        ]

    def _interval(self, parts: Sequence[Ticks]) -> tuple[float | None, float | None]:
        """The 95 % interval of the mean of times together, over the runs: by Student's t, as runs
        are taken to be independent."""
        runs = len(self.profile.runs)
        if runs < 2 or not parts:
            return None, None
        ticks = np.asarray(parts, np.float64).sum(axis=0)
        half = float(t_quantile(0.05, runs - 1)) * float(ticks.std(ddof=1)) / runs**0.5
        mean = float(ticks.mean())
        return float(self.scale(max(0.0, mean - half))), float(self.scale(mean + half))
