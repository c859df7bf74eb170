"""Compare the measured memory of a run with the program's plan.

Owners sum to the growth of the native runner's process. The growth is resident memory at the end of
the last execution, minus resident memory at the start with all libraries loaded. The runner counts
each request of the runtime. A delegate owns what malloc handed out beyond these requests during its
initialization; an instruction owns what malloc handed out while it ran. malloc holds more memory
than it hands out, and only touched pages of it are resident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.owned_bytes import MEASURED, OwnedBytes, with_total
from etscope.analysis.memory.plan import MemoryPlan, memory_plans, reuse_section
from etscope.analysis.memory.stored import WEIGHTS, stored_tensors
from etscope.analysis.program.correlate import Attribution
from etscope.errors import MismatchError, MissingDataError
from etscope.formats.bytes.files import Source
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.etrecord.reader import PROGRAM_BUFFER, RecordView
from etscope.formats.program.pte import Program, program_fingerprint, read_program
from etscope.formats.program.pte_schema import DelegateCall
from etscope.formats.run_json import MeasuredMemory, MemoryPhase, SavedRun
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind
from etscope.units import format_bytes

__all__ = ["memory_owners"]

_COUNTED = {
    "program": "the program's tables",
    "constants": "constants of kernels, copied",
    "external_data": "data of .ptd files, copied",
    "named_data": "data read by name, kept",
    "delegate_data": "delegates' data, kept",
    "method_allocator": "method allocator",
    "planned": "planned buffers",
    "temporary_allocator": "temporary allocator",
}
_DELEGATES = "delegates' own copies"
_EXECUTING = "taken while executing"
_INPUTS = "inputs"
_OTHERS = "other objects of runtime and runner"
_FREED = "freed, kept by malloc"
_UNTOUCHED = "never touched"
_FILES = "pages of libraries"
_STACKS = "stacks of threads"
UNEXPLAINED = "unexplained"

# of the growth: smaller owners get no sentence
_WORTH_SAYING = 0.02


def memory_owners(
    measured: MeasuredMemory, planned: Mapping[str, int] | None = None
) -> tuple[OwnedBytes, ...]:
    """Return the owners of a process's growth. Their sizes sum to it; the last owner is
    "unexplained". planned: bytes in the program's file, by owner.

    Raises `MissingDataError` if the system reported no memory of the process.
    """
    start, end = _ends(measured)
    found = {
        name: end.counted.get(key, 0) - start.counted.get(key, 0) for key, name in _COUNTED.items()
    }
    growth = _difference(end.rss, start.rss)
    used = _difference(end.malloc_used, start.malloc_used)
    if used is not None:
        found[_DELEGATES] = sum(one.growth or 0 for one in measured.delegates)
        found[_EXECUTING] = sum(
            (one.first_growth or 0) + (one.later_growth or 0) for one in measured.instructions
        )
        found[_INPUTS] = sum(
            (_difference(after.malloc_used, before.malloc_used) or 0)
            - (sum(after.counted.values()) - sum(before.counted.values()))
            for before, after in pairwise(measured.phases)
            if after.phase == "inputs"
        )
        found[_OTHERS] = used - sum(found.values())
        found[_FREED] = (_difference(end.malloc_held, start.malloc_held) or 0) - used
        found[_UNTOUCHED] = (_difference(end.rss_anonymous, start.rss_anonymous) or 0) - (
            _difference(end.mapped_anonymous, start.mapped_anonymous) or 0
        )
    found[_FILES] = _difference(end.rss_of_files, start.rss_of_files) or 0
    found[_STACKS] = _difference(end.rss_of_stacks, start.rss_of_stacks) or 0
    found[UNEXPLAINED] = (growth or 0) - sum(found.values())
    known = planned or {}
    return tuple(
        OwnedBytes(name, size, MEASURED, known.get(name))
        for name, size in found.items()
        if size or known.get(name) or name == UNEXPLAINED
    )


def _ends(measured: MeasuredMemory) -> tuple[MemoryPhase, MemoryPhase]:
    """Return the first phase with known memory, and the last phase."""
    known = [phase for phase in measured.phases if phase.rss is not None]
    if len(known) < 2 or known[-1] is not measured.phases[-1]:
        raise MissingDataError(
            "the memory of this run's process is unknown: its system has no /proc/self/smaps",
            hint="run the program on Linux or Android",
        )
    return known[0], known[-1]


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


# -- what the program's file says


@dataclass(frozen=True, slots=True)
class _Planned:
    """The program of a run, with its memory plans and the places of its instructions."""

    program: Program
    plans: Mapping[str, MemoryPlan]
    places: Mapping[str, Sequence[Attribution]]

    @classmethod
    def of(cls, export: Export, methods: Sequence[str]) -> _Planned:
        plans = memory_plans(export)
        names = [name for name in methods if name in plans]
        return cls(
            export.needed_program,
            {name: plans[name] for name in names},
            {name: export.edge_nodes(name).attributions() for name in names},
        )

    def owners(self) -> dict[str, int]:
        """The bytes in the program's file, by owner."""
        header = self.program.header
        stored = stored_tensors(self.program)
        constants = {one.span for one in stored if one.value is not None and one.kind == WEIGHTS}
        return {
            _COUNTED["program"]: len(self.program.source.buffer)
            if header is None
            else header.program_size,
            _COUNTED["constants"]: _sum(constants),
            _COUNTED["planned"]: sum(plan.planned_bytes for plan in self.plans.values()),
            _DELEGATES: sum(sum(self.delegate_bytes(method).values()) for method in self.plans),
        }

    def delegate_bytes(self, method: str) -> dict[int, int]:
        """The bytes in the file of each delegate of a method: its data, and weights stored outside
        it."""
        found = self.program.method(method)
        calls = self.calls(method)
        spans = {number: {one.blob} for number, one in enumerate(found.delegates)}
        of_call = {call: number for number, call in calls.items()}
        for tensor in stored_tensors(self.program):
            number = of_call.get(-1 if tensor.instruction is None else tensor.instruction)
            if tensor.method == method and tensor.value is None and number is not None:
                blob = found.delegates[number].blob
                inside = blob.offset <= tensor.span.offset < blob.offset + blob.size
                spans[number] |= set() if inside else {tensor.span}
        return {number: _sum(own) for number, own in spans.items()}

    def calls(self, method: str) -> dict[int, int]:
        """The first instruction that calls each delegate of a method."""
        found: dict[int, int] = {}
        for number, instruction in enumerate(self.program.method(method).instructions):
            if isinstance(instruction, DelegateCall):
                found.setdefault(instruction.delegate, number)
        return found

    def label(self, method: str, instruction: int) -> str | None:
        labels = self.plans[method].labels
        return labels[instruction] if 0 <= instruction < len(labels) else None


def _sum(spans: Iterable[Span]) -> int:
    return sum(span.size for span in spans)


# -- the report


def measured_report(
    saved: SavedRun,
    about: Mapping[str, str],
    programs: Sequence[Program] = (),
    record: RecordView | None = None,
    *,
    force: bool = False,
) -> Report:
    """Build a report of a run's memory with the sections "memory_owners", "memory_reuse" (with the
    program), "memory_phases", "memory_delegates" and "memory_instructions", and sentences on the
    difference between plan and measurement.

    programs: the run's program is among them; without any, the record's program is used. record: of
    the program, for modules and lines.

    Raises `MissingDataError` for a run without measured memory, `MismatchError` if none of the
    programs is the run's, or if the record belongs to another program and `force` is False.
    """
    measured = None if saved.memory is None else saved.memory.measured
    if measured is None:
        raise MissingDataError(
            f"the memory of {about['file']} was not measured",
            hint="etscope run PROGRAM --memory --save DIR measures it, with the native runner",
        )
    program = _program_of(saved, about["file"], programs, record)
    planned = None
    if program is not None:
        export = Export(program, record)
        if not force:
            export.check_record()
        planned = _Planned.of(export, measured.methods)
    owners = memory_owners(measured, None if planned is None else planned.owners())
    sections = [
        *_of_process(measured, owners, planned),
        _delegates(measured, planned),
        _instructions(measured, planned),
    ]
    shown = tuple(section for section in sections if len(section.table))
    return Report(about, shown, _in_words(measured, owners, planned))


def _program_of(
    saved: SavedRun, run: str, programs: Sequence[Program], record: RecordView | None
) -> Program | None:
    """Return the program of a run, None if no program was given."""
    given = list(programs)
    recorded = None if record is None else record.program_view()
    if not given and recorded is not None:
        source = Source(recorded, saved.text("program") or run)
        given.append(read_program(source, member=PROGRAM_BUFFER))
    wanted = saved.text("program_sha256")
    for program in given:
        if wanted in (None, program_fingerprint(program.source.buffer)):
            return program
    if given:
        raise MismatchError(
            f"{given[0].source.path or 'the program'} is not the program of {run}",
            hint=f"pass the program that ran: {saved.text('program')}",
        )
    return None


def _of_process(
    measured: MeasuredMemory, owners: Sequence[OwnedBytes], planned: _Planned | None
) -> Iterator[Section]:
    """Yield the owners, then the planned reuse, then the phases."""
    yield owners_section(owners)
    if planned is not None:
        yield reuse_section(planned.plans)
    start = measured.phases[0].rss
    yield rows(
        "memory_phases",
        "Memory of the process after each phase",
        (
            Column("phase"),
            Column("method"),
            Column("rss", Kind.BYTES, title="resident"),
            Column("growth", Kind.BYTES, title="since the start"),
            Column("peak_rss", Kind.BYTES, title="peak"),
            Column("malloc_used", Kind.BYTES, title="given by malloc", priority=1),
            Column("malloc_held", Kind.BYTES, title="held by malloc", priority=2),
        ),
        [
            (
                phase.phase,
                phase.method,
                phase.rss,
                _difference(phase.rss, start),
                phase.peak,
                phase.malloc_used,
                phase.malloc_held,
            )
            for phase in measured.phases
        ],
    )


def owners_section(owners: Sequence[OwnedBytes]) -> Section:
    """Return a section with one row for each owner, and their sum."""
    content = [
        (one.owner, one.planned, one.size, share)
        for one, share in with_total(owners, "growth of the process")
    ]
    return rows(
        "memory_owners",
        "Memory of the process, by owner",
        (
            Column("owner"),
            Column("planned", Kind.BYTES, title="in the program"),
            Column("measured", Kind.BYTES),
            Column("share", Kind.SHARE),
        ),
        content,
    )


def _delegates(measured: MeasuredMemory, planned: _Planned | None) -> Section:
    """A section with one row for each delegate, the largest first."""
    content = []
    for method in measured.methods:
        mine = [one for one in measured.delegates if one.method == method]
        sizes: Mapping[int, int] = {}
        calls: Mapping[int, int] = {}
        # The runtime makes delegates in program order; the runner misses those without a segment.
        if planned is not None and len(mine) == len(planned.program.method(method).delegates):
            sizes, calls = planned.delegate_bytes(method), planned.calls(method)
        for number, one in enumerate(mine):
            call = calls.get(number)
            place = None if planned is None or call is None else planned.places[method][call]
            content.append(
                (
                    method,
                    number,
                    one.backend,
                    call,
                    None if place is None else place.module,
                    None if place is None else place.source,
                    sizes.get(number),
                    one.growth,
                    one.peak_rss,
                )
            )
    return rows(
        "memory_delegates",
        "Memory that delegates took when they were made",
        (
            Column("method", priority=2),
            Column("delegate", Kind.INT),
            Column("backend"),
            Column("instruction", Kind.INT, title="#", priority=1),
            Column("module", Kind.PATH, priority=1),
            Column("source", Kind.PATH, priority=2),
            Column("planned", Kind.BYTES, title="in the program"),
            Column("growth", Kind.BYTES, title="measured"),
            Column("peak_rss", Kind.BYTES, title="peak of the process", priority=1),
        ),
        sorted(content, key=lambda row: -(row[7] or 0)),
    )


def _instructions(measured: MeasuredMemory, planned: _Planned | None) -> Section:
    """A section with one row for each instruction that took memory."""
    content = []
    for one in measured.instructions:
        if not one.took:
            continue
        is_main = planned is not None and one.chain == 0 and one.method in planned.places
        places = planned.places[one.method] if planned is not None and is_main else ()
        place = places[one.instruction] if 0 <= one.instruction < len(places) else None
        content.append(
            (
                one.method,
                one.instruction,
                None if planned is None else planned.label(one.method, one.instruction),
                None if place is None else place.module,
                None if place is None else place.source,
                one.first_growth,
                one.later_growth,
                one.temporary,
            )
        )
    return rows(
        "memory_instructions",
        "Memory that instructions took",
        (
            Column("method", priority=2),
            Column("instruction", Kind.INT, title="#"),
            Column("op"),
            Column("module", Kind.PATH, priority=1),
            Column("source", Kind.PATH, priority=2),
            Column("first_growth", Kind.BYTES, title="in the first execution"),
            Column("later_growth", Kind.BYTES, title="in later ones", priority=1),
            Column("temporary", Kind.BYTES, title="temporary, at most", priority=1),
        ),
        sorted(content, key=lambda row: -max((row[5] or 0) + (row[6] or 0), row[7])),
    )


# -- in words


def _in_words(
    measured: MeasuredMemory, owners: Sequence[OwnedBytes], planned: _Planned | None
) -> tuple[str, ...]:
    start, end = _ends(measured)
    sizes = {one.owner: one.size or 0 for one in owners}
    growth = sum(sizes.values())

    def share(name: str) -> str:
        return f"{format_bytes(sizes.get(name, 0))} ({sizes.get(name, 0) / growth:.1%})"

    if growth <= 0:
        return ("The process did not grow.",)
    said = [
        f"The process grew by {format_bytes(growth)}, from {format_bytes(start.rss or 0)} to "
        f"{format_bytes(end.rss or 0)}. Planned buffers are {share(_COUNTED['planned'])} of it."
    ]
    if sizes.get(_DELEGATES, 0) > _WORTH_SAYING * growth:
        said.append(_of_delegates(measured, share(_DELEGATES), planned))
    if sizes.get(_COUNTED["constants"], 0) > _WORTH_SAYING * growth:
        said.append(
            "The runner copies the constants of kernels into memory: "
            f"{share(_COUNTED['constants'])}. An app that maps the file has them as file "
            "pages, which the system can drop."
        )
    if sizes.get(_FREED, 0) > _WORTH_SAYING * growth:
        said.append(
            f"malloc keeps {share(_FREED)} of freed memory between blocks in use."
            + (
                " Data that delegates read while they initialize leaves such gaps."
                if measured.delegates
                else ""
            )
        )
    if sizes.get(_FILES, 0) > _WORTH_SAYING * growth:
        said.append(
            f"Code and data of the runtime's libraries are {share(_FILES)}: file pages, "
            "loaded on first use."
        )
    if sizes.get(_EXECUTING, 0) > _WORTH_SAYING * growth:
        said.append(
            f"Executions took {share(_EXECUTING)} and kept it, for example as workspaces of "
            "delegates."
        )
    made = () if planned is None else tuple(map(planned.program.method, planned.plans))
    unseen = sum(len(method.delegates) for method in made) - len(measured.delegates)
    if unseen > 0:
        said.append(
            f"{unseen:,} delegates have their data in the program's tables. The runner cannot "
            f"see their initialization: their memory is in '{_OTHERS}'."
        )
    said += _peak(measured, planned)
    said.append(f"Unexplained: {share(UNEXPLAINED)}.")
    if end.malloc_used is None:
        said.append(
            "Memory handed out by malloc is unknown: the C library of this run does not report it."
        )
    return tuple(said)


def _of_delegates(measured: MeasuredMemory, taken: str, planned: _Planned | None) -> str:
    backends = " and ".join(
        sorted({one.backend or "an unknown backend" for one in measured.delegates})
    )
    said = f"Delegates ({backends}) made their own copies: {taken}"
    if planned is None:
        return f"{said}."
    held = planned.owners()[_DELEGATES]
    kept = measured.phases[-1].counted
    data = kept.get("delegate_data", 0) + kept.get("named_data", 0)
    then = f"and {format_bytes(data)} of it stays in memory as well" if data else "which were freed"
    return f"{said}, of {format_bytes(held)} of data and weights in the program, {then}."


def _peak(measured: MeasuredMemory, planned: _Planned | None) -> list[str]:
    """Say what the process did at its peak."""
    known = [phase for phase in measured.phases if phase.peak is not None]
    if not known:
        return ["The peak of each phase is unknown: the system does not allow to reset it."]
    phase = max(known, key=lambda one: one.peak or 0)
    peak, end = phase.peak or 0, measured.phases[-1].rss or 0
    where = f"in phase '{phase.phase}'"
    made = [one for one in measured.delegates if one.method == phase.method and one.peak_rss]
    if phase.phase == "load" and made:
        top = max(range(len(made)), key=lambda number: made[number].peak_rss or 0)
        calls = {} if planned is None else planned.calls(phase.method or "")
        place = calls.get(top)
        called = "" if place is None else f", which instruction {place} calls"
        where = f"while delegate {top} ({made[top].backend}) was made{called}"
    elif phase.phase == "first execution" and phase.method is not None:
        top_one = measured.peak_instruction(phase.method)
        if top_one is not None:
            is_main = planned is not None and top_one.chain == 0
            label = (
                planned.label(phase.method, top_one.instruction) if planned and is_main else None
            )
            where = f"in the first execution at instruction {top_one.instruction}"
            where += "" if label is None else f" ({label})"
    above = peak - end
    more = f", {format_bytes(above)} more than at the end" if above > 0 else ""
    return [f"The peak is {format_bytes(peak)}{more}: {where}."]
