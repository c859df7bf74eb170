"""Summaries of files, for `etscope info`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etscope.errors import FormatError
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTD, identify, is_app_log
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind
from etscope.units import format_share

if TYPE_CHECKING:
    from etscope.formats.etrecord.reader import RecordFile
    from etscope.formats.program.ptd import ExternalData
    from etscope.formats.program.pte import Program

SCHEMA = "etscope.info/1"
APP_LOG = "app-log"
_LONG_SAMPLING = 0.1  # of a generation: choosing tokens takes a few % where the vocabulary is small


def file_info(
    path: str | os.PathLike[str],
    programs: Sequence[Program] = (),
    data: Sequence[ExternalData] = (),
    record: RecordFile | None = None,
) -> Report:
    """Summarise the file at `path`. Its content decides the kind, not its name.

    programs: the readers of the keys of a .ptd. data: the .ptd files of a program, for the sizes of
    its external data. record: of a program, for its faults.

    `about` has "file" (the path) and "kind": "etdump", "etrecord", "pte", "bpte", "ptd", or
    "app-log" for the log of an app that ran a language model. Raises
    `FormatError` for a file of another kind or a damaged one, `MissingFileError` if there is none.
    """
    name = os.fspath(path)
    try:
        kind = identify(path)
    except FormatError:
        if not is_app_log(path):
            raise
        return Report({"file": name, "kind": APP_LOG}, _app_log_sections(name))
    sections: tuple[Section, ...]
    # Only the modules of the file's own kind are imported.
    if kind == ETDUMP:
        from etscope.analysis.info.etdump_info import etdump_sections
        from etscope.formats.etdump.reader import read_etdump

        sections = etdump_sections(read_etdump(name))
    elif kind == ETRECORD:
        from etscope.analysis.info.etrecord_info import etrecord_sections
        from etscope.formats.etrecord.reader import read_etrecord

        sections = etrecord_sections(read_etrecord(name))
    elif kind == BPTE:
        from etscope.analysis.info.program_info import bundled_sections
        from etscope.formats.program.bpte import read_bundled

        sections = bundled_sections(read_bundled(name), data, record)
    elif kind == PTD:
        from etscope.analysis.info.program_info import external_sections
        from etscope.formats.program.ptd import read_ptd

        sections = external_sections(read_ptd(name), programs)
    else:
        from etscope.analysis.info.program_info import program_sections
        from etscope.analysis.matching.export import Export
        from etscope.formats.program.pte import read_pte

        sections = program_sections(Export(read_pte(name), record, tuple(data)))
    return Report({"file": name, "kind": kind}, sections)


def _app_log_sections(path: str) -> tuple[Section, ...]:
    """Return the generations of a language model, with the times that its app measured."""
    from etscope.formats.app_report import AppReport, read_app_report

    report = read_app_report(path)
    parts = ("load", "first_token", "prefill", "decode", "sampling")
    content = []
    for number, one in enumerate(report.generations, 1):
        times = [getattr(one, f"{part}_ns") for part in parts]
        rate = AppReport((one,)).decode_rate if one.generated_tokens else None
        tokens = (number, one.prompt_tokens, one.generated_tokens)
        content.append((*tokens, *(None if ns is None else ns / 1e6 for ns in times), rate))
    columns = (
        Column("generation", Kind.INT),
        Column("prompt_tokens", Kind.COUNT),
        Column("generated_tokens", Kind.COUNT),
        *(Column(part, Kind.DURATION, "ms") for part in parts),
        Column("decode_rate", Kind.FLOAT, "tokens/s"),
    )
    notes = ["By the app's clock, in whole milliseconds."]
    loads = len({one.loaded_at for one in report.generations} - {None})
    if loads > 1:
        notes.append(f"The log has {loads:,} loads of a model, maybe of several models.")
    if not any(one.generated_tokens for one in report.generations):
        notes.append("No generation goes on after its prompt: there is no decode to time.")
    sampling = sum(one.sampling_ns or 0 for one in report.generations)
    inference = sum(one.inference_ns or 0 for one in report.generations)
    decode = sum(one.decode_ns or 0 for one in report.generations)
    if sampling > _LONG_SAMPLING * inference:
        of_decode = f" ({format_share(sampling / decode)} of decode)" if decode > sampling else ""
        notes.append(
            f"Choosing tokens takes {format_share(sampling / inference)} of the inference"
            f"{of_decode}, outside of the program: one core goes over the whole vocabulary for "
            "each token."
        )
    return (rows("generations", "Generations", columns, content, notes=tuple(notes)),)
