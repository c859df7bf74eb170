"""The prompt and the full-screen face, in a real terminal."""

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

from etscope.run.native import native_missing
from tests.support.artifacts import artifacts
from tests.support.rogue_programs import endless
from tests.support.waiting import until

if shutil.which("tmux") is None:
    pytest.skip("tmux is not here", allow_module_level=True)
pytest.importorskip("prompt_toolkit")


class Terminal:
    """A terminal of tmux with a session of etdb in it."""

    def __init__(
        self, folder: Path, columns: int, *options: str, files: Sequence[str], **variables: str
    ) -> None:
        self._name = f"etdb{uuid.uuid4().hex[:8]}"
        command = [sys.executable, "-m", "etscope.etdb", *files, *options]
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

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-t", "it")

    def resize(self, columns: int, lines: int = 45) -> None:
        self._tmux("resize-window", "-t", "it", "-x", str(columns), "-y", str(lines))

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

    def start(columns: int, *options: str, files: Sequence[str] = (), **variables: str) -> Terminal:
        artifact = artifacts("cnn_portable")
        recorded = [str(artifact.etrecord), str(artifact.etdump), str(artifact.debug_buffer)]
        opened.append(Terminal(tmp_path, columns, *options, files=files or recorded, **variables))
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
    one.wait("there is no command 'nope'")
    one.wait_for_prompt()
    one.keys("quit", "Enter")
    history = tmp_path / "etscope" / "etdb_history"
    until(lambda: history.exists() and "quit" in history.read_text())


def test_the_full_screen_follows_the_run_and_its_size(terminal: Callable[..., Terminal]) -> None:
    pytest.importorskip("textual")
    one = terminal(80, "--tui", "-ex", "set times off", "-ex", "start")
    one.wait("Modules", "Source", "Values", "Console", "aten_convolution")
    one.wait("$0 = float32[1, 8, 16, 16]  min -1.8258  max 2.1…")
    one.resize(140)
    one.wait(">   35 ", "mean 0.002522  std 0.55844")
    long = "'" + "word " * 20 + "end'"
    one.keys("-l", f"print {long}")
    one.keys("Enter")
    one.wait(f"│ {long[1:-1]} ")
    almost = "'" + "w" * 72 + " end'"  # 76 characters: a little more than the narrow screen has
    one.keys("-l", f"print {almost}")
    one.keys("Enter")
    one.wait(f"│ {almost[1:-1]} ")
    one.resize(80, 30)
    screen = one.wait("$0 = float32[1, 8, 16, 16]  min -1.8258  max 2.1…")
    assert ">   35 " in screen
    one.wait("│ word word word word word end ", f"│ {'w' * 72} ", "│ end ")  # wrapped
    one.resize(80)
    one.keys("break op:add", "Enter")
    one.wait("breakpoint 1: op:add")
    one.keys("F5")
    one.wait("[9] aten_add_tensor", "return x + self.second", "$0 = float32[1, 8, 16, 16]")
    one.keys("F9")
    one.wait("[8] aten_relu_default_2")
    one.keys("quit", "Enter")
    one.wait(gone=lambda screen: "Modules" not in screen)


def test_each_line_of_the_full_screen_ends_where_enter_was_pressed(
    terminal: Callable[..., Terminal],
) -> None:
    pytest.importorskip("textual")
    one = terminal(100, "--tui")
    one.wait("Modules", "Console", "(etdb) help")
    one.keys(
        "info break", "Enter", "p 1+1", "Enter", "p 70", "BSpace", "1", "Enter",
        "Up", "0", "Enter",
    )  # fmt: skip
    screen = one.wait("│ 2 ", "│ 71 ", "│ 710 ")
    lines = [line[2:].rstrip(" │") for line in screen.split("\n") if line.startswith("│ (etdb)")]
    typed = ["info break", "p 1+1", "p 71", "p 710"]
    assert lines == [f"(etdb) {line}" for line in typed]
    one.paste("p 3*1000\np 3*2000\np 3*300")
    screen = one.wait("3000", "6000", "(etdb) p 3*2000", "  p 3*300")
    assert screen.count("p 3*1000") == screen.count("p 3*2000") == 1
    assert " 900 " not in screen
    one.keys("0", "Enter")
    one.wait("│ 9000 ")


def test_the_full_screen_keeps_stderr_of_libraries_out(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("textual")
    from etscope.etdb.ui.tui import stderr_off_the_screen

    with stderr_off_the_screen():
        os.write(2, b"noise")
        print("drawn", file=sys.__stderr__, flush=True)
    os.write(2, b"after")
    assert capfd.readouterr().err == "drawn\nafter"


def test_the_full_screen_lives_while_a_run_goes_on_and_ends_it(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    pytest.importorskip("textual")
    reason = native_missing()
    if reason is not None:
        pytest.skip(reason)
    program = str(endless(tmp_path))
    one = terminal(100, "--tui", "-ex", "target runtime --seed 1", "-ex", "start", files=[program])
    one.wait("inputs are generated", "[0]")
    one.keys("continue", "Enter")
    one.wait("(etdb) continue", "working")
    one.keys("print 6*7")
    one.wait("print 6*7")
    one.keys("Enter")  # it waits for its turn, and is forgotten
    one.wait(gone=lambda screen: "print 6" not in screen)
    one.keys("C-c")
    one.wait("interrupted", "pass", gone=lambda screen: "working" not in screen)
    one.keys("print 40+2", "Enter")
    assert "print 6" not in one.wait("(etdb) print 40+2", "42")
    one.keys("continue", "Enter")
    one.wait("working")
    one.keys("C-d")
    one.wait(gone=lambda screen: "Console" not in screen)
