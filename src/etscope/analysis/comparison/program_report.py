"""The differences of two programs as a report: sentences first, then a section for each subject.

Sections have the rows that differ; empty sections are excluded. "size" has all owners, so that its
columns sum to the sizes of the files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etscope.analysis.comparison.program_weights import (
    WeightChange,
    compare_by_name,
    external_weights,
    same_bytes,
)
from etscope.analysis.comparison.programs import (
    NAMES_SHOWN,
    ProgramDiff,
    SizeChange,
    change_status,
    size_changes,
)
from etscope.analysis.memory.file_parts import external_parts
from etscope.analysis.numerics.values import QuantizedRange, quantized_range
from etscope.analysis.program.program import registered_by
from etscope.analysis.program.source_location import lines_of, module_path, short_lines
from etscope.formats.program.ptd import ExternalData
from etscope.model.common_subsequence import matched_in_turn, with_gaps
from etscope.model.graph import Graph, SourceLine, stem
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind, Table
from etscope.units import format_bytes, format_change, format_float, listed

SCHEMA = "etscope.program_diff/1"
EXTERNAL_SCHEMA = "etscope.external_diff/1"

# Columns of most sections.
_METHOD, _STATUS = Column("method"), Column("status")


def _both(
    name: str = "", kind: Kind = Kind.TEXT, title: str | None = None, priority: int = 0
) -> Iterator[Column]:
    """Yield a column for each side."""
    for side in ("before", "after"):
        full = f"{name}_{side}" if name else side
        yield Column(full, kind, title=title and f"{title} {side}", priority=priority)


def program_diff_report(diff: ProgramDiff) -> Report:
    """Build the report. `about` has "before", "after" and "result": "identical" or "different"."""
    about = {
        "before": diff.before.name,
        "after": diff.after.name,
        "result": "identical" if diff.identical else "different",
    }
    if diff.identical:
        text = f"{diff.after.name} is identical to {diff.before.name}: {diff.after.size:,} bytes."
        return Report(about, (), (text,))
    content = _Content(diff)
    found = (
        *content.interface(),
        content.size(),
        weights_section(diff.weights),
        *content.instructions(),
        content.delegates(),
        content.ranges(),
        *content.memory(),
        rows(
            "program",
            "The program as a whole",
            (Column("what"), *_both()),
            [(one.what, one.before, one.after) for one in diff.facts],
        ),
    )
    sections = tuple(section for section in found if len(section.table))
    has_external = any(side.data for side in diff.sides)
    name = f"{diff.after.name} with .ptd files" if has_external else diff.after.name
    sentences = [
        *content.requirements(),
        size_sentence(name, diff.before.size, diff.after.size, diff.sizes),
        *weight_sentences(diff.weights),
        *content.work(),
    ]
    if not diff.differs:
        sentences.append(
            "Kernels, instructions, weights, delegates and memory are the same: the files "
            "differ in layout, or in content that is not compared."
        )
    return Report(about, sections, tuple(sentences))


def external_diff_report(
    names: tuple[str, str], before: ExternalData, after: ExternalData
) -> Report:
    """Build the report of two .ptd files; `about` as in `program_diff_report`."""
    about = dict(zip(("before", "after"), names, strict=True))
    sizes = before.source.size, after.source.size
    if same_bytes(before.source.buffer, after.source.buffer):
        text = f"{names[1]} is identical to {names[0]}: {sizes[1]:,} bytes."
        return Report({**about, "result": "identical"}, (), (text,))
    weights = compare_by_name(external_weights(before), external_weights(after))
    changes = size_changes([external_parts(data, ()) for data in (before, after)], lambda _: None)
    sentences = [size_sentence(names[1], *sizes, changes), *weight_sentences(weights)]
    if all(change.status == "unchanged" for change in weights):
        sentences.append(
            "All keys have the same data: the files differ in layout, or in bytes without a key."
        )
    note = f"The rows sum to the files' bytes: {sizes[0]:,} → {sizes[1]:,}."
    sections = (
        size_section(SizeChange("file", None, *sizes, ((), ())), changes, (note,)),
        weights_section(weights),
    )
    shown = tuple(section for section in sections if len(section.table))
    return Report({**about, "result": "different"}, shown, tuple(sentences))


# -- sentences, breaking changes first


def size_sentence(name: str, before: int, after: int, sizes: Sequence[SizeChange]) -> str:
    """Return a sentence on the difference in bytes. name: the later side's name. sizes: the change
    of each owner of bytes.
    """
    change = after - before
    kinds: Counter[str] = Counter()
    for one in sizes:
        kinds[one.kind] += one.change
    parts = [
        f"{kind} {'+' if size > 0 else ''}{format_bytes(size)}"
        for kind, size in sorted(kinds.items(), key=lambda item: -abs(item[1]))
        if size
    ][:NAMES_SHOWN]
    if not change:
        return f"The files have the same size, {after:,} bytes" + (
            f" ({', '.join(parts)})." if parts else "."
        )
    return (
        f"{name} is {format_bytes(abs(change))} {'larger' if change > 0 else 'smaller'} "
        f"({before:,} → {after:,} bytes, {change / before:+.1%}): {', '.join(parts)}."
    )


def weight_sentences(weights: Sequence[WeightChange]) -> Iterator[str]:
    retyped: dict[tuple[str, str], list[WeightChange]] = {}
    for change in weights:
        if change.before is not None and change.after is not None:
            dtypes = change.before.tensor.dtype, change.after.tensor.dtype
            if dtypes[0] != dtypes[1]:
                retyped.setdefault(dtypes, []).append(change)
    for (one, other), changes in retyped.items():
        largest = sorted(changes, key=_bytes, reverse=True)
        places = list(dict.fromkeys(change.shown.place for change in largest))
        yield (
            f"{_count(len(changes), 'weight', 'weights')} went from {one} to {other}: "
            f"{listed(places, NAMES_SHOWN)}."
        )
    for what in ("weights", "scales"):
        counts = Counter[str](
            change.status
            for change in weights
            if (change.shown.tensor.label == "scales") == (what == "scales")
        )
        if set(counts) - {"unchanged"}:
            statuses = ("unchanged", "reordered", "moved", "changed", "added", "removed")
            parts = (f"{counts[one]:,} {one}" for one in statuses if counts[one])
            yield f"{what.capitalize()}: {', '.join(parts)}."
    ratios = [(one.sqnr, one.shown.place) for one in weights if one.sqnr is not None]
    if ratios:
        least, place = min(ratios)
        yield (
            f"{_count(len(ratios), 'weight is', 'weights are')} quantized on one side: SQNR "
            f"at least {least:.1f} dB ({place})."
        )
    unknown = sum(change.is_quantized and change.sqnr is None for change in weights)
    if unknown:
        yield (
            f"{_count(unknown, 'weight has', 'weights have')} integers with an unknown scale "
            "on one side: not compared with the floats."
        )
    compared = [change for change in weights if change.largest]
    if compared:
        worst = max(compared, key=lambda change: change.relative or 0.0)
        relative = "" if worst.relative is None else f", relative error {worst.relative:.2%}"
        elements = worst.shown.elements
        total = 0 if elements is None else len(elements)
        yield (
            f"{worst.shown.place} changed most: {worst.differing:,} of {total:,} values "
            f"differ, by at most {format_float(worst.largest)}{relative}."
        )


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _bytes(change: WeightChange) -> int:
    sides = [side for side in (change.before, change.after) if side is not None]
    return max(side.tensor.span.size for side in sides)


# -- sections


def size_section(
    whole: SizeChange, sizes: Sequence[SizeChange], notes: Sequence[str], owner: str | None = None
) -> Section:
    """Return the section "size": `whole`, then all owners. owner: the title of their column."""
    table = Table.of_rows(
        (
            Column("kind"),
            Column("owner", Kind.PATH, title=owner),
            Column("dtype", priority=1),
            *_both(kind=Kind.BYTES),
            Column("change", Kind.BYTES, title="difference"),
        ),
        [
            (one.kind, _owner(one.owner), one.dtype, one.before, one.after, one.change)
            for one in (whole, *sizes)
        ],
        title="Size by owner",
        notes=tuple(notes),
    )
    return Section("size", replace(table, breaks=frozenset({1})))


def _same(number: int) -> tuple[str, ...]:
    return (f"{_count(number, 'other is', 'others are')} the same.",) if number else ()


def _owner(owner: str | None) -> str | None:
    return "(root)" if owner == "" else owner


def weights_section(weights: Sequence[WeightChange]) -> Section:
    """Return the section "weights": the weights that differ, the largest first."""
    content = []
    for change in sorted(weights, key=lambda one: -_bytes(one)):
        if change.status == "unchanged":
            continue
        before, after = change.before, change.after
        content.append(
            (
                change.status,
                change.shown.place,
                before.place if before and after and before.place != change.shown.place else None,
                *(side and side.tensor.label for side in (before, after)),
                *(side and side.tensor.span.size for side in (before, after)),
                change.differing,
                change.largest,
                change.relative,
                change.sqnr_text,
            )
        )
    unchanged = len(weights) - len(content)
    return rows(
        "weights",
        "Weights by content",
        (
            _STATUS,
            Column("weight", Kind.PATH),
            Column("was", title="before at", priority=3),
            *_both(),
            *_both("bytes", Kind.BYTES, priority=4),
            Column("differing", Kind.COUNT, title="elements that differ", priority=2),
            Column("largest", Kind.FLOAT, title="largest difference", priority=1),
            Column("relative", Kind.FLOAT, title="relative error", priority=1),
            Column("quantized", priority=1),
        ),
        content,
        _same(unchanged),
    )


@dataclass(frozen=True, slots=True)
class RangeOfValue:
    """The range of a value with a fixed scale.

    node, op, module, lines: these describe the operator that computes the value; for an input of
    the program, node is the input's name.
    """

    node: str
    op: str
    module: str | None
    lines: tuple[SourceLine, ...]
    range: QuantizedRange


def quantized_ranges(graph: Graph) -> Iterator[RangeOfValue]:
    """Yield the values of an edge graph with a fixed scale, each once, in order of execution."""
    seen = set()
    for path, node in graph.own_operators.items():
        if not stem(node.op).startswith("quantize_per_") or not node.inputs:
            continue
        source = graph.by_name.get(node.inputs[0])
        found = quantized_range(graph, path)
        if source is None or found is None or found.scale is None:
            continue
        key = source.name, found.scale, found.zero_point
        if key in seen:
            continue
        seen.add(key)
        is_input = source.kind == "placeholder"
        yield RangeOfValue(
            source.name,
            "input" if is_input else stem(source.op),
            None if is_input else module_path(source),
            () if is_input else lines_of([source]),
            # The quantized number, not the integer codes of the operator.
            replace(found, codes=False),
        )


@dataclass(frozen=True, slots=True)
class _Content:
    """The sentences and the sections of a comparison."""

    diff: ProgramDiff

    def requirements(self) -> Iterator[str]:
        """Yield new requirements of the later program on an app, and changes for its callers."""
        before, after = self.diff.sides
        new = sorted(after.kernels - before.kernels)
        if new:
            yield (
                f"The app must register {_count(len(new), 'new kernel', 'new kernels')}: "
                f"{', '.join(new)}."
            )
        backends = sorted(after.backends - before.backends)
        if backends:
            needed = listed(backends, NAMES_SHOWN)
            yield f"The app must link {needed}, which {before.name} does not need."
        external = sorted(after.external - before.external)
        if external:
            yield f"{_count(len(external), 'weight is', 'weights are')} in a .ptd file now."
        gone = sorted(before.kernels - after.kernels)
        if gone:
            count = _count(len(gone), "kernel is", "kernels are")
            yield f"{count} no longer needed: {listed(gone, NAMES_SHOWN)}."
        backends = sorted(before.backends - after.backends)
        if backends:
            yield f"{listed(backends, NAMES_SHOWN)} is no longer needed."
        for what, names in (("gone", self.diff.removed_methods), ("new", self.diff.added_methods)):
            if names:
                methods = "Method" if len(names) == 1 else "Methods"
                yield f"{methods} {what}: {listed(names, NAMES_SHOWN)}."
        for change in self.diff.signatures:
            one, other = change.before or "none", change.after or "none"
            yield f"{change.what.capitalize()} of {change.method}: {one} → {other}."

    def work(self) -> Iterator[str]:
        """Yield sentences on instructions, delegates and memory."""
        for name in self.diff.shared:
            ran = Counter[str](one.status for one in self.diff.instructions if one.method == name)
            if set(ran) - {"same"}:
                statuses = ("same", "changed", "moved", "added", "removed")
                counts = (f"{ran[one]:,} {one}" for one in statuses if ran[one])
                yield f"Instructions of {name}: {', '.join(counts)}."
        numbers = [
            sum(len(method.delegates) for method in side.program.methods)
            for side in self.diff.sides
        ]
        changed = [one for one in self.diff.delegates if one.status == "changed"]
        if numbers[0] != numbers[1]:
            yield f"{_count(numbers[1], 'delegate', 'delegates')} instead of {numbers[0]}."
        elif changed:
            yield f"{_count(len(changed), 'delegate has', 'delegates have')} other data."
        for name in self.diff.shared:
            one, other = (side.plans[name].planned_bytes for side in self.diff.sides)
            if one != other:
                size, share = f"{other - one:+,} bytes", format_change(one, other)
                yield (
                    f"Planned memory of {name}: {format_bytes(one)} → {format_bytes(other)} "
                    f"({size if share == size else f'{size}, {share}'})."
                )

    def interface(self) -> Iterator[Section]:
        """Yield the kernels and backends that an app must register and link, then the methods with
        their signatures.
        """
        before, after = self.diff.sides
        yield rows(
            "kernels",
            "Kernels and backends that an app needs",
            (_STATUS, Column("kind"), Column("name"), Column("library", title="registered by")),
            [
                (status, kind, name, registered_by(name) if kind == "kernel" else None)
                for kind, one, other in (
                    ("kernel", before.kernels, after.kernels),
                    ("backend", before.backends, after.backends),
                )
                for status, names in (("added", other - one), ("removed", one - other))
                for name in sorted(names)
            ],
        )
        methods: list[tuple[str, str | None, str | None]] = [
            *(("removed", name, None) for name in self.diff.removed_methods),
            *(("added", None, name) for name in self.diff.added_methods),
        ]
        yield rows(
            "signatures",
            "Methods, inputs and outputs",
            (_METHOD, Column("what"), *_both()),
            [
                *((one or other, f"method {status}", one, other) for status, one, other in methods),
                *((one.method, one.what, one.before, one.after) for one in self.diff.signatures),
            ],
        )

    def size(self) -> Section:
        before, after = (side.size for side in self.diff.sides)
        has_external = any(side.data for side in self.diff.sides)
        files = "bytes of programs and .ptd files" if has_external else "files' bytes"
        notes = [f"The rows sum to the {files}: {before:,} → {after:,}."]
        for side in self.diff.sides:
            if side.external and not side.data:
                count = _count(len(side.external), "weight", "weights")
                notes.append(f"Not counted: {count} of {side.name} in a .ptd file (--data).")
        whole = SizeChange("files" if has_external else "file", None, before, after, ((), ()))
        return size_section(
            whole, self.diff.sizes, notes, "module" if self.diff.has_modules else None
        )

    def instructions(self) -> Iterator[Section]:
        """Yield the operators by their number, then the instructions one by one."""
        yield rows(
            "operators",
            "Operators by number of calls",
            (
                _METHOD,
                _STATUS,
                Column("operator"),
                Column("inside"),
                *_both(kind=Kind.COUNT),
            ),
            [
                (one.method, one.status, one.operator, one.inside, one.before, one.after)
                for one in self.diff.operators
                if one.status != "same"
            ],
        )
        found = [one for one in self.diff.instructions if one.status != "same"]
        content = [
            (
                one.method,
                one.status,
                None if one.before is None else one.before.instruction_id,
                None if one.after is None else one.after.instruction_id,
                one.shown.label,
                _owner(one.module),
                one.source,
                "; ".join(one.what) or None,
            )
            for one in found
        ]
        yield rows(
            "instructions",
            "Instructions",
            (
                _METHOD,
                _STATUS,
                *_both(kind=Kind.INT, title="#"),
                Column("op"),
                Column("module", Kind.PATH, priority=1),
                Column("source", Kind.PATH, priority=2),
                Column("what"),
            ),
            content,
            _same(len(self.diff.instructions) - len(found)),
        )

    def delegates(self) -> Section:
        content = []
        for change in self.diff.delegates:
            if change.status == "same":
                continue
            sides = change.before, change.after
            was, now = (
                {} if one is None else {spec.key: spec.text for spec in one.options}
                for one in sides
            )
            before, after = (Counter[str]() if one is None else one.operators for one in sides)
            content.append(
                (
                    change.method,
                    change.status,
                    *change.numbers,
                    next(one.backend_id for one in sides[::-1] if one is not None),
                    *(None if one is None else one.size for one in sides),
                    [
                        f"{key}: {was.get(key, 'none')} → {now.get(key, 'none')}"
                        for key in {**was, **now}
                        if was.get(key) != now.get(key)
                    ],
                    [
                        f"{key} {after[key] - before[key]:+}"
                        for key in sorted({*before, *after})
                        if before[key] != after[key]
                    ],
                )
            )
        return rows(
            "delegates",
            "Delegates",
            (
                _METHOD,
                _STATUS,
                *_both(kind=Kind.INT, title="#"),
                Column("backend"),
                *_both("bytes", Kind.BYTES),
                Column("options", Kind.LIST, title="options that differ"),
                Column("operators", Kind.LIST, title="operators that differ", priority=1),
            ),
            content,
            _same(len(self.diff.delegates) - len(content)),
        )

    def ranges(self) -> Section:
        """Show the ranges of quantized values that differ, by how much the scale changed."""
        content: list[tuple[float, tuple[Any, ...]]] = []
        same = 0
        for method, before, after in self.range_pairs():
            shown = after or before
            assert shown is not None
            sides = [None if one is None else one.range for one in (before, after)]
            keys = [one and (one.scale, one.zero_point, one.quant_min) for one in sides]
            if keys[0] == keys[1]:
                same += 1
                continue
            ratio = None
            if sides[0] is not None and sides[1] is not None and sides[0].scale:
                ratio = (sides[1].scale or 0.0) / sides[0].scale
            factor = abs(math.log(ratio)) if ratio else math.inf
            row = (
                method,
                change_status(before is not None, after is not None, same=False),
                shown.op,
                shown.node,
                *(None if one is None else one.scale for one in sides),
                ratio,
                *(None if one is None else one.zero_point for one in sides),
                *(None if one is None else one.low for one in sides),
                *(None if one is None else one.high for one in sides),
                shown.module,
                short_lines(shown.lines) or None,
            )
            content.append((factor, row))
        content.sort(key=lambda one: -one[0])
        return rows(
            "quantization",
            "Scales and ranges of quantized values",
            (
                replace(_METHOD, priority=3),
                _STATUS,
                Column("op"),
                Column("node", priority=3),
                *_both("scale", Kind.FLOAT),
                Column("ratio", Kind.FLOAT),
                *_both("zero_point", Kind.INT, priority=1),
                *_both("low", Kind.FLOAT, priority=2),
                *_both("high", Kind.FLOAT, priority=2),
                Column("module", Kind.PATH, priority=1),
                Column("source", Kind.PATH),
            ),
            [row for _, row in content],
            notes=_same(same),
        )

    def memory(self) -> Iterator[Section]:
        """Yield the buffers, then the tensors alive only at the peak of one side."""
        content: list[Sequence[object]] = []
        for name in self.diff.shared:
            arenas = [{a.memory_id: a for a in side.plans[name].arenas} for side in self.diff.sides]
            for number in sorted({**arenas[0], **arenas[1]}):
                before, after = (side.get(number) for side in arenas)
                if before == after:
                    continue
                one, other = (0 if arena is None else arena.size for arena in (before, after))
                peaks = (0 if arena is None else arena.peak_bytes for arena in (before, after))
                device = next(arena.device for arena in (after, before) if arena is not None)
                content.append((name, f"{number} ({device})", one, other, other - one, *peaks))
        yield rows(
            "memory",
            "Planned memory by buffer",
            (
                _METHOD,
                Column("memory"),
                *_both(kind=Kind.BYTES),
                Column("change", Kind.BYTES, title="difference"),
                *_both("peak", Kind.BYTES, "alive at peak", priority=1),
            ),
            content,
        )
        content = []
        for name in self.diff.shared:
            plans = [side.plans[name] for side in self.diff.sides]
            if plans[0].arenas == plans[1].arenas:
                continue
            alive = [
                Counter(side.alive_at_peak(name, with_modules=self.diff.has_modules))
                for side in self.diff.sides
            ]
            for key in sorted({**alive[0], **alive[1]}, key=lambda key: (-key[-1], key[:-1])):
                one, other = alive[0][key], alive[1][key]
                if one != other and key[-1]:
                    content.append(
                        (name, *(text or None for text in key[:-1]), key[-1], one, other)
                    )
        yield rows(
            "memory_tensors",
            "Tensors alive at the peak of one side only",
            (
                _METHOD,
                Column("tensor"),
                Column("role", priority=2),
                Column("op", title="made by"),
                Column("module", Kind.PATH, priority=1),
                Column("size", Kind.BYTES),
                *_both(kind=Kind.COUNT),
            ),
            content,
            ("Tensors that share place and time, such as views, each have their whole size.",),
        )

    def range_pairs(self) -> Iterator[tuple[str, RangeOfValue | None, RangeOfValue | None]]:
        """Yield each quantized value of both sides with its method, if both have records with
        quantized graphs; None on a side without quantization.
        """
        for method in self.diff.shared:
            graphs = [side.export.edge_nodes(method).symbols.graph for side in self.diff.sides]
            before, after = ([] if one is None else list(quantized_ranges(one)) for one in graphs)
            if not before or not after:
                continue
            turns: list[Callable[[RangeOfValue], Hashable]] = [
                lambda one: (one.op, one.module, one.node),
                lambda one: (one.op, one.module),
            ]
            for i, j in with_gaps(matched_in_turn(before, after, turns), len(before), len(after)):
                yield method, None if i is None else before[i], None if j is None else after[j]
