"""Rules about memory, about the diagnosis of the logged values, and about missing files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from etscope.analysis.insights.facts import Facts, explained
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.profile import Row
from etscope.analysis.program.source_location import block_family
from etscope.errors import EtscopeError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.pte_schema import TensorValue
from etscope.model.finding import Finding, Place, Quantity, Remedy, Severity, Sureness
from etscope.units import format_bytes, format_share

# A summary of a run without its program needs none of these: each is imported where it is used.
if TYPE_CHECKING:
    from etscope.analysis.memory.file_parts import FilePart
    from etscope.analysis.memory.plan import MemoryPlan

LARGE_PLAN = 8 << 20  # bytes: less is not worth another export
SMALL_EXAMPLE = 0.25  # of the elements of the bound: a plan of four times the need
LARGEST_TENSOR_SHARE = 0.10  # of the peak: below, no tensor stands out
MODULE_WEIGHTS_SHARE = 0.10  # of the weights: below, no layer stands out
DUPLICATES_SHARE = 0.01  # of the constants: less is not worth a change
DUPLICATES_BYTES = 1024  # tiny constants are repeated everywhere
_COMMAND = ("info", "--memory")
_NAMED = "what backends ask for by name, such as their weights"


def memory(facts: Facts) -> Iterator[Finding]:
    """Report the largest part of the memory, the largest tensor at its peak, and data that is
    stored twice.
    """
    program, method = facts.program, facts.profile.method
    if program is None or method is None or method not in [one.name for one in program.methods]:
        yield Finding(
            "no-program",
            Severity.UNKNOWN,
            "Memory is unknown without the program.",
            method,
            command=("inspect", "-p", "PROGRAM"),
        )
        return
    sized = facts.sized
    if sized is None and facts.trace.record is not None:
        from etscope.analysis.memory.size import sized_program

        sized = sized_program(facts.trace.export, facts.trace.run_nodes)
    parts = [part for file in sized or () for part in file.parts]
    yield from memory_of(method, facts.trace.export, parts, facts.profile.rows)


def large_bounds(facts: Facts) -> Iterator[Finding]:
    """A plan for inputs that are much larger than the example input of the export. In methods with
    KV caches the bound is the context, which is wanted."""
    record, method = facts.trace.record, facts.profile.method
    if record is None or facts.program is None or method not in record.edge_methods:
        return
    from etscope.analysis.memory.plan import memory_plans

    export = facts.trace.export
    plan = memory_plans(export)[method]
    if plan.planned_bytes < LARGE_PLAN:
        return
    from etscope.analysis.memory.state import KV_CACHE, program_state

    if any(one.kind == KV_CACHE for one in program_state(export).methods.get(method, ())):
        return
    values, graph = facts.program.method(method), export.edge_nodes(method).symbols.graph
    inputs = () if graph is None else [n for n in graph.inputs if n not in graph.parameters]
    for index, name in zip(values.inputs, inputs, strict=False):
        tensor = values.values[index]
        spec = None if graph is None else graph.by_name[name].outputs[0].tensor
        if not isinstance(tensor, TensorValue) or spec is None or tensor.nbytes is None:
            continue
        hints = spec.hints or (None,) * len(spec.shape)
        example = [
            size if isinstance(size, int) else hint
            for size, hint in zip(spec.shape, hints, strict=True)
        ]
        known = [size for size in example if size is not None]
        if len(known) < len(example) or not math.prod(tensor.sizes):
            continue
        share = math.prod(known) / math.prod(tensor.sizes)
        if share > SMALL_EXAMPLE:
            continue
        sizes = "x".join(map(str, known))
        sentence = (
            f"The plan takes {format_bytes(plan.planned_bytes)} for an input of {tensor}; the "
            f"example input, {sizes}, has {format_share(share)} of its elements, and needs about "
            f"{format_bytes(round(plan.planned_bytes * share))}."
        )
        found = _of("large-bounds", plan, sentence, plan.planned_bytes, 0)
        evidence = "The runtime takes the planned memory when it loads the method, for all inputs."
        remedy = Remedy(
            "Lower the bounds of the dynamic sizes to the largest input of the application "
            "(`Dim(max=...)`), or export one method for each size."
        )
        explanation = explained(Sureness.MEASURED, [evidence], [remedy])
        yield replace(found, severity=Severity.COST, explanation=explanation)
        return


def memory_of(
    method: str, export: Export, parts: Sequence[FilePart] = (), rows: Sequence[Row] = ()
) -> Iterator[Finding]:
    """Yield findings on the memory of a method; the method need not have run.

    parts: the parts of the program and its .ptd files, with their modules if there is a record.
    rows: the rows of the method's runs, which give the place of each finding.
    """
    from etscope.analysis.memory.plan import memory_plans

    try:
        plan = memory_plans(export)[method]
        yield from filter(None, [_largest_part(plan), _largest_at_peak(plan, rows)])
        yield from filter(None, [_duplicates(export, plan, parts)])
        yield from _weights(plan, parts)
    except EtscopeError:  # a damaged plan: the memory views say where
        return


def _of(kind: str, plan: MemoryPlan, sentence: str, size: int, total: int) -> Finding:
    quantity = Quantity(float(size), "bytes", size / total if total else None)
    place = Place("memory")
    return Finding(kind, Severity.FACT, sentence, plan.method, quantity, place, _COMMAND)


def _largest_part(plan: MemoryPlan) -> Finding | None:
    """The largest of planned memory, weights, delegates' data and so on."""
    rows = plan.summary().rows()
    parts = [(str(name), int(size)) for name, size, _ in rows if size is not None and size > 0]
    if not parts:
        return None
    total = sum(size for _, size in parts)
    parts.sort(key=lambda part: -part[1])
    name, size = parts[0]
    name = f"{name} ({_NAMED})" if name.startswith("named data") else name
    others = ", ".join(f"{other} {format_bytes(bytes_)}" for other, bytes_ in parts[1:4])
    sentence = f"What takes most memory is {name}: {format_bytes(size)}"
    if others:
        # `needs.program_memory` adds an estimate of them to its total.
        without = " without delegates' packed copies" if "delegates' data" in dict(parts) else ""
        sentence += f" ({format_share(size / total)}) of {format_bytes(total)}{without}; {others}"
    return _of("memory", plan, sentence + ".", size, total)


def _largest_at_peak(plan: MemoryPlan, rows: Sequence[Row]) -> Finding | None:
    """The largest tensor that is alive when most planned memory is."""
    at = next(iter(plan.peak_instructions), None)
    value = None if at is None else next(iter(plan.live_at(at)), None)
    if at is None or value is None or not plan.peak_bytes:
        return None
    if value.nbytes < LARGEST_TENSOR_SHARE * plan.peak_bytes:
        return None
    made = "an input" if value.role == "input" else value.role
    if value.op is not None:
        made = f"made by {value.op} (instruction {value.first})"
        for row in rows:
            if row.depth == 0 and row.instruction_id == value.first:
                module, source = row.attribution.module, row.attribution.source
                made += f", in {module}" if module else ""
                made += f", at {source}" if source else ""
                break
    sentence = (
        f"Planned memory has its peak, {format_bytes(plan.peak_bytes)}, at instruction {at} "
        f"({plan.labels[at]}): the largest tensor there is {value.tensor}, "
        f"{format_bytes(value.nbytes)}, {made}."
    )
    return _of("largest-tensor", plan, sentence, value.nbytes, plan.peak_bytes)


def _weights(plan: MemoryPlan, parts: Sequence[FilePart]) -> Iterator[Finding]:
    """Yield the module with most bytes of weights: repeated blocks count as one. parts: of the
    program's file and its .ptd files."""
    from etscope.analysis.memory.stored import WEIGHTS

    weights = [part for part in parts if part.kind == WEIGHTS]
    families: dict[str, dict[str, int]] = {}
    for part in weights:
        if part.module is not None:
            sizes = families.setdefault(block_family(part.module), {})
            sizes[part.module] = sizes.get(part.module, 0) + part.size
    if not families:
        return
    name, sizes = max(families.items(), key=lambda item: sum(item[1].values()))
    most, whole = sum(sizes.values()), sum(part.size for part in weights)
    if most < MODULE_WEIGHTS_SHARE * whole:
        return
    name = f"{name} ({len(sizes)} modules)" if len(sizes) > 1 else next(iter(sizes)) or "(root)"
    sentence = (
        f"The layer with most weights is {name}: {format_bytes(most)} "
        f"({format_share(most / whole)}) of {format_bytes(whole)}."
    )
    yield replace(
        _of("weights", plan, sentence, most, whole), command=("info", "--size", "--by", "module")
    )


def _duplicates(export: Export, plan: MemoryPlan, parts: Sequence[FilePart]) -> Finding | None:
    """Weights of the same bytes that the file holds more than once. Parts of .ptd files are left
    out."""
    from etscope.analysis.memory.file_parts import equal_content
    from etscope.analysis.memory.size import why_repeated
    from etscope.analysis.memory.stored import WEIGHTS

    program = export.needed_program
    weights = [] if export.data else [part for part in parts if part.kind == WEIGHTS]
    spans: dict[Span, FilePart | None] = {
        Span(part.offset, part.size): part for part in weights if part.offset is not None
    }
    for tensor in program.method(plan.method).values:
        if isinstance(tensor, TensorValue) and tensor.is_constant and tensor.has_data:
            spans.setdefault(program.constant_span(tensor), None)
    large = [span for span in spans if span.size >= DUPLICATES_BYTES]
    groups, uncertain = equal_content([program.blob(span) for span in large])
    copies = sum(len(group) - 1 for group in groups)
    wasted = sum((len(group) - 1) * large[group[0]].size for group in groups)
    total = sum(span.size for span in spans)
    if wasted < DUPLICATES_SHARE * total or not wasted:
        return None
    noun = "constant is" if copies == 1 else "constants are"
    sentence = (
        f"{copies:,} {noun} stored again with the same bytes: {format_bytes(wasted)} of "
        f"{format_bytes(total)} of weights."
    )
    if uncertain:
        sentence += f" {format_bytes(uncertain)} of them were compared at 16 places of each only."
    for group in groups:
        alike = [part for index in group if (part := spans[large[index]]) is not None]
        if why := why_repeated(alike):
            sentence += why
            break
    found = _of("duplicate-constants", plan, sentence, wasted, total)
    return replace(found, severity=Severity.COST)


def values(facts: Facts) -> Iterator[Finding]:
    """The diagnosis of the logged values: is an operator wrong?"""
    numerics, method = facts.numerics, facts.profile.method
    if numerics is None or numerics.method != method:
        sentence = "Whether an operator is wrong was not looked at: compare the logged values."
        command: tuple[str, ...] = ("numerics",)
        if not facts.has_values:
            sentence = "Whether an operator is wrong is not known: no values were logged."
            command = (facts.runner, "--debug-level", "intermediate_outputs", "--save", "ran")
        yield Finding("no-values", Severity.UNKNOWN, sentence, method, command=command)
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


def files(facts: Facts) -> Iterator[Finding]:
    """Times and places that are unknown without a file, or doubtful because values were logged."""
    if facts.trace.record is None:
        yield Finding(
            "no-record",
            Severity.UNKNOWN,
            "Modules and lines of Python are unknown without the ETRecord.",
            facts.profile.method,
            command=("inspect", "-r", "ETRECORD"),
        )
    if facts.profile.traced:
        yield Finding(
            "traced",
            Severity.PROBLEM,
            "Values were logged in these runs, which makes their times longer.",
            facts.profile.method,
            command=(facts.runner,),
        )
