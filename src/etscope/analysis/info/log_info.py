"""Summarise logs without a dump: of an app that ran a language model, and files of other tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from etscope.backends.registry.tool_files import Basis, read_backend_file
from etscope.errors import FormatError
from etscope.formats.app_report import AppGeneration, AppReport, read_app_report
from etscope.model.report import Section, rows
from etscope.model.table import Column, Kind
from etscope.units import format_share

_LONG_SAMPLING = 0.1  # of a generation: choosing tokens takes a few % where the vocabulary is small
_SAME_RATE = 0.02  # the line has six digits, the stamps are whole milliseconds
# The end of a heading that numbers repetitions of one model.
_REPETITION = re.compile(r"[\s,:_-]*(?:rep|run|trial|iteration|#)?[\s_:-]*\d+$", re.IGNORECASE)


def app_log_sections(path: str) -> tuple[Section, ...]:
    """Return the generations of a language model with the times that its app measured, and the
    memory of its process. Raises the errors of `read_app_report`."""
    report = read_app_report(path)
    found = report.generations
    parts = ("load", "first_token", "prefill", "decode", "sampling", "model")
    loads = list(dict.fromkeys(one.loaded_at for one in found if one.loaded_at is not None))
    content = []
    for number, one in enumerate(found, 1):
        times = [getattr(one, f"{part}_ns") for part in parts]
        alone = AppReport((one,))
        content.append(
            (
                number,
                one.heading,
                loads.index(one.loaded_at) + 1 if len(loads) > 1 and one.loaded_at else None,
                one.prompt_tokens,
                one.generated_tokens,
                *(None if ns is None else ns / 1e6 for ns in times),
                alone.prefill_rate,
                alone.decode_rate if one.generated_tokens else None,
            )
        )
    columns = (
        Column("generation", Kind.INT),
        Column("heading"),
        Column("model_load", Kind.INT, title="load #"),
        Column("prompt_tokens", Kind.COUNT),
        Column("generated_tokens", Kind.COUNT),
        *(Column(part, Kind.DURATION, "ms") for part in parts[:-1]),
        Column("model_execution", Kind.DURATION, "ms"),
        Column("prefill_rate", Kind.FLOAT, "tokens/s"),
        Column("decode_rate", Kind.FLOAT, "tokens/s"),
    )
    memory = [
        (number, stage, size)
        for number, one in enumerate(found, 1)
        for stage, size in one.memory.items()
    ]
    notes = tuple(_notes(found, len(loads)))
    sections = (
        rows("generations", "Generations", columns, content, notes=notes),
        rows(
            "memory",
            "Memory",
            (Column("generation", Kind.INT), Column("of"), Column("size", Kind.BYTES)),
            memory,
        ),
    )
    return tuple(section for section in sections if len(section.table))


def _notes(found: Sequence[AppGeneration], loads: int) -> Iterator[str]:
    yield "By the app's clock, in whole milliseconds."
    headings = [one.heading and _REPETITION.sub("", one.heading) for one in found]
    names = list(dict.fromkeys(filter(None, headings)))
    if len(names) > 1:
        yield (
            f"The log has {loads:,} loads, and headings of {len(names):,} models "
            f"({', '.join(names[:6])}): compare the generations of one model only."
        )
    elif loads > 1:
        yield f"The log has {loads:,} loads of a model, maybe of several models."
    if not any(one.generated_tokens for one in found):
        yield "No generation goes on after its prompt: there is no decode to time."
    if any(not one.generated_tokens and "decode_token_per_sec" in one.claimed for one in found):
        yield "decode_token_per_sec is not a rate where nothing was generated after the prompt."
    if any(one.prefill_ns is not None and one.first_token_ns == one.prefill_ns for one in found):
        yield (
            "The first token comes with the prompt's evaluation: first_token_ms - "
            "prompt_eval_end_ms is 0, which is not the time to the first token."
        )
    for number, one in enumerate(found, 1):
        alone = AppReport((one,))
        for name, rate in (
            ("prefill_token_per_sec", alone.prefill_rate),
            ("decode_token_per_sec", alone.decode_rate),
        ):
            said = one.claimed.get(name)
            if said and rate and abs(said - rate) > _SAME_RATE * rate:
                yield f"Generation {number}: {name} is {said:g}, but {rate:.3g} by its times."
    sampling = sum(one.sampling_ns or 0 for one in found)
    inference = sum(one.inference_ns or 0 for one in found)
    decode = sum(one.decode_ns or 0 for one in found)
    if sampling > _LONG_SAMPLING * inference:
        of_decode = f" ({format_share(sampling / decode)} of decode)" if decode > sampling else ""
        size = next((one.vocabulary for one in found if one.vocabulary), None)
        whole = "the whole vocabulary" if size is None else f"a vocabulary of {size:,} tokens"
        yield (
            f"Choosing tokens takes {format_share(sampling / inference)} of the inference"
            f"{of_decode}, outside of the program: one core goes over {whole} for each token."
        )


def tool_file_section(path: str) -> Section | None:
    """Return the rows of a board's log or of a file of a vendor's tool; None for another file."""
    try:
        file = read_backend_file(path)
    except FormatError:
        return None
    columns = (
        Column("event"),
        Column("group", title=file.group_title),
        Column("value", Kind.FLOAT, title=file.value_title),
        Column("unit"),
        *file.columns,
    )
    content = [
        (
            row.name,
            row.group or None,
            row.value,
            f"{row.unit}, {row.basis.value}" if row.basis is Basis.ESTIMATED else row.unit,
            *(row.extra.get(column.name) for column in file.columns),
        )
        for row in file.rows
    ]
    depth = [row.depth for row in file.rows]
    return rows("rows", f"{path}: {file.kind}", columns, content, notes=file.notes, depth=depth)
