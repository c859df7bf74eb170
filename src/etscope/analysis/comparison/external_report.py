"""The differences of two .ptd files as a report: their data by key, and their sizes."""

from __future__ import annotations

from etscope.analysis.comparison.program_report import (
    size_section,
    size_sentence,
    weight_sentences,
    weights_section,
)
from etscope.analysis.comparison.program_weights import compare_by_name, external_weights
from etscope.analysis.comparison.programs import SizeChange, is_equal, size_changes
from etscope.analysis.memory.file_parts import external_parts
from etscope.formats.program.ptd import ExternalData
from etscope.model.report import Report

SCHEMA = "etscope.external_diff/1"
IDENTICAL, DIFFERENT = "identical", "different"


def external_diff_report(
    names: tuple[str, str], before: ExternalData, after: ExternalData
) -> Report:
    """Build the report of a comparison. `about` has "before", "after" and "result", which is
    `IDENTICAL` or `DIFFERENT`."""
    about = dict(zip(("before", "after"), names, strict=True))
    sizes = before.source.size, after.source.size
    if is_equal(before.source, after.source):
        text = f"{names[1]} is identical to {names[0]}: {sizes[1]:,} bytes."
        return Report({**about, "result": IDENTICAL}, (), (text,))
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
    return Report({**about, "result": DIFFERENT}, shown, tuple(sentences))
