"""Traces and programs of artefacts, with the files that a test wants of them."""

from __future__ import annotations

from functools import lru_cache

from etscope.analysis.comparison.programs import Side
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts


@lru_cache(32)
def open_trace(
    name: str, *, record: bool = True, program: bool = True, timing: bool = False
) -> Trace:
    """The trace of a run, which is not to be changed: tests share it. timing: of the run without
    logged values, if there is one."""
    made = artifacts(name)
    dump = made.etdump_timing if timing else None
    return Trace(
        read_etdump(dump or made.etdump),
        record=read_etrecord(made.etrecord) if record else None,
        program=read_pte(made.pte) if program else None,
    )


def side(name: str, *, with_record: bool = False, data: bytes | None = None) -> Side:
    """One side of a comparison. data: another program in place of the artefact's."""
    made = artifacts(name)
    record = read_etrecord(made.etrecord) if with_record else None
    return Side(f"{name}.pte", read_pte(made.pte if data is None else data), record)
