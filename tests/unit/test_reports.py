"""What a failed test shows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import commands_of

SAYS = "import sys; print('much ' * 99 + 'said'); sys.exit('why')"


@pytest.mark.parametrize("check", [False, True])
def test_commands_of_a_failed_test_are_shown_whole(check: bool) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SAYS]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    with pytest.raises((AssertionError, subprocess.CalledProcessError)) as caught:
        assert run().returncode == 0

    (told,) = commands_of(caught)
    assert told.startswith(f"$ {sys.executable} -c ")
    assert "exit code 1" in told and "much said" in told and "why" in told
