"""The prompt in a real terminal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.artifacts import artifacts
from tests.support.waiting import until

if shutil.which("tmux") is None:
    pytest.skip("tmux is not here", allow_module_level=True)
pytest.importorskip("prompt_toolkit")


class Terminal:
    """A terminal of tmux with a session of etdb in it."""

    def __init__(self, folder: Path, columns: int, files: Sequence[str], **variables: str) -> None:
        self._name = f"etdb{uuid.uuid4().hex[:8]}"
        command = [sys.executable, "-m", "etscope.etdb", *files]
        environment = {**os.environ, "XDG_STATE_HOME": str(folder), "TERM": "xterm-256color"}
        environment |= variables
        for size in ("COLUMNS", "LINES"):  # of whoever runs the tests
            environment.pop(size, None)
        self._tmux(
            "new-session", "-d", "-s", "it", "-x", str(columns), "-y", "45",
            " ".join(f"'{part}'" for part in command), env=environment,
        )  # fmt: skip

    def _tmux(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        return done.stdout

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "it", *keys)

    def resize(self, columns: int) -> None:
        self._tmux("resize-window", "-t", "it", "-x", str(columns), "-y", "45")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "it")

    def wait(self, *words: str, gone: Callable[[str], bool] | None = None) -> str:
        """The screen, when it has all the words."""
        screen = ""

        def is_there() -> bool:
            nonlocal screen
            screen = self.screen()
            return all(word in screen for word in words) and (gone is None or gone(screen))

        until(is_there, every=0.1, shown=lambda: f"{words} in\n{screen}")
        return screen

    def wait_for_prompt(self) -> str:
        """The screen, when nothing was typed at its last prompt: between two, keys are echoed by
        the terminal itself."""
        return self.wait(gone=lambda screen: screen.rstrip().endswith("(etdb)"))

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(columns: int, **variables: str) -> Terminal:
        artifact = artifacts("cnn_portable")
        recorded = [str(artifact.etrecord), str(artifact.etdump), str(artifact.debug_buffer)]
        opened.append(Terminal(tmp_path, columns, recorded, **variables))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_the_prompt_wraps_completes_and_remembers(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError\n")  # to load it takes a while
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    one = terminal(60, PYTHONPATH=path)
    one.wait_for_prompt()
    one.keys("start", "Enter")
    one.wait("aten_convolution_default")
    one.wait_for_prompt()
    one.keys("print/f $[0, 0, 0]", "Enter")
    one.wait("float32[16]")
    screen = one.wait_for_prompt()
    rows = re.findall(r"^[\[ ]+-?\d.*", screen.partition("std")[2], re.MULTILINE)
    assert [len(row.split()) for row in rows[-4:]] == [4, 4, 4, 5], screen  # "]" is the fifth
    one.resize(100)
    one.keys("print aten_max", "Tab")
    one.wait("print aten_max")
    one.keys("C-c")
    one.wait_for_prompt()
    one.keys("unt", "Tab")
    one.wait("(etdb) until")
    one.keys(" op:aten._softm", "Tab")
    one.wait("op:aten._softmax.default")
    one.keys("Enter")
    one.wait("aten__softmax_default", "head")
    one.wait_for_prompt()
    one.keys("print $.shape", "Enter")
    one.wait("[1, 10]")
    one.wait_for_prompt()
    one.keys("Up", "Enter")
    one.wait(gone=lambda screen: screen.count("[1, 10]") == 2)
    one.wait_for_prompt()
    one.keys("nope", "Enter")
    one.wait("unknown command 'nope'")
    one.wait_for_prompt()
    one.keys("quit", "Enter")
    history = tmp_path / "etscope" / "etdb_history"
    until(lambda: history.exists() and "quit" in history.read_text())
