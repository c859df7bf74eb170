"""A program by itself or in a bundle: the two files that a runtime can be given."""

from __future__ import annotations

from etscope.formats.bytes.source import BytesLike, PathLike, open_source
from etscope.formats.program.bpte import IDENTIFIER, BundledFile, read_bundled
from etscope.formats.program.pte import KIND, Program, read_pte


def read_program_file(data_or_path: BytesLike | PathLike) -> tuple[Program, BundledFile | None]:
    """The program of a .pte or .bpte file, and the bundle if it is one.

    Raises as `read_pte` does, for what is neither too.
    """
    if bytes(open_source(data_or_path, KIND).buffer[4:8]) == IDENTIFIER:
        bundle = read_bundled(data_or_path)
        return bundle.program(), bundle
    return read_pte(data_or_path), None
