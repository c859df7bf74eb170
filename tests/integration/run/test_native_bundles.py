"""Bundled programs in the native runner: their cases as inputs, and as what is verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program.bpte import Case, Suite, write_bundled
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import integer
from tests.support.native.runner import run_flags
from tests.support.run.echo import echo_program, typed
from tests.support.run.ran import expected

OUT_OF_TOLERANCE, USAGE, BAD_INPUT = 1, 2, 3


def bundle(
    folder: Path, cases: Sequence[tuple[Any, Any]], scalar_type: ScalarType = ScalarType.FLOAT
) -> Path:
    """A program that gives back its one tensor, with cases of (input, expected output)."""
    first = np.asarray(cases[0][0])
    program = echo_program(folder / "echo.pte", [typed(scalar_type, *first.shape)])
    made = tuple(
        Case((np.asarray(given),), () if wanted is None else (np.asarray(wanted),))
        for given, wanted in cases
    )
    path = folder / "echo.bpte"
    path.write_bytes(write_bundled(program.read_bytes(), [Suite("forward", made)]))
    return path


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def verify(path: Path, *flags: object) -> tuple[int, list[str], list[dict[str, Any]]]:
    """The exit code, the lines printed, and the verdicts in the answer."""
    answer = path.with_name("result.json")
    flags = ("--testset-index", "all", "--verify", "--result-out", answer, *flags)
    done = run_flags("--program", path, *flags)
    assert done.returncode in (0, OUT_OF_TOLERANCE), done.stderr
    verdicts = json.loads(answer.read_text())["verification"]
    return done.returncode, done.stdout.splitlines(), verdicts


# -- cases as inputs


def test_the_first_case_is_the_input_unless_another_is_asked_for(tmp_path: Path) -> None:
    path = bundle(tmp_path, [(floats(1, 2), None), (floats(3, 4), None)])
    for flags, wanted in (((), [1, 2]), (("--testset-index", 1), [3, 4])):
        done = run_flags("--program", path, "--outputs-dir", tmp_path, *flags)
        assert done.returncode == 0, done.stderr
        assert np.fromfile(tmp_path / "output-0-0.raw", np.float32).tolist() == wanted


def test_an_input_goes_before_a_case(tmp_path: Path) -> None:
    path = bundle(tmp_path, [(floats(1, 2), None)])
    (tmp_path / "x").write_bytes(floats(5, 6).tobytes())
    flags = ("--input", "float32:2:x", "--outputs-dir", ".", "--etdump-out", "e")
    assert run_flags("--program", path, *flags, folder=tmp_path).returncode == 0
    assert np.fromfile(tmp_path / "output-0-0.raw", np.float32).tolist() == [5, 6]
    assert read_etdump(tmp_path / "e").run_bundled_input_index.tolist() == [-1, -1]


def test_the_dump_names_the_cases(tmp_path: Path) -> None:
    path = bundle(tmp_path, [(floats(1), None), (floats(2), None)])
    calls = ("--method", "forward", "--testset-index", "all", "--iterations", 2)
    calls += ("--method", "forward", "--testset-index", 0, "--bundled-input-index", 7)
    run_flags("--program", path, "--etdump-out", "e", *calls, folder=tmp_path)
    dump = read_etdump(tmp_path / "e")
    names = [dump.run_name_of(index) for index in range(dump.num_runs)]
    indices = dump.run_bundled_input_index.tolist()
    executed = [i for i, name in zip(indices, names, strict=True) if name == "Execute"]
    assert executed == [0, 0, 1, 1, 7]
    assert {i for i, name in zip(indices, names, strict=True) if name != "Execute"} == {-1}


def test_a_real_bundle_gives_the_outputs_of_the_python_runtime(tmp_path: Path) -> None:
    made = artifacts("bundled")
    flags = ("--testset-index", "all", "--verify", "--outputs-dir", tmp_path)
    done = run_flags("--program", made.bpte, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.partition(", ")[0] for line in lines] == [
        f"forward case {index}: passed" for index in range(4)
    ]
    for index in range(4):
        (wanted,) = expected(made, f"forward/{index}")
        found = np.fromfile(tmp_path / f"output-{index}-0.raw", np.float32)
        np.testing.assert_array_equal(found, wanted.ravel())


def test_scalars_are_inputs_of_cases(tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [integer(5), typed(ScalarType.LONG)])
    cases = (Case((5, np.array(7)), (5, np.array(7))),)
    path = tmp_path / "x.bpte"
    path.write_bytes(write_bundled(program.read_bytes(), [Suite("forward", cases)]))
    code, _, verdicts = verify(path)
    assert (code, verdicts) == (
        0,
        [{"method": "forward", "case": 0, "passed": True, "max_abs_error": 0.0}],
    )


# -- verification


def test_out_of_tolerance(tmp_path: Path) -> None:
    near, far = floats(1, 2.001), floats(1, 3)
    path = bundle(tmp_path, [(floats(1, 2), near), (floats(1, 2), far)])
    code, lines, verdicts = verify(path)
    assert code == OUT_OF_TOLERANCE
    assert [one["passed"] for one in verdicts] == [True, False]
    assert verdicts[0]["max_abs_error"] == pytest.approx(0.001, rel=1e-3)
    assert verdicts[1]["max_abs_error"] == 1.0
    assert lines[0] == "forward case 0: passed, largest error 0.000999928"
    assert lines[1] == (
        "forward case 1: FAILED: 1 of 2 values of output 0 are out of tolerance, largest error 1"
    )


@pytest.mark.parametrize(
    ("rtol", "atol", "passes"),
    [(0, 0, False), (0, 0.5, True), (0, 0.49, False), (0.125, 0, True), (0.1249, 0, False)],
)
def test_the_tolerances(rtol: float, atol: float, passes: bool, tmp_path: Path) -> None:
    """|actual - expected| <= atol + rtol * |expected|: 0.5 of 4."""
    path = bundle(tmp_path, [(floats(4.5), floats(4))])
    code, _, verdicts = verify(path, "--rtol", rtol, "--atol", atol)
    assert (code == 0, verdicts[0]["passed"]) == (passes, passes)


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    passing = [(np.nan, np.nan), (np.inf, np.inf), (0.0, -0.0)]
    failing = [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (1.0, np.inf)]
    cases = [(floats(given, 1), floats(wanted, 1)) for given, wanted in (*passing, *failing)]
    code, _, verdicts = verify(bundle(tmp_path, cases))
    assert code == OUT_OF_TOLERANCE
    assert [one["passed"] for one in verdicts] == [True] * 3 + [False] * 4
    assert [one["max_abs_error"] for one in verdicts] == [0.0] * 3 + [None] * 4


NUMBERS = ("BYTE", "CHAR", "SHORT", "INT", "LONG", "HALF", "DOUBLE", "BFLOAT16", "UINT16", "UINT32",
           "UINT64")  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_type_is_compared_as_numbers(kind: str, tmp_path: Path) -> None:
    scalar_type = ScalarType[kind]
    value, other = (np.array([60, n]).astype(scalar_type.numpy_dtype) for n in (100, 102))
    path = bundle(tmp_path, [(value, value), (value, other)], scalar_type)
    _, _, verdicts = verify(path)
    assert [one["passed"] for one in verdicts] == [True, False]
    assert [one["max_abs_error"] for one in verdicts] == [0.0, 2.0]


def test_large_integers_are_compared_exactly(tmp_path: Path) -> None:
    value = np.array([(1 << 62) + 1])
    path = bundle(tmp_path, [(value, value), (value, value - 1)], ScalarType.LONG)
    _, _, verdicts = verify(path, "--rtol", 0, "--atol", 0)
    assert [one["passed"] for one in verdicts] == [True, False]


def test_another_shape_is_not_as_expected_and_another_order_is(tmp_path: Path) -> None:
    code, lines, verdicts = verify(bundle(tmp_path, [(floats(1, 2), floats(1, 2)[None])]))
    assert code == OUT_OF_TOLERANCE
    assert verdicts[0]["max_abs_error"] is None
    assert lines == [
        "forward case 0: FAILED: output 0 is float32 [2] where float32 [1, 2] is expected"
    ]
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert verify(bundle(tmp_path, [(value, np.asfortranarray(value))]))[0] == 0


# -- what cannot be


def refused(path: Path, code: int, say: str, *flags: object) -> None:
    answer = path.with_name("answer.json")
    done = run_flags("--program", path, "--result-out", answer, *flags)
    assert done.returncode == code
    assert say in done.stderr
    assert not answer.exists()


def test_cases_that_are_not_there(tmp_path: Path) -> None:
    path = bundle(tmp_path, [(floats(1), None), (floats(2), None)])
    say = "no test case 2 for method 'forward', which has 2"
    refused(path, BAD_INPUT, say, "--testset-index", 2)
    say = "test case 0 of method 'forward' has 0 expected outputs, the method has 1"
    refused(path, BAD_INPUT, say, "--verify")
    alone = tmp_path / "echo.pte"
    for flags in (("--verify",), ("--testset-index", 0), ("--testset-index", "all")):
        refused(alone, USAGE, "need a bundled program; ", *flags)


def test_a_case_with_other_inputs(tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [typed(ScalarType.FLOAT, 1)])
    cases = (Case((floats(1), floats(2)), ()), Case((floats(1, 2),), ()))
    path = tmp_path / "x.bpte"
    path.write_bytes(write_bundled(program.read_bytes(), [Suite("forward", cases)]))
    refused(path, BAD_INPUT, "has 2 inputs, the method has 1")
    say = "input 0 of method 'forward' is float32 [1], not float32 [2]"
    refused(path, BAD_INPUT, say, "--testset-index", 1)


def test_a_bundle_without_cases_can_be_given_inputs(tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [typed(ScalarType.FLOAT, 1)])
    path = tmp_path / "x.bpte"
    path.write_bytes(write_bundled(program.read_bytes(), []))
    refused(path, BAD_INPUT, "no test cases for method 'forward'")
    (tmp_path / "x").write_bytes(bytes(4))
    done = run_flags("--program", path, "--input", "float32:1:x", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
