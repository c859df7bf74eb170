"""What a file is and what is in it, for any file of ExecuTorch: the answer of `etscope info`."""

from __future__ import annotations

import os

from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, identify
from etscope.model.report import Report, Section

SCHEMA = "etscope.info/1"


def file_info(path: str | os.PathLike[str]) -> Report:
    """What the file at `path` holds; its kind is told by its content, not by its name.

    `about` has "file" (the path) and "kind": "etdump", "etrecord", "pte" or "bpte". Raises
    `FormatError` for a file of another kind or a damaged one, `MissingFileError` if there is none.
    """
    name = os.fspath(path)
    kind = identify(path)
    return Report({"file": name, "kind": kind}, _sections(name, kind))


def _sections(path: str, kind: str) -> tuple[Section, ...]:
    # Each kind's own module is imported alone: a file is of one kind.
    if kind == ETDUMP:
        from etscope.analysis.info.etdump_info import etdump_sections
        from etscope.formats.etdump.reader import read_etdump

        return etdump_sections(read_etdump(path))
    if kind == ETRECORD:
        from etscope.analysis.info.etrecord_info import etrecord_sections
        from etscope.formats.etrecord.reader import read_etrecord

        return etrecord_sections(read_etrecord(path))
    if kind == BPTE:
        from etscope.analysis.info.program_info import bundled_sections
        from etscope.formats.program.bpte import read_bundled

        return bundled_sections(read_bundled(path))
    from etscope.analysis.info.program_info import program_sections
    from etscope.formats.program.pte import read_pte

    return program_sections(read_pte(path))
