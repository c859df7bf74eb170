"""Hostile ETDumps: a result or an error of etscope, in bounded time and memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import FormatError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from tests.attacks.hostile import MIB, little_memory
from tests.attacks.mutated_etdumps import touch
from tests.support.artifacts import ROOT, artifacts
from tests.support.etdump_by_hand import debug, etdump, flatbuffer, profile, run, tensor, value
from tests.support.fuzz import fuzzed

DEBUG = DebugBuffer.open(bytes(1 << 12))
MUTATED = (
    "bf16_fp16",
    "channels_last",
    "cond",
    "forward_and_extra",
    "int_outputs",
    "nan_output",
    "scalar_outputs",
    "two_methods",
)


@fuzzed(1000, nightly=20_000)
def test_mutated_dumps(seed: int, count: int) -> None:
    files = []
    for name in MUTATED:
        artifact = artifacts(name)
        debug_buffer = artifact.debug_buffer or artifacts("cond").debug_buffer
        files += [str(artifact.etdump), str(debug_buffer)]
    command = [sys.executable, "-m", "tests.attacks.mutated_etdumps", str(seed), str(count), *files]

    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["peak_mb"] < 64


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_behind_the_identifier(rest: bytes, size_prefixed: bool) -> None:
    head = struct.pack("<I4s", 8, b"ED00")
    prefix = struct.pack("<I", len(rest) + 8) if size_prefixed else b""

    _tolerate(prefix + head + rest)


SMALL = etdump(
    run(
        "Execute",
        [
            profile("conv", delegate_str="conv #1", metadata=b"abc", start=1, end=2),
            debug(value(6, 2, {0: [tensor(6, [2, 3], [3, 1], 64)]}, output=True)),
            debug(value(1, 3, {0: ("q", 5)})),
        ],
        allocators=[{0: "method"}],
    )
)


@given(
    st.lists(
        st.tuples(st.integers(0, len(SMALL) // 2 - 2), st.integers(0, 2**32 - 1)),
        min_size=1,
        max_size=4,
    )
)
def test_any_numbers_at_any_places(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for place, number in changes:
        struct.pack_into("<I", data, 2 * place, number)

    _tolerate(bytes(data))


def test_every_truncation() -> None:
    for length in range(1, len(SMALL)):
        cut = SMALL[:length]
        _tolerate(cut)
        _tolerate(struct.pack("<I", length) + cut[4:])  # with a size that agrees


@pytest.mark.parametrize(
    "byte", [0xFF, *(pytest.param(byte, marks=pytest.mark.nightly) for byte in (0, 1, 0x7F, 0x80))]
)
def test_every_byte_set_to_extremes(byte: int) -> None:
    for place in range(len(SMALL)):
        _tolerate(SMALL[:place] + bytes([byte]) + SMALL[place + 1 :])


def _tolerate(data: bytes) -> None:
    """Anything but a result or a `FormatError` fails the test."""
    with suppress(FormatError):
        touch(data, DEBUG)


def _little_memory(data: bytes) -> AbstractContextManager[None]:
    """No more than some times the file's size."""
    return little_memory(MIB + 40 * len(data))


def _refused(data: bytes, message: str | None = None) -> FormatError:
    """Opening fails with that message."""
    with _little_memory(data), pytest.raises(FormatError, match=message) as caught:
        read_etdump(data)
    return caught.value


def _with_references(build: Callable[[Any], bytes], targets: Callable[[bytes], list[int]]) -> bytes:
    """A file in which `build` put marks (it gets a function from index to field), with each mark
    replaced by a reference to the place that `targets` names for it."""
    data = bytearray(build(lambda i: ("I", 0xABC00000 + i)))
    for i, target in enumerate(targets(bytes(data))):
        place = data.index(struct.pack("<I", 0xABC00000 + i))
        struct.pack_into("<I", data, place, target - place)
    return bytes(data)


def test_runs_and_events_that_are_the_same() -> None:
    events = [profile("conv") for _ in range(500)]
    one = profile("conv")
    for data in (
        etdump(*(run("x", events) for _ in range(2000))),
        etdump(*[run("x", events)] * 5000),
        etdump(run("x", [one] * 100_000)),
    ):
        _refused(data, "more events than the file has room")


# Every word is the length of a string or vector that reaches over most of the others.
_LADDER = struct.pack("<I", 30_000) * 10_000


@pytest.mark.parametrize(
    ("overlapping", "ladder", "message"),
    [
        (profile, profile(metadata=_LADDER), "strings overlap"),
        (lambda mark: profile(metadata=mark), profile(_LADDER), "metadata overlap"),
    ],
)
def test_texts_that_overlap(overlapping: Any, ladder: Any, message: str) -> None:
    data = _with_references(
        lambda mark: etdump(run("x", [*(overlapping(mark(i)) for i in range(1000)), ladder])),
        lambda data: [data.index(_LADDER) + 4 * i for i in range(1000)],
    )
    _refused(data, message)


def test_lists_of_allocators_that_overlap() -> None:
    ladder = struct.pack("<I", 5000) * 10_000
    data = _with_references(
        lambda mark: etdump(
            *(run("x", allocators=mark(i)) for i in range(1000)),
            run("x", [profile(metadata=ladder)]),
        ),
        lambda data: [data.index(ladder) + 4 * i for i in range(1000)],
    )
    _refused(data, "lists of tables overlap")

    # One list of many runs is fine.
    allocators = [{0: f"allocator {i}"} for i in range(100)]
    dump = read_etdump(etdump(*(run("x", allocators=allocators) for _ in range(1000))))

    assert dump.run_allocators[999] is dump.run_allocators[0]
    assert len(dump.run_allocators[0]) == 100


def test_tables_that_claim_to_be_wide() -> None:
    """Each of 40,000 tables says it has 65,535 bytes: 2.6 GB if one believed it."""
    count = 20_000
    data = etdump(run("x", [profile("c") for _ in range(count)])) + bytes(1 << 16)
    data = struct.pack("<I", len(data) - 4) + data[4:]
    vtable = struct.Struct("<HHH")  # of an event and of a profile event: one field at byte 4
    assert data.count(vtable.pack(6, 8, 4)) == 2 * count
    data = data.replace(vtable.pack(6, 8, 4), vtable.pack(6, 0xFFFF, 4))

    with _little_memory(data):
        dump = read_etdump(data)

    assert dump.num_events == count


@pytest.mark.parametrize("count", [2**31, 2**32 - 1, 1000])
def test_vectors_longer_than_the_file(count: int) -> None:
    events = [profile("conv")]
    data = etdump(run("Execute", events))
    runs = data.index(struct.pack("<I", 1), 12)  # the first vector: that of the runs

    _refused(data[:runs] + struct.pack("<I", count) + data[runs + 4 :], "longer than the file")


@pytest.mark.parametrize("distance", [0, 2**31, 2**32 - 1])
def test_references_to_nowhere(distance: int) -> None:
    _refused(SMALL[:4] + struct.pack("<I", distance) + SMALL[8:])  # the root
    nowhere = ("I", distance)
    for data in (
        flatbuffer({1: nowhere}),
        flatbuffer({1: [{3: nowhere}]}),
        flatbuffer({1: [{0: nowhere}]}),
        flatbuffer({1: [{2: nowhere}]}),
        flatbuffer({1: [{3: [{0: nowhere}]}]}),
        flatbuffer({1: [{3: [{0: {0: nowhere}}]}]}),
        flatbuffer({1: [{3: [{0: {5: nowhere}}]}]}),
        flatbuffer({1: [{3: [{2: {2: nowhere}}]}]}),
        flatbuffer({1: [{3: [{2: {2: {7: nowhere}}}]}]}),
    ):
        error = _refused(data, "a reference leads to byte")
        assert error.offset is not None


def test_tables_and_fields_outside_of_each_other() -> None:
    data = bytearray(flatbuffer({}))
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    struct.pack_into("<i", data, root, 0)

    _refused(bytes(data), "a vtable is broken")

    data = bytearray(etdump(run("Execute", [profile("conv", start=1, end=2)])))
    place = data.index(struct.pack("<HHH", 4 + 2 * 8, 24, 4))  # the profile event's vtable
    struct.pack_into("<H", data, place + 4, 22)  # its name

    _refused(bytes(data), "field 0 of a table lies outside it")


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"ab\xc3", b"\xc0\x80", b"ok\xf5ok"])
def test_names_that_are_not_utf_8(text: bytes) -> None:
    data = etdump(run("Execute", [profile(text), profile("fine")]))

    error = _refused(data, "a string is not UTF-8")

    start = data.index(text)
    assert start <= error.offset < start + len(text)


def test_a_list_of_one_tensor_again_and_again() -> None:
    """A list of 100,000 times the same tensor is 400 kB; with its 32 sizes each, 50 MB."""
    one = tensor(6, [1] * 32, [1] * 32, 0)
    data = etdump(run("x", [debug(value(6, 2, {0: [one] * 100_000}))]))
    dump = read_etdump(data)

    with _little_memory(data), pytest.raises(FormatError, match="too many times"):
        dump.value(0)


def test_sizes_of_a_tensor_longer_than_the_file() -> None:
    data = bytearray(etdump(run("x", [debug(value(5, 1, tensor(6, [7, 7, 7], [1, 1, 1], 0)))])))
    sizes = data.index(array("q", [7, 7, 7]).tobytes()) - 4
    struct.pack_into("<I", data, sizes, 2**32 - 1)
    dump = read_etdump(bytes(data))

    with pytest.raises(FormatError):
        dump.value(0)


def test_a_size_that_is_a_lie() -> None:
    for size in (2**32 - 1, len(SMALL) + 100):
        _refused(struct.pack("<I", size) + SMALL[4:], "cut off")
    for size in (0, 4, 20, len(SMALL) // 2):
        _refused(struct.pack("<I", size) + SMALL[4:])
