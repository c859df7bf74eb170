"""Hostile .bpte files in the native runner: it runs them or says what is wrong, and never dies."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from etscope.formats.program.bpte import Case, Suite, write_bundled
from etscope.formats.program.scalar_type import ScalarType
from tests.attacks.mutations import INTERESTING
from tests.support.formats.handmade import Number, build
from tests.support.fuzz import fuzzed
from tests.support.native.runner import run_flags
from tests.support.run.echo import echo_program, typed

FINE, OUT_OF_TOLERANCE, BAD_INPUT, RUNTIME = 0, 1, 3, 5


def good_bundle(folder: Path) -> bytes:
    program = echo_program(folder / "echo.pte", [typed(ScalarType.FLOAT, 2, 3)])
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    cases = tuple(Case((value + i,), (value + i,)) for i in range(2))
    return write_bundled(program.read_bytes(), [Suite("forward", cases)])


def tried(folder: Path, data: bytes) -> tuple[int, str]:
    (folder / "x.bpte").write_bytes(data)
    done = run_flags("--program", "x.bpte", "--verify", "--testset-index", "all", folder=folder)
    return done.returncode, done.stderr


def damaged(rng: random.Random, data: bytes, program: slice) -> bytes:
    """The tables changed here and there; the program, which is the runtime's matter, is not."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(data) - 4)
        if program.start - 4 < place < program.stop:
            continue
        match rng.randrange(3):
            case 0:
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place : place + 4] = rng.choice(INTERESTING).to_bytes(4, "little")
            case 2:
                changed[place : place + 2] = rng.randbytes(2)
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


@fuzzed(200, nightly=5000)
def test_damaged_tables(seed: int, count: int, tmp_path: Path) -> None:
    data = good_bundle(tmp_path)
    program = (tmp_path / "echo.pte").read_bytes()
    start = data.index(program)
    assert tried(tmp_path, data) == (FINE, "")
    codes: Counter[int] = Counter()
    for index in range(count):
        rng = random.Random(f"{seed}/{index}")
        code, said = tried(tmp_path, damaged(rng, data, slice(start, start + len(program))))
        assert code in (FINE, OUT_OF_TOLERANCE, BAD_INPUT, RUNTIME), (index, code, said)
        if code in (BAD_INPUT, RUNTIME):
            assert "etscope-runner: " in said, index
        codes[code] += 1
    assert codes[BAD_INPUT] > count / 8
    assert codes[FINE] > count / 20


def test_a_bundle_that_is_cut_off_anywhere(tmp_path: Path) -> None:
    data = good_bundle(tmp_path)
    for size in range(0, len(data), 37):
        code, said = tried(tmp_path, data[:size])
        assert code in (FINE, BAD_INPUT, RUNTIME), (size, code)
        assert code == FINE or "etscope-runner: " in said


def test_a_small_file_that_repeats_a_large_tensor(tmp_path: Path) -> None:
    """Values are counted before they are copied."""
    program = echo_program(tmp_path / "echo.pte", [typed(ScalarType.BYTE, 1 << 20)]).read_bytes()
    tensor = {0: Number("b", ScalarType.BYTE), 1: Number("i", [1 << 20]), 2: bytes(1 << 20)}
    value = {0: Number("B", 1), 1: tensor}
    case = {0: [value] * 200_000, 1: [value] * 200_000}
    root = {0: Number("I", 2), 1: [{0: "forward", 1: [case]}], 2: program}
    code, said = tried(tmp_path, build(root, b"BP08"))
    assert code == BAD_INPUT
    assert "has 200000 inputs, the method has 1" in said


@pytest.mark.parametrize(
    ("tensor", "say"),
    [
        ({0: Number("b", 99)}, "unknown scalar type 99"),
        ({1: Number("i", [-1, 3])}, "a tensor float32 [-1, 3] with 24 bytes"),
        ({1: Number("i", [2147483647] * 8)}, "with 24 bytes"),
        ({1: Number("i", [2, 4])}, "a tensor float32 [2, 4] with 24 bytes"),
        ({1: Number("i", [1] * 300)}, "too many dimensions"),
        ({3: bytes([0, 0])}, "an order of dimensions that is none"),
        ({3: bytes([0, 1, 2])}, "an order of dimensions that is none"),
    ],
)
def test_tensors_that_cannot_be(tensor: dict[int, object], say: str, tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [typed(ScalarType.FLOAT, 2, 3)]).read_bytes()
    made = {0: Number("b", 6), 1: Number("i", [2, 3]), 2: bytes(24), **tensor}
    case = {0: [{0: Number("B", 1), 1: made}]}
    root = {0: Number("I", 2), 1: [{0: "forward", 1: [case]}], 2: program}
    code, said = tried(tmp_path, build(root, b"BP08"))
    assert code == BAD_INPUT
    assert said.startswith("etscope-runner: x.bpte: not a valid bundled program: ")
    assert say in said


@pytest.mark.parametrize(
    ("root", "say"),
    [
        ({0: Number("I", 2)}, "x.bpte: the bundle holds no program"),
        ({0: Number("I", 2), 2: b"text that is no program"}, "not an ExecuTorch program"),
    ],
)
def test_bundles_without_a_program(root: dict[int, object], say: str, tmp_path: Path) -> None:
    code, said = tried(tmp_path, build(root, b"BP08"))
    assert (code, say in said) == (BAD_INPUT, True), said
