"""The facts of a method's runs that rules look at, and the making of their findings.

What only some rules ask for is imported then: a summary needs times alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.steadiness import steadiness
from etscope.analysis.profile.profile import Leaf, MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import short_lines
from etscope.errors import MissingFileError
from etscope.formats.generation import DECODE, PREFILL
from etscope.model.finding import Explanation, Finding, Place, Remedy, Severity, Site, Sureness
from etscope.model.graph import Node
from etscope.model.statistics import median, t_quantile
from etscope.support.shown import Shown
from etscope.units import TimeScale

if TYPE_CHECKING:
    from etscope.analysis.graphs.partition import Partition
    from etscope.analysis.graphs.run_graph import RunGraph
    from etscope.analysis.memory.size import SizedFile
    from etscope.analysis.numerics.rows import Numerics
    from etscope.analysis.work.limits import ProfileLimits
    from etscope.analysis.work.operation import Work
    from etscope.analysis.work.profile_work import ProfileWork
    from etscope.formats.calibration import Calibration, Peaks
    from etscope.formats.conditions import Conditions
    from etscope.formats.program.pte import Program

__all__ = ["Facts", "Level"]

Ticks = npt.NDArray[np.int64] | npt.NDArray[np.float64]
# Methods that are all of their phase; of others, several may run for one token.
_WHOLE = (None, "forward", PREFILL, DECODE, "prefill_forward", "kv_forward")
_SITES = 20  # of a finding, and ids in its selector: more do not help to find one
RECORD_NEEDED = Remedy(
    "Add the ETRecord, which names the operators: with `-r`, or in the run's folder."
)


class Level(Flag):
    """Levels of detail of an answer.

    SUMMARY: where time and memory go, and what is unknown; this needs only the times and the memory
        plan.
    FULL: also why the method takes that time, from its graph, its work and its program.
    """

    SUMMARY = auto()
    FULL = auto()
    ALL = SUMMARY | FULL


@dataclass
class Facts(Shown):
    """A method's runs in one phase, with everything that was given with the dump.

    `partition`, `work` and `program` are None if the files do not have them; a rule that needs one
    then finds nothing. calibration: the calibration of the machine that ran the program. numerics:
    the diagnosis of the values of one method; if it is None, `has_values` says whether values were
    logged at all. sized: the program's files with their parts, if they are known already. level,
    claimed: for the current call of `insights`: which rules it applies, and the `id`s of the nodes
    and leaves that earlier rules have explained.
    """

    trace: Trace
    profile: MethodProfile
    scale: Scale
    calibration: Calibration | None = None
    numerics: Numerics | None = None
    has_values: bool = False
    sized: Sequence[SizedFile] | None = None
    level: Level = Level.FULL
    claimed: set[int] = field(default_factory=set)

    @cached_property
    def time(self) -> LeafTimes:
        """The times of the leaves, with the methods that put them in words."""
        return LeafTimes(self.profile, self.scale)

    # -- precedence

    def claim(self, nodes: Iterable[Node] = (), leaves: Iterable[Leaf] = ()) -> None:
        """Claim nodes with their leaves, and further leaves, for the rule that is running."""
        nodes = list(nodes)
        if nodes and self.run_graph is not None:
            leaves = [*leaves, *self.run_graph.members(nodes)]
        self.claimed.update(map(id, nodes), (id(leaf) for _, leaf in leaves))

    def is_free(self, node: Node) -> bool:
        """Return whether no earlier rule claimed a node."""
        return id(node) not in self.claimed

    def free(self, leaves: Iterable[Leaf]) -> list[Leaf]:
        """The leaves that no earlier rule claimed."""
        return [one for one in leaves if id(one[1]) not in self.claimed]

    # -- what is known

    @property
    def program(self) -> Program | None:
        return self.trace.recorded_program

    @property
    def is_one_of_several(self) -> bool:
        """True if other methods may run in the same phase, such as `token_embedding` with
        `text_decoder`."""
        return self.profile.method not in _WHOLE

    @property
    def has_delegates(self) -> bool:
        """True if the method calls delegates."""
        return any(group.head.kind == "delegate" for group in self.time.groups)

    @cached_property
    def untaken_types(self) -> str:
        """A sentence on the tensor types that keep operators out of delegates, with a space in
        front to append it; "" if there are none."""
        from etscope.analysis.program.xnnpack_events import untaken_types

        for method in () if self.program is None else self.program.methods:
            if method.name == self.profile.method and (why := untaken_types(method)):
                return f" {why}."
        return ""

    @cached_property
    def partition(self) -> Partition | None:
        """The backends of the nodes of the edge program, with the reasons of refusals."""
        record, method = self.trace.record, self.profile.method
        if record is None or method is None or method not in record.edge_methods:
            return None
        from etscope.analysis.graphs.partition import partition

        return partition(self.trace, method)

    @cached_property
    def run_graph(self) -> RunGraph | None:
        """The edge program with its measured leaves."""
        if self.partition is None:
            return None
        from etscope.analysis.graphs.run_graph import RunGraph

        return RunGraph(self.partition, self.time.members)

    @cached_property
    def work(self) -> ProfileWork | None:
        """The FLOPs and bytes of the rows."""
        from etscope.analysis.work.profile_work import profile_work

        return profile_work(self.trace, self.profile)

    @cached_property
    def limits(self) -> ProfileLimits | None:
        """The rates of the rows, and with a calibration what bounds them."""
        from etscope.analysis.work.limits import profile_limits

        return profile_limits(self.trace, self.profile, self.scale.source, self.calibration)

    @property
    def peaks(self) -> Peaks | None:
        """The peaks of the machine, by the calibration."""
        return None if self.limits is None else self.limits.peaks

    def work_of(self, *members: Leaf) -> Work:
        """The work of leaves in one run, the mean of its runs; none where it is not known."""
        from etscope.analysis.work.operation import NO_WORK

        found = None if self.work is None else self.work.of([leaf for _, leaf in members])
        return NO_WORK if found is None else found

    def ns(self, ticks: float) -> float | None:
        """Ticks as nanoseconds; None if the clock counts cycles."""
        if self.scale.source is TimeScale.CYCLES:
            return None
        return float(Scale(self.scale.source, TimeScale.NS)(ticks))

    @cached_property
    def untraced_ns(self) -> tuple[float, float] | None:
        """The medians of the method's runs without tracing and with tracing of times, in ns, by the
        clock around them. None if run.json lacks one of the two.
        """
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
            found.append(median(samples))
        return found[0], found[1]

    @cached_property
    def tracing_ticks(self) -> float:
        """The ticks that tracing adds to a run, most of them between the events of calls; 0 if
        run.json does not say."""
        untraced, tick = self.untraced_ns, self.ns(1.0)
        if untraced is None or not tick:
            return 0.0
        without, traced = untraced
        return max(0.0, traced - without) / tick

    @cached_property
    def differences(self) -> tuple[Finding, ...]:
        """Findings about runs that differ (slow first run, drift, two speeds, disturbed runs), or
        about a single run.
        """
        known = self.conditions
        return tuple(steadiness(self.time, "" if known is None else known.in_words(self.threads)))

    @cached_property
    def inputs(self) -> tuple[Any, ...]:
        """The values of the inputs of the runs; () if they are unknown, or several calls had
        others."""
        from etscope.formats.run_json import saved_calls

        if self.profile.phase is not None:
            return ()
        try:
            calls = self.trace.calls or saved_calls(self.trace.dump.path)
        except MissingFileError:  # only the dump was copied, and not the inputs beside it
            return ()
        given = [one.inputs for one in calls if one.method == self.profile.method]
        known = given[0] if len(given) == 1 else None
        return () if known is None else known.values or ()

    @property
    def conditions(self) -> Conditions | None:
        """The machine of the run and its load, from run.json."""
        saved = self.trace.saved_run
        return None if saved is None else saved.conditions

    @property
    def is_warmed_up(self) -> bool:
        """True if run.json has warm-up executions before the dump's first run."""
        return any(self.trace.warmups(self.profile.method))

    @property
    def runner(self) -> str:
        """The command that makes such runs: "run" or "generate"."""
        return "run" if self.profile.phase is None else "generate"

    @property
    def threads(self) -> int | None:
        """The threads of the run, from run.json; None if unknown."""
        saved = self.trace.saved_run
        return None if saved is None else saved.count("threads")

    def finding(
        self,
        rule: str,
        sentence: str,
        members: Sequence[Leaf],
        explanation: Explanation,
        select: str = "",
        by: tuple[str, str] | None = None,
    ) -> Finding:
        """Make a finding about the time of leaves; its interval and sites are added to the
        explanation.

        select: a selector that may pick just these leaves; else they are picked by instructions.
        by: the roll-up, and its row, if no selector picks them.
        """
        ids = dict.fromkeys(group.head.instruction_id for group, _ in members)
        numbered = " or ".join(f"id:{one}" for one in ids if one is not None)
        selectors = filter(None, (select, numbered if len(ids) <= _SITES else ""))
        found = self.time.finding(rule, Severity.COST, sentence, members, *selectors, by=by)
        low, high = self._interval([leaf.ticks for _, leaf in members])
        sites = tuple(self.sites(members))
        explained = replace(explanation, low=low, high=high, sites=sites)
        # A command that picks nothing says nothing.
        command = found.command if len(found.command) > 1 else ()
        return replace(found, command=command, explanation=explained)

    def part(
        self,
        rule: str,
        sentence: str,
        ticks: Ticks,
        members: Sequence[Leaf],
        explanation: Explanation,
    ) -> Finding:
        """Make a finding about a part of the method's time that is not a sum of leaves.

        ticks: the part, of each run. members: the leaves that it belongs to.
        """
        low, high = self._interval([ticks])
        sites = tuple(self.sites(members))
        return Finding(
            rule,
            Severity.COST,
            sentence,
            self.profile.method,
            self.time.quantity(float(ticks.mean())),
            Place("events"),
            explanation=replace(explanation, low=low, high=high, sites=sites),
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


Find = Callable[[Facts], Iterable[Finding]]


def explained(
    sureness: Sureness, evidence: Iterable[str], remedies: Iterable[Remedy] = ()
) -> Explanation:
    """Make an explanation without its interval, which `Facts.finding` and `Facts.part` add."""
    return Explanation(sureness, tuple(evidence), remedies=tuple(remedies))


def needs_graph(find: Callable[[Facts, RunGraph], Iterable[Finding]]) -> Find:
    """Turn a function of the facts and the graph into a rule, which finds nothing without a
    graph.
    """

    @wraps(find)
    def rule(facts: Facts) -> Iterable[Finding]:
        run = facts.run_graph
        return () if run is None else find(facts, run)

    return rule
