"""Damaged files for `etscope info --size`: the parts sum to the file, or there is an error."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from etscope.analysis.memory.size import size_files, size_reports
from etscope.errors import MismatchError
from tests.attacks.mutations import attack, cut_out, mutated, truncate
from tests.support.artifacts import artifacts
from tests.support.fuzz import fuzzed

DELEGATES = Path(__file__).parents[1] / "corpus/delegates"
FILES = (
    *("cnn_portable/program.pte", "cnn_xnnpack_int8/program.pte", "forward_and_extra/program.pte"),
    *("bundled/program.bpte", "external_xnnpack/weights.ptd", "cond/etdump.etdp"),
    *("vulkan.pte", "coreml.pte", "ethos_u55.pte", "ethos_u85.pte"),
)


def real(name: str) -> bytes:
    """The bytes of an artefact's file, or of one of the corpus."""
    made, _, file = name.rpartition("/")
    return ((artifacts(made).folder if made else DELEGATES) / file).read_bytes()


def damage(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Change some bytes of the tables, or anywhere."""
    end = rng.choice((64, 1024, len(data)))
    for _ in range(rng.choice((1, 1, 3, 20))):
        data[rng.randrange(min(end, len(data)))] = rng.choice((0, 1, 4, 0x7F, 0xFF))


def move_reference(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Add to a number of 32 bits: an offset, a size, or the place of a segment."""
    at = rng.randrange(min(len(data), 4096) // 4) * 4
    number = int.from_bytes(data[at : at + 4], "little") + rng.choice((-16, -4, 4, 16, 1 << 10))
    data[at : at + 4] = (number % (1 << 32)).to_bytes(4, "little")


def append(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Put bytes behind the file."""
    data += rng.randbytes(rng.choice((1, 40, 20_000)))


MUTATIONS = (truncate, cut_out, damage, move_reference, append)


@pytest.mark.parametrize("name", FILES)
@fuzzed(50, nightly=3000)
def test_damaged_files_sum_or_are_refused(name: str, seed: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / Path(name).name

    def touch(data: bytes) -> None:
        path.write_bytes(data)
        (found,) = size_files([path])
        assert sum(part.size for part in found.parts) == len(data)
        assert all(part.size > 0 for part in found.parts)
        (report,) = size_reports([found])
        assert report.section("parts") is not None

    files = [real(name)]
    attack(seed, count, lambda rng: mutated(rng, files, MUTATIONS), touch)


@fuzzed(50, nightly=3000)
def test_a_program_and_a_damaged_ptd(seed: int, count: int, tmp_path: Path) -> None:
    made = artifacts("external_xnnpack")
    files, program = [made.extra("weights.ptd").read_bytes()], made.pte.stat().st_size
    path = tmp_path / "weights.ptd"

    def touch(data: bytes) -> str | None:
        path.write_bytes(data)
        try:
            found = size_files([made.pte, path])
        except MismatchError:
            return "of another program"
        sums = [sum(part.size for part in one.parts) for one in found]
        assert sums == [program, len(data)]
        return None

    outcomes = attack(seed, count, lambda rng: mutated(rng, files, [damage]), touch)
    assert len(outcomes) == 3
