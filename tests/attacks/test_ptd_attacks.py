"""Hostile .ptd files, alone and beside a program: a result or an error, in bounded memory."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from etscope.analysis.info.program_info import external_sections, program_sections
from etscope.analysis.matching.export import Export
from etscope.analysis.memory.file_parts import ProgramClaims, external_parts
from etscope.analysis.memory.needs import owners_section, program_memory
from etscope.errors import EtscopeError
from etscope.formats.program.ptd import ExternalData, match_external, read_ptd
from etscope.formats.program.pte import Program, read_pte
from tests.attacks.hostile import is_read_in_little_memory
from tests.attacks.test_pte_attacks import attack_files
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import Number, build, ints
from tests.support.fuzz import fuzzed

PROGRAMS = ("external_portable", "external_xnnpack")


@cache
def programs() -> tuple[Program, ...]:
    return tuple(read_pte(artifacts(name).pte) for name in PROGRAMS)


def beside_programs(data: bytes) -> None:
    """Read a .ptd, check what it says of itself, and join it to programs."""
    found = read_ptd(data)
    for key, entry in found.entries.items():
        assert 0 <= entry.blob.offset <= entry.blob.offset + entry.blob.size <= len(data)
        assert len(found.blob(key)) == entry.blob.size
        with suppress(EtscopeError):
            assert found.tensor(key).nbytes <= entry.blob.size
    assert sum(part.size for part in external_parts(found, [])) == len(data)
    for section in external_sections(found, programs()):
        list(section.table.rows())
    for program in programs():
        joined(program, found)


def joined(program: Program, found: ExternalData) -> None:
    claims = ProgramClaims(program)
    assert sum(part.size for part in external_parts(found, [claims])) == found.source.size
    assert program_sections(Export(program, data=(found,)))[-1].name == "external_keys"
    assert len(owners_section(program_memory(Export(program, data=(found,)))).table)
    with suppress(EtscopeError):
        assert match_external([program], [found]) == [(found,)]


@fuzzed(600, nightly=10_000)
def test_mutated_files_beside_programs(seed: int, count: int) -> None:
    real = [artifacts(name).extra("weights.ptd").read_bytes() for name in PROGRAMS]
    attack_files(seed, count, real, beside_programs)


# -- files of any tables


def ptd_file(root: dict[int, Any], data: bytes, **header: int) -> bytes:
    size = len(build(root, b"FT01", bytes(40)))
    numbers = {"length": 40, "tables": 48, "tables_size": size - 48, "base": size}
    numbers |= {"data_size": len(data)} | header
    return build(root, b"FT01", struct.pack("<4sIQQQQ", b"FH01", *numbers.values())) + data


SIZES = st.one_of(st.integers(0, 70), st.integers(0, (1 << 64) - 1))
SEGMENTS = st.builds(lambda a, b: {0: Number("Q", a), 1: Number("Q", b)}, SIZES, SIZES)
DIMENSIONS = st.lists(st.one_of(st.integers(-2, 5), st.just((1 << 31) - 1)), max_size=4)
LAYOUTS = st.builds(
    lambda kind, sizes, order: {0: Number("b", kind), 1: ints(*sizes), 2: Number("B", order)},
    st.integers(-128, 127),
    DIMENSIONS,
    st.lists(st.integers(0, 255), max_size=4),
)
KEYS = st.sampled_from(["first.weight", "first.bias", "second.weight", "", "ключ"])
ENTRIES = st.builds(
    lambda key, index, layout: {0: key, 1: Number("I", index), 2: layout},
    KEYS,
    st.one_of(st.integers(0, 3), st.integers(0, (1 << 32) - 1)),
    st.none() | LAYOUTS,
)
OLD_TENSORS = st.builds(
    lambda key, kind, sizes, start: {
        0: key,
        1: Number("b", kind),
        2: ints(*sizes),
        3: Number("B", list(range(len(sizes)))),
        4: Number("I", 0),
        5: Number("Q", start),
    },
    KEYS,
    st.integers(0, 8),
    DIMENSIONS,
    SIZES,
)


@given(
    st.lists(SEGMENTS, max_size=3),
    st.lists(ENTRIES, max_size=4),
    st.lists(OLD_TENSORS, max_size=2),
    st.booleans(),
    st.dictionaries(st.sampled_from(["tables_size", "base", "data_size"]), SIZES, max_size=1),
)
def test_any_tables(
    segments: list[Any], entries: list[Any], old: list[Any], is_old: bool, header: dict[str, int]
) -> None:
    root = {2: old, 3: segments, 4: entries} if is_old else {1: segments, 2: entries}
    with suppress(EtscopeError):
        beside_programs(ptd_file(root, bytes(64), **header))


# -- small files that stand for large ones


def in_little_memory(data: bytes) -> bool:
    return is_read_in_little_memory(data, beside_programs, each=200)


def test_many_keys_of_one_segment() -> None:
    root = {
        1: [{0: Number("Q", 0), 1: Number("Q", 64)}],
        2: [{0: f"key {n}", 1: Number("I", 0)} for n in range(5_000)],
    }
    data = ptd_file(root, bytes(64))
    assert in_little_memory(data)
    assert len(read_ptd(data).entries) == 5_000


def test_one_layout_of_many_keys() -> None:
    layout = {0: Number("b", 6), 1: ints(*[1] * 32), 2: Number("B", list(range(32)))}
    root = {
        1: [{0: Number("Q", 0), 1: Number("Q", 4)}],
        2: [{0: f"key {n}", 1: Number("I", 0), 2: layout} for n in range(3_000)],
    }
    assert in_little_memory(ptd_file(root, bytes(4)))


def test_enormous_tensors_are_refused() -> None:
    layout = {0: Number("b", 6), 1: ints(*[(1 << 31) - 1] * 32), 2: Number("B", list(range(32)))}
    root = {1: [{0: Number("Q", 0), 1: Number("Q", 8)}], 2: [{0: "a", 2: layout}]}
    assert not in_little_memory(ptd_file(root, bytes(8)))
