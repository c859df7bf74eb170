"""Planted faults are found on the runtime by a handful of etdb commands, each by its line; sound
models run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from etscope.run.native import native_missing
from tests.support.faults.commanded import COMMANDS, OVER, Files, files_of, names, told
from tests.support.faults.planted import Case, cases
from tests.support.warm import warm_python

pytestmark = pytest.mark.skipif(native_missing() is not None, reason=str(native_missing()))

HOW_MANY = 16  # test_planted_faults.py has each fault of each block
ALWAYS = (11, 23, 31)  # NaN, a small difference, a weight
HIT_RATE = 0.9


def _case(index: int) -> Case:
    return list(cases(index + 1))[index]


Made = Callable[[Case], Files | None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Gives the files of a case, which are made once."""
    folder = tmp_path_factory.mktemp("cases")
    return cache(lambda case: files_of(case, folder / str(case)))


@pytest.mark.parametrize("index", ALWAYS)
def test_a_planted_fault_is_where_the_run_stops(index: int, made: Made) -> None:
    case = _case(index)
    files = made(case)
    assert files is not None
    text = told(files.record, files.wrong)
    assert names(case, text), (str(case), text)
    assert OVER in told(files.record, files.right)


def test_a_script_finds_one_and_its_exit_code_says_so(made: Made) -> None:
    case = _case(ALWAYS[0])
    files = made(case)
    assert files is not None
    found, sound = (_batch(files.record, program) for program in (files.wrong, files.right))
    assert (found.returncode, sound.returncode) == (1, 0), found.stderr + sound.stderr
    assert names(case, found.stdout)
    assert OVER in sound.stdout


def _batch(record: Path, program: Path) -> subprocess.CompletedProcess[str]:
    commands = [word for line in COMMANDS for word in ("-ex", line)]
    return subprocess.run(
        [warm_python(), "-m", "etscope.etdb", str(record), str(program), "--batch", *commands],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_planted_faults_are_where_runs_stop(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    missed, alarms, planted = [], [], 0
    for case in cases(HOW_MANY):
        files = made(case)
        if files is None:
            continue
        sound, text = told(files.record, files.right), told(files.record, files.wrong)
        if OVER not in sound:
            alarms.append(f"{case}: {sound}")
        planted += 1
        if not names(case, text):
            missed.append(f"{case}: {text}")
    with capsys.disabled():
        found = planted - len(missed)
        print(f"\netdb: {found} of {planted} planted faults are where runs stop")
    assert not alarms
    assert planted >= 0.6 * HOW_MANY
    assert 1 - len(missed) / planted >= HIT_RATE, "\n".join(missed)
