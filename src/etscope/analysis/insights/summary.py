"""All findings of a run, ranked: what the first page of a report and `etscope inspect` say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from etscope.analysis.insights.generation import generation_findings, is_one_of_several
from etscope.analysis.insights.leaf_times import TimeFindings
from etscope.analysis.insights.steadiness import steadiness
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.errors import EtscopeError
from etscope.model.finding import Finding, Place, Quantity, Severity, ranked

if TYPE_CHECKING:
    from etscope.analysis.matching.run_nodes import RunNodes
    from etscope.analysis.memory import MemoryPlan
    from etscope.analysis.numerics.rows import Numerics
    from etscope.analysis.size import SizedFile
    from etscope.formats.program.ptd import ExternalData
    from etscope.formats.program.pte import Program
    from etscope.formats.run_json import SavedRun

__all__ = ["Known", "findings_of"]


@dataclass(frozen=True)
class Known:
    """Knowledge of a run beside its profiles.

    program: the one that ran. nodes_of: returns the nodes of a method by the record of the export,
    which tells modules and lines; None without one. plans: memory plans that are made already, by
    method. numerics: the diagnosis of the values of one method; without one, `has_values` tells
    whether values were logged at all. saved: what was noted when it ran. data: the program's .ptd
    files.
    """

    program: Program | None = None
    nodes_of: Callable[[str], RunNodes] | None = None
    plans: Mapping[str, MemoryPlan] | None = None
    numerics: Numerics | None = None
    has_values: bool = False
    saved: SavedRun | None = None
    data: Sequence[ExternalData] = ()

    @property
    def conditions(self) -> str:
        """The threads and the machine of the run, in words; "" if they are not known."""
        found = None if self.saved is None else self.saved.conditions
        if self.saved is None or found is None:
            return ""
        return found.in_words(self.saved.count("threads"))

    @cached_property
    def files(self) -> tuple[SizedFile, ...]:
        """The program's file and its .ptd files with their parts; () without a program."""
        if self.program is None:
            return ()
        from etscope.analysis.matching.export import Export
        from etscope.analysis.size import sized_program

        return sized_program(Export(self.program, data=tuple(self.data)), self.nodes_of)


def findings_of(profile: MethodProfile, scale: Scale, known: Known) -> tuple[Finding, ...]:
    """Return the findings of a method's runs, what matters most first."""
    time = TimeFindings(profile, scale, known.program)
    run = None if known.saved is None else known.saved.generation
    found = [*generation_findings(time, run), *time.all(), *steadiness(time, known.conditions)]
    # These say as much, and whether it grows.
    told = {"decode-line": "slowest-line", "decode-operator": "slowest-operator"}
    said = {told.get(one.kind) for one in found}
    found = [one for one in found if one.kind not in said]
    found += [*_memory(profile.method, profile, known), *_values(profile, known)]
    if known.nodes_of is None:
        found.append(
            Finding(
                "no-record",
                Severity.UNKNOWN,
                "Modules and lines of Python are not known: no ETRecord was given.",
                profile.method,
                command=("inspect", "-r", "ETRECORD"),
            )
        )
    if profile.traced:
        found.append(
            Finding(
                "traced",
                Severity.PROBLEM,
                "Values were logged in these runs: their times hold the cost of that.",
                profile.method,
                command=(_runner(profile),),
            )
        )
    return tuple(_of_phase(one, profile) for one in ranked(found))


def _runner(profile: MethodProfile) -> str:
    """The command that makes such runs."""
    return "run" if profile.phase is None else "generate"


def _of_phase(found: Finding, profile: MethodProfile) -> Finding:
    """Let the next command show the same calls."""
    if profile.phase is None or found.place is None or found.command[:1] != ("inspect",):
        return found
    calls = ["--phase", profile.phase]
    if profile.method is not None and is_one_of_several(profile.method):
        calls = ["--method", profile.method, *calls]
    return replace(found, command=("inspect", *calls, *found.command[1:]))


def findings_of_program(method: str, known: Known) -> tuple[Finding, ...]:
    """Return the findings of a method of the program that did not run, what matters most first."""
    return ranked([*_memory(method, None, known)])


def _memory(method: str | None, profile: MethodProfile | None, known: Known) -> Iterator[Finding]:
    program = known.program
    if program is None or method not in [one.name for one in program.methods]:
        yield Finding(
            "no-program",
            Severity.UNKNOWN,
            "What takes the memory is not known: no program was given.",
            method,
            command=("inspect", "-p", "PROGRAM"),
        )
        return
    from etscope.analysis.insights.memory import memory_findings, weights_findings
    from etscope.analysis.memory import memory_plan

    try:
        plan = (known.plans or {}).get(str(method)) or memory_plan(program, str(method))
        yield from memory_findings(program, plan, profile)
        if known.nodes_of is not None:  # else no weight is known to be a module's
            parts = [part for sized in known.files for part in sized.parts]
            yield from weights_findings(plan, parts)
    except EtscopeError:  # a damaged plan: the memory views say where
        return


def _values(profile: MethodProfile, known: Known) -> Iterator[Finding]:
    numerics = known.numerics
    if numerics is None or numerics.method != profile.method:
        sentence = "Whether an operator is wrong was not looked at: compare the logged values."
        command: tuple[str, ...] = ("numerics",)
        if not known.has_values:
            sentence = "Whether an operator is wrong is not known: no values were logged."
            command = (_runner(profile), "--debug-level", "intermediate_outputs", "--save", "ran")
        yield Finding("no-values", Severity.UNKNOWN, sentence, profile.method, command=command)
        return
    row = numerics.first or numerics.stray_nan
    quantity = None
    if row is not None and row.local is not None:
        quantity = Quantity(row.local, numerics.metric.unit or numerics.metric.name)
    told = "; ".join(filter(None, (numerics.verdict, numerics.what_it_is)))
    if numerics.coverage.hidden is not None and numerics.is_fine:
        told += f"; {numerics.coverage.hidden}"
    select = None if row is None else f"id:{row.pair.instruction}"
    instruction = None if row is None else row.pair.instruction
    yield Finding(
        "values-fine" if numerics.is_fine else "values-wrong",
        Severity.FACT if numerics.is_fine else Severity.PROBLEM,
        f"{told[:1].upper()}{told[1:]}.",
        numerics.method,
        quantity,
        Place("numerics", select=select, instruction=instruction),
        ("numerics", "--sort", "error"),
    )
