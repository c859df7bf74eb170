"""Summaries of files, for `etscope info`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etscope.errors import FormatError
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTD, PTN, identify, is_app_log, is_ptn
from etscope.model.report import Report, Section

if TYPE_CHECKING:
    from etscope.formats.etrecord.reader import RecordFile
    from etscope.formats.program.ptd import ExternalData
    from etscope.formats.program.pte import Program

SCHEMA = "etscope.info/1"
APP_LOG = "app-log"
TOOL_FILE = "tool-file"


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
    "app-log" for the log of an app that ran a language model, "tool-file" for the log of a board or
    a file of a vendor's tool, "ptn" for a package of the native backend. Raises
    `FormatError` for a file of another kind or a damaged one, `MissingFileError` if there is none.
    """
    name = os.fspath(path)
    try:
        kind = identify(path)
    except FormatError:
        found = _of_other_kind(name)
        if found is None:
            raise
        return found
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


def _of_other_kind(path: str) -> Report | None:
    """Summarise an app's log, a package of the native backend, or a file of a vendor's tool; None
    for any other file."""
    from etscope.analysis.info.log_info import app_log_sections, tool_file_section

    if is_app_log(path):
        return Report({"file": path, "kind": APP_LOG}, app_log_sections(path))
    if is_ptn(path):
        from etscope.analysis.info.native_info import native_sections
        from etscope.formats.program.native import read_ptn

        return Report({"file": path, "kind": PTN}, native_sections(read_ptn(path)))
    section = tool_file_section(path)
    return None if section is None else Report({"file": path, "kind": TOOL_FILE}, (section,))
