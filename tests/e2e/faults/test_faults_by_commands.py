"""Planted faults as somebody finds them who has the debugger, and nothing else: the record of the
right model, the program of the wrong one, and commands. Sound models run to their end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from etscope.etdb import Session
from etscope.run.native import native_missing
from tests.support.artifacts import artifacts
from tests.support.faults.recorded import planted
from tests.support.warm import warm_python

pytestmark = pytest.mark.skipif(native_missing() is not None, reason=str(native_missing()))

HOW_MANY = 16  # test_planted_faults.py has each fault of each block
ALWAYS = (11, 23, 31)  # NaN, a small difference, a weight
# What rounding alone does is above 90 dB.
COMMANDS = ("set times off", "target runtime", "watch nan", "break if gap(sqnr) < 80", "run")
STOPPED = re.compile(
    r"^\[\d+\] (?:.* · )?(?P<module>[\w.()]+)\n {4}(?P<file>\S+):(?P<line>\d+) ", re.MULTILINE
)
OVER = " is over, after "


def files(number: int, program: str) -> tuple[Path, Path]:
    """The record of a right model, and its program or that with the fault."""
    made = artifacts(f"fault_portable_{number}")
    return made.extra("etrecord.bin"), made.extra(f"{program}.pte")


def told(number: int, program: str) -> str:
    """What the last of the commands says."""
    text = ""
    with closing(Session(*files(number, program))) as session:
        for line in COMMANDS:
            result = session.execute(line)
            assert result.ok, f"{line}: {result.error}"
            text = result.text
    return text


def names(fault: Mapping[str, Any], text: str) -> bool:
    """Whether a stop that was told of is in the module and the line of the fault."""
    stopped = STOPPED.search(text)
    return (
        stopped is not None
        and f"{stopped['module']}.".startswith(f"{fault['module']}.")
        and Path(stopped["file"]).name == fault["file"]
        and int(stopped["line"]) == fault["line"]
    )


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if number in ALWAYS else pytest.mark.nightly)
        for number in sorted({*ALWAYS, *range(HOW_MANY)})
    ],
)
def test_a_planted_fault_is_where_the_run_stops(number: int) -> None:
    fault = planted(f"fault_portable_{number}")
    assert OVER in told(number, "right")
    if fault is None:
        assert number not in ALWAYS
        return
    text = told(number, "wrong")
    assert names(fault, text), (fault, text)


def test_a_script_finds_one_and_its_exit_code_says_so() -> None:
    fault = planted(f"fault_portable_{ALWAYS[0]}")
    commands = [word for line in COMMANDS for word in ("-ex", line)]
    found, sound = (
        subprocess.run(
            [warm_python(), "-m", "etscope.etdb", *files(ALWAYS[0], name), "--batch", *commands],
            capture_output=True,
            text=True,
            check=False,
        )
        for name in ("wrong", "right")
    )
    assert (found.returncode, sound.returncode) == (1, 0), found.stderr + sound.stderr
    assert fault is not None and names(fault, found.stdout), found.stdout
    assert OVER in sound.stdout
