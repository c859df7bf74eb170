"""Summarise a program (.pte), a bundled program (.bpte) or external tensors (.ptd)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from etscope.analysis.faults.faults import faults_section, told
from etscope.analysis.faults.state import state_notes
from etscope.analysis.memory.plan import memory_plans, peak_section, summary_section
from etscope.analysis.program.kernels import kernel_types
from etscope.analysis.program.program import registered_by
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.delegate_data import delegate_words, option_texts
from etscope.formats.program.pte import Program, program_fingerprint
from etscope.formats.program.pte_schema import (
    DelegateCall,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    Method,
    MoveCall,
    TensorValue,
)
from etscope.model.report import Section, facts, rows
from etscope.model.table import Column, Kind

if TYPE_CHECKING:
    from etscope.analysis.matching.export import Export
    from etscope.formats.etrecord.reader import RecordFile
    from etscope.formats.program.bpte import BundledFile, CaseValue
    from etscope.formats.program.ptd import ExternalData

_KINDS = {
    "kernels": KernelCall,
    "delegate_calls": DelegateCall,
    "moves": MoveCall,
    "jumps": JumpFalseCall,
    "frees": FreeCall,
}


def program_sections(export: Export) -> tuple[Section, ...]:
    """The sections "file", "faults", "methods", "signature", "operators", "delegates", "memory",
    "memory_peak", "named_data" and "external_keys" (with the sizes of its .ptd files); one without
    rows is left out."""
    program, plans = export.needed_program, memory_plans(export)
    named_data = rows(
        "named_data",
        "Named data, the largest first",
        (Column("key"), Column("bytes", Kind.BYTES)),
        sorted(
            ((entry.key, entry.blob.size) for entry in program.named_data),
            key=lambda row: -row[1],
        ),
    )
    found = (
        _facts(export),
        faults_section(export),
        *_methods(export),
        _operators(program),
        _delegates(program),
        summary_section(plans, tuple(map(told, state_notes(export)))),
        peak_section(plans),
        named_data,
        _external_keys(export),
    )
    return tuple(section for section in found if len(section.table))


def bundled_sections(
    bundle: BundledFile, data: Sequence[ExternalData] = (), record: RecordFile | None = None
) -> tuple[Section, ...]:
    """The sections "file" and "cases" of the bundle, then the sections of its program, with the
    prefix "program_" ("program_methods"). data: the program's .ptd files. record: of the program.
    """
    from etscope.analysis.matching.export import Export

    program = bundle.program_span.size
    head = facts(
        "file",
        f"{bundle.source.name}: bundled program",
        (
            (Column("size", Kind.BYTES), bundle.source.size),
            (Column("version", Kind.INT), bundle.version),
            (Column("methods", Kind.LIST), [suite.method for suite in bundle.suites]),
            (Column("cases", Kind.COUNT), sum(len(suite.cases) for suite in bundle.suites)),
            (Column("program_size", Kind.BYTES), program),
        ),
    )
    cases = rows(
        "cases",
        "Test cases",
        (
            Column("method"),
            Column("case", Kind.INT),
            Column("inputs", Kind.LIST),
            Column("expected_outputs", Kind.LIST),
        ),
        [
            (
                suite.method,
                number,
                [_value_text(value) for value in case.inputs],
                [_value_text(value) for value in case.expected_outputs],
            )
            for suite in bundle.suites
            for number, case in enumerate(suite.cases)
        ],
    )
    sections = [head, cases]
    if program:
        sections += [
            replace(section, name="program" if section.is_facts else f"program_{section.name}")
            for section in program_sections(Export(bundle.program(), record, tuple(data)))
        ]
    return tuple(section for section in sections if len(section.table))


def external_sections(data: ExternalData, programs: Sequence[Program] = ()) -> tuple[Section, ...]:
    """The sections "file" and "external_data" (the entries, the largest first). programs: the
    possible readers of its keys."""
    from etscope.formats.program.ptd import external_readers

    entries = sorted(data.entries.values(), key=lambda entry: -entry.blob.size)
    asked: dict[str, list[str]] = {}
    for program in programs:
        for key, readers in external_readers(program).items():
            asked.setdefault(key, []).extend(readers)
    head = facts(
        "file",
        f"{data.source.name}: external tensors of a program",
        (
            (Column("size", Kind.BYTES), data.source.size),
            (Column("version", Kind.INT), data.version),
            (Column("keys", Kind.COUNT), len(entries)),
            (Column("data", Kind.BYTES), _span_bytes(entry.blob for entry in entries)),
        ),
    )
    listed = rows(
        "external_data",
        "External data, the largest first",
        (Column("key"), Column("tensor"), Column("bytes", Kind.BYTES), _ASKED_BY),
        [
            (entry.key, str(entry) or None, entry.blob.size, asked.get(entry.key))
            for entry in entries
        ],
    )
    return tuple(section for section in (head, listed) if len(section.table))


_ASKED_BY = Column("asked_by", Kind.LIST, title="asked for by", priority=1)


def _external_keys(export: Export) -> Section:
    """A section with one row for each known key that a program reads."""
    program = export.needed_program
    tensors = {
        value.name: value
        for method in program.methods
        for value in method.values
        if isinstance(value, TensorValue) and value.external
    }
    readers_of: Mapping[str, Sequence[str]] = {}
    if tensors or export.data:  # else the keys of XNNPACK are not worth reading all its data
        from etscope.formats.program.ptd import external_readers

        readers_of = external_readers(program)
    content = []
    for key, readers in readers_of.items():
        file = next((one for one in export.data if key in one.entries), None)
        tensor = tensors.get(key)
        size = None if tensor is None else tensor.nbytes
        if file is not None:
            size = file.entries[key].blob.size
        shown = None if tensor is None else str(tensor)
        content.append(
            (key, shown, size, list(readers), None if file is None else file.source.name)
        )
    return rows(
        "external_keys",
        "Data that the program asks for in .ptd files, the largest first",
        (
            Column("key"),
            Column("tensor"),
            Column("bytes", Kind.BYTES),
            _ASKED_BY,
            Column("file", Kind.PATH, title="found in"),
        ),
        sorted(content, key=lambda row: -(row[2] or 0)),
    )


def _facts(export: Export) -> Section:
    program = export.needed_program
    traced = any(chain.traces_at for method in program.methods for chain in method.chains)
    delegates = (entry.blob for method in program.methods for entry in method.delegates)
    # Weights and initial states in the file, which methods may share.
    weights = {
        (tensor.is_constant, tensor.mutable_segment, tensor.data_index): tensor.nbytes or 0
        for method in program.methods
        for tensor in method.values
        if isinstance(tensor, TensorValue) and tensor.has_data
    }
    return facts(
        "file",
        f"{program.source.name}: ExecuTorch program",
        (
            (Column("size", Kind.BYTES), program.source.size),
            (Column("version", Kind.INT), program.version),
            (Column("methods", Kind.LIST), [method.name for method in program.methods]),
            (Column("segments", Kind.COUNT), len(program.segments)),
            (Column("weights", Kind.BYTES), sum(weights.values())),
            (Column("delegate_data", Kind.BYTES), _span_bytes(delegates)),
            (Column("named_data", Kind.BYTES), _span_bytes(e.blob for e in program.named_data)),
            (
                Column("largest_plan", Kind.BYTES, title="largest memory plan"),
                max((plan.planned_bytes for plan in memory_plans(export).values()), default=0),
            ),
            (Column("stack_traces", Kind.BOOL, title="holds stack traces"), traced),
            (Column("sha256"), program_fingerprint(program.source.buffer)),
        ),
    )


def _span_bytes(spans: Iterable[Span]) -> int:
    return sum({span.offset: span.size for span in spans}.values())


def _methods(export: Export) -> Iterator[Section]:
    """Yield the methods, then their inputs and outputs."""
    program, plans = export.needed_program, memory_plans(export)

    def counts(method: Method) -> Sequence[Any]:
        kinds = Counter(type(instruction) for instruction in method.instructions)
        return (
            method.name,
            len(method.instructions),
            *(kinds[kind] for kind in _KINDS.values()),
            len(method.values),
            plans[method.name].planned_bytes,
            plans[method.name].peak_bytes,
        )

    yield rows(
        "methods",
        "Methods",
        (
            Column("method"),
            Column("instructions", Kind.COUNT),
            Column("kernels", Kind.COUNT),
            Column("delegate_calls", Kind.COUNT),
            *(Column(name, Kind.COUNT, priority=2) for name in ("moves", "jumps", "frees")),
            Column("values", Kind.COUNT, priority=3),
            Column("planned", Kind.BYTES, title="planned memory", priority=1),
            Column("peak", Kind.BYTES, title="of it alive at once", priority=1),
        ),
        map(counts, program.methods),
    )

    def typed(method: Method, role: str, position: int, index: int) -> Sequence[Any]:
        value = method.values[index]
        name = f"{role} {position}"
        if isinstance(value, TensorValue):
            return (method.name, name, str(value), value.nbytes)
        return (method.name, name, value.kind.value, None)

    yield rows(
        "signature",
        "Inputs and outputs",
        (Column("method"), Column("value"), Column("type"), Column("bytes", Kind.BYTES)),
        [
            typed(method, role, position, index)
            for method in program.methods
            for role, indices in (("input", method.inputs), ("output", method.outputs))
            for position, index in enumerate(indices)
        ],
    )


def _operators(program: Program) -> Section:
    """Return the operators of each method, with the number of their calls."""
    kernels = Counter(
        (method.name, method.operators[instruction.operator].full_name)
        for method in program.methods
        for instruction in method.instructions
        if isinstance(instruction, KernelCall)
    )
    types = kernel_types(program)
    return rows(
        "operators",
        "Operators that the runtime must have",
        (
            Column("method"),
            Column("operator"),
            Column("calls", Kind.COUNT),
            Column("types", Kind.LIST, priority=2),
            Column("library", title="registered by", priority=1),
        ),
        [
            (method.name, name, count, list(types[method.name, name]), registered_by(name))
            for method in program.methods
            for (owner, name), count in kernels.most_common()
            if owner == method.name
        ],
    )


def _delegates(program: Program) -> Section:
    """Return the delegates of each method, with the number of their calls."""
    calls = Counter(
        (method.name, instruction.delegate)
        for method in program.methods
        for instruction in method.instructions
        if isinstance(instruction, DelegateCall)
    )
    return rows(
        "delegates",
        "Delegates",
        (
            Column("method"),
            Column("delegate", Kind.INT, title="#"),
            Column("backend"),
            Column("bytes", Kind.BYTES, title="data"),
            Column("calls", Kind.COUNT),
            Column("options", Kind.LIST),
            Column("content", Kind.LIST),
        ),
        [
            (
                method.name,
                number,
                delegate.backend_id,
                delegate.blob.size,
                calls[method.name, number],
                [
                    f"{name}={text}"
                    for spec in delegate.compile_specs
                    for name, text in option_texts(
                        delegate.backend_id, spec.key, spec.value
                    ).items()
                ],
                [
                    f"{name}={text}"
                    for name, text in delegate_words(
                        delegate.backend_id, program.blob(delegate.blob)
                    ).items()
                ],
            )
            for method in program.methods
            for number, delegate in enumerate(method.delegates)
        ],
    )


def _value_text(value: CaseValue) -> str:
    """ "float32[1, 8]", or the text of a number."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
