"""Compare the measured memory of a run with the program's plan.

Owners sum to the growth of the native runner's process. The growth is resident memory at the end of
the last execution, minus resident memory at the start with all libraries loaded. The runner counts
each request of the runtime. A delegate owns what malloc handed out beyond these requests during its
initialization; an instruction owns what malloc handed out while it ran. malloc holds more memory
than it hands out, and only touched pages of it are resident.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import MemoryPlan, memory_plans, reuse_section
from etscope.analysis.memory.stored import MEASURED, WEIGHTS, OwnedBytes, stored_tensors, with_total
from etscope.analysis.program.correlate import Attribution
from etscope.errors import MismatchError, MissingDataError
from etscope.formats.bytes.files import Source
from etscope.formats.etrecord.reader import PROGRAM_BUFFER, RecordView
from etscope.formats.program.pte import Program, program_fingerprint, read_program
from etscope.formats.program.pte_schema import DelegateCall, Method
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

_WORTH_SAYING = 0.02  # of the growth: smaller owners get no sentence


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

    programs: the run's program is among them; without any, the record's program is used. record:
    the program's record, for modules and lines.

    Raises `MissingDataError` for a run without measured memory, `MismatchError` if none of the
    programs is the run's, or if the record belongs to another program and `force` is False.
    """
    measured = None if saved.memory is None else saved.memory.measured
    if measured is None:
        raise MissingDataError(
            f"the memory of {about['file']} was not measured",
            hint="etscope run PROGRAM --memory --save DIR measures it, with the native runner",
        )
    given = list(programs)
    recorded = None if record is None else record.program_view()
    if not given and recorded is not None:
        source = Source(recorded, saved.text("program") or about["file"])
        given.append(read_program(source, member=PROGRAM_BUFFER))
    wanted = saved.text("program_sha256")
    is_wanted = (wanted in (None, program_fingerprint(one.source.buffer)) for one in given)
    program = next(compress(given, is_wanted), None)
    if given and program is None:
        raise MismatchError(
            f"{given[0].source.path or 'the program'} is not the program of {about['file']}",
            hint=f"pass the program that ran: {saved.text('program')}",
        )
    export = Export(program, record)
    if program is not None and not force:
        export.check_record()
    memory = _RunMemory.of(measured, export)
    sections = [
        owners_section(memory.owners),
        *([reuse_section(memory.plans)] if program is not None else []),
        memory.phases(),
        memory.delegates(),
        memory.instructions(),
    ]
    shown = tuple(section for section in sections if len(section.table))
    return Report(about, shown, memory.in_words())


@dataclass(frozen=True, slots=True)
class _RunMemory:
    """The measured memory of a run, and what its program's file says.

    plans, places: of the methods that ran; empty without the program, as is planned, the bytes in
    the file by owner.
    """

    measured: MeasuredMemory
    owners: tuple[OwnedBytes, ...]
    program: Program | None
    plans: Mapping[str, MemoryPlan]
    places: Mapping[str, Sequence[Attribution]]
    planned: Mapping[str, int]

    @classmethod
    def of(cls, measured: MeasuredMemory, export: Export) -> _RunMemory:
        program, plans = export.program, memory_plans(export)
        names = [name for name in measured.methods if name in plans]
        plans = {name: plans[name] for name in names}
        places = {name: export.edge_nodes(name).attributions() for name in names}
        planned: dict[str, int] = {}
        if program is not None:
            stored = stored_tensors(program)
            constants = {
                one.span for one in stored if one.value is not None and one.kind == WEIGHTS
            }
            header, whole = program.header, len(program.source.buffer)
            planned = {
                _COUNTED["program"]: whole if header is None else header.program_size,
                _COUNTED["constants"]: sum(span.size for span in constants),
                _COUNTED["planned"]: sum(plan.planned_bytes for plan in plans.values()),
                _DELEGATES: sum(sum(_delegate_bytes(program, name).values()) for name in names),
            }
        return cls(measured, memory_owners(measured, planned), program, plans, places, planned)

    def calls(self, method: str) -> dict[int, int]:
        """The first instruction that calls each delegate of a method."""
        return {} if self.program is None else _delegate_calls(self.program.method(method))

    def place(self, method: str, instruction: int | None) -> tuple[str | None, str | None]:
        """The module and the line of an instruction, where they are known."""
        places = self.places.get(method, ())
        if instruction is None or not 0 <= instruction < len(places):
            return None, None
        return places[instruction].module, places[instruction].source

    def label(self, method: str, instruction: int) -> str | None:
        labels = self.plans[method].labels if method in self.plans else ()
        return labels[instruction] if 0 <= instruction < len(labels) else None

    # -- sections

    def phases(self) -> Section:
        """A section with one row for each phase of the run."""
        start = self.measured.phases[0].rss
        return rows(
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
                for phase in self.measured.phases
            ],
        )

    def delegates(self) -> Section:
        """A section with one row for each delegate, the largest first."""
        content = []
        for method in self.measured.methods:
            mine = [one for one in self.measured.delegates if one.method == method]
            sizes = {} if self.program is None else _delegate_bytes(self.program, method)
            calls = self.calls(method)
            # The runtime makes delegates in program order; the runner misses those without a
            # segment.
            if len(mine) != len(sizes):
                sizes, calls = {}, {}
            content += [
                (
                    method,
                    number,
                    one.backend,
                    calls.get(number),
                    *self.place(method, calls.get(number)),
                    sizes.get(number),
                    one.growth,
                    one.peak_rss,
                )
                for number, one in enumerate(mine)
            ]
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

    def instructions(self) -> Section:
        """A section with one row for each instruction that took memory."""
        content = [
            (
                one.method,
                one.instruction,
                self.label(one.method, one.instruction),
                *self.place(one.method, one.instruction if one.chain == 0 else None),
                one.first_growth,
                one.later_growth,
                one.temporary,
            )
            for one in self.measured.instructions
            if one.took
        ]
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

    def in_words(self) -> tuple[str, ...]:
        """Describe the memory that the process used, and how it differs from the memory plan."""
        start, end = _ends(self.measured)
        sizes = {one.owner: one.size or 0 for one in self.owners}
        growth = sum(sizes.values())
        if growth <= 0:
            return ("The process did not grow.",)

        def share(name: str) -> str:
            return f"{format_bytes(sizes.get(name, 0))} ({sizes.get(name, 0) / growth:.1%})"

        constants = _COUNTED["constants"]
        gaps = " Data that delegates read while they initialize leaves such gaps."
        by_owner = {
            _DELEGATES: self._of_delegates(share(_DELEGATES)),
            constants: "The runner copies the constants of kernels into memory: "
            f"{share(constants)}. An app that maps the file has them as file pages, which the "
            "system can drop.",
            _FREED: f"malloc keeps {share(_FREED)} of freed memory between blocks in use."
            f"{gaps if self.measured.delegates else ''}",
            _FILES: f"Code and data of the runtime's libraries are {share(_FILES)}: file pages, "
            "loaded on first use.",
            _EXECUTING: f"Executions took {share(_EXECUTING)} and kept it, for example as "
            "workspaces of delegates.",
        }
        said = [
            f"The process grew by {format_bytes(growth)}, from {format_bytes(start.rss or 0)} to "
            f"{format_bytes(end.rss or 0)}. Planned buffers are {share(_COUNTED['planned'])} of "
            "it.",
            *(
                text
                for name, text in by_owner.items()
                if sizes.get(name, 0) > _WORTH_SAYING * growth
            ),
        ]
        made = () if self.program is None else map(self.program.method, self.plans)
        unseen = sum(len(method.delegates) for method in made) - len(self.measured.delegates)
        if unseen > 0:
            said.append(
                f"{unseen:,} delegates have their data in the program's tables. The runner cannot "
                f"see their initialization: their memory is in '{_OTHERS}'."
            )
        said += [self._peak(), f"Unexplained: {share(UNEXPLAINED)}."]
        if end.malloc_used is None:
            said.append(
                "Memory handed out by malloc is unknown: the C library of this run does not "
                "report it."
            )
        return tuple(said)

    def _of_delegates(self, taken: str) -> str:
        backends = {one.backend or "an unknown backend" for one in self.measured.delegates}
        said = f"Delegates ({' and '.join(sorted(backends))}) made their own copies: {taken}"
        if self.program is None:
            return f"{said}."
        held = format_bytes(self.planned[_DELEGATES])
        kept = self.measured.phases[-1].counted
        data = kept.get("delegate_data", 0) + kept.get("named_data", 0)
        then = f"of which {format_bytes(data)} stay in memory, too" if data else "which were freed"
        return f"{said}. The copies are of {held} of data and weights in the program, {then}."

    def _peak(self) -> str:
        """Say what the process did at its peak."""
        known = [phase for phase in self.measured.phases if phase.peak is not None]
        if not known:
            return "The peak of each phase is unknown: the system does not let a process reset it."
        phase = max(known, key=lambda one: one.peak or 0)
        peak, end = phase.peak or 0, self.measured.phases[-1].rss or 0
        where, method = f"in phase '{phase.phase}'", phase.method or ""
        made = [one for one in self.measured.delegates if one.method == method and one.peak_rss]
        top = self.measured.peak_instruction(method) if phase.method is not None else None
        if phase.phase == "load" and made:
            number = max(range(len(made)), key=lambda number: made[number].peak_rss or 0)
            where = f"while delegate {number} ({made[number].backend}) was made"
            if (call := self.calls(method).get(number)) is not None:
                where += f", which instruction {call} calls"
        elif phase.phase == "first execution" and top is not None:
            label = self.label(method, top.instruction) if top.chain == 0 else None
            where = f"in the first execution at instruction {top.instruction}"
            where += "" if label is None else f" ({label})"
        more = f", {format_bytes(peak - end)} more than at the end" if peak > end else ""
        return f"The peak is {format_bytes(peak)}{more}: {where}."


def _delegate_calls(method: Method) -> dict[int, int]:
    """The first instruction that calls each delegate of a method."""
    found: dict[int, int] = {}
    for number, instruction in enumerate(method.instructions):
        if isinstance(instruction, DelegateCall):
            found.setdefault(instruction.delegate, number)
    return found


def _delegate_bytes(program: Program, method: str) -> dict[int, int]:
    """The bytes in the file of each delegate of a method: its data, and weights stored outside
    it."""
    found = program.method(method)
    spans = {number: {one.blob} for number, one in enumerate(found.delegates)}
    of_call = {call: number for number, call in _delegate_calls(found).items()}
    for tensor in stored_tensors(program):
        number = of_call.get(-1 if tensor.instruction is None else tensor.instruction)
        if tensor.method == method and tensor.value is None and number is not None:
            blob = found.delegates[number].blob
            if not blob.offset <= tensor.span.offset < blob.offset + blob.size:
                spans[number].add(tensor.span)
    return {number: sum(span.size for span in own) for number, own in spans.items()}


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
