"""Damaged files for `etscope size`: the parts sum to the file, or there is an error of etscope."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from etscope.analysis.size import size_files, size_reports
from etscope.errors import EtscopeError, MismatchError
from tests.attacks.mutations import cut_out, truncate
from tests.support.artifacts import artifacts

DELEGATES = Path(__file__).parents[1] / "corpus/delegates"
FILES = (
    *("cnn_portable/program.pte", "cnn_xnnpack_int8/program.pte", "forward_and_extra/program.pte"),
    *("bundled/program.bpte", "external_xnnpack/weights.ptd", "cond/etdump.etdp"),
    *("vulkan.pte", "coreml.pte", "ethos_u55.pte", "ethos_u85.pte"),
)
ROUNDS = 100


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


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_sum_or_are_refused(name: str, tmp_path: Path) -> None:
    data, rng = real(name), random.Random(name)
    path = tmp_path / Path(name).name
    outcomes: Counter[bool] = Counter()
    for number in range(ROUNDS):
        changed = bytearray(data)
        mutations = (truncate, cut_out, damage, move_reference, append)
        mutations[number % len(mutations)](rng, changed, ())
        path.write_bytes(changed)
        summed = False
        with suppress(EtscopeError):
            (found,) = size_files([path])
            assert sum(part.size for part in found.parts) == len(changed)
            assert all(part.size > 0 for part in found.parts)
            (report,) = size_reports([found])
            assert report.section("parts") is not None
            summed = True
        outcomes[summed] += 1
    assert outcomes[True] > ROUNDS // 20 and outcomes[False] > ROUNDS // 20


def test_a_program_and_a_damaged_ptd(tmp_path: Path) -> None:
    made, rng = artifacts("external_xnnpack"), random.Random(0)
    data = made.extra("weights.ptd").read_bytes()
    path = tmp_path / "weights.ptd"
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS):
        changed = bytearray(data)
        damage(rng, changed, ())
        path.write_bytes(changed)
        try:
            found = size_files([made.pte, path])
        except MismatchError:
            outcomes["of another program"] += 1
        except EtscopeError:
            outcomes["damaged"] += 1
        else:
            assert [sum(part.size for part in one.parts) for one in found] == [
                made.pte.stat().st_size,
                len(changed),
            ]
            outcomes["summed"] += 1
    assert len(outcomes) == 3
