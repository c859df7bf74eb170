"""The extension in a real editor: code-server, which is Visual Studio Code behind a web page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser.chromium import screenshot
from tests.support.etdb import weather
from tests.support.ports import free_port

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

ROOT = Path(__file__).parents[3]
VSIX = ROOT / "editors" / "vscode" / "dist" / "etscope.vsix"
EDITOR = ROOT / "build" / "editor" / "node_modules"
ENTRY = EDITOR / "code-server" / "out" / "node" / "entry.js"
LINES = Path(weather.__file__).read_text().splitlines()
NORM, HEAD = (
    next(number for number, line in enumerate(LINES, 1) if text in line)
    for text in ("self.norm(pressures)", "self.head(features)")
)
SETTINGS = {
    "chat.disableAIFeatures": True,
    "debug.toolBarLocation": "docked",
    "editor.minimap.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
}

CONSOLE = ".repl .monaco-list-rows"

pytestmark = pytest.mark.nightly


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fresh example, as somebody opens it."""
    example = tmp_path / "weather"
    example.mkdir()
    shutil.copy(weather.__file__, example / "model.py")
    return example


@pytest.fixture
def address(folder: Path, tmp_path: Path) -> Iterator[str]:
    """The address of the folder in the editor, which has the extension."""
    if not ENTRY.is_file() or not VSIX.is_file():
        pytest.skip("no editor: make test-editor installs it")
    data = tmp_path / "data"
    own = {"etscope.python": sys.executable}
    for place, settings in (("User", SETTINGS), ("Machine", own)):
        (data / place).mkdir(parents=True)
        (data / place / "settings.json").write_text(json.dumps(settings))
    command = [EDITOR / "node" / "bin" / "node", ENTRY, "--user-data-dir", data, "--config",
               tmp_path / "config.yaml", "--extensions-dir", tmp_path / "extensions"]  # fmt: skip
    # Tests keep no runs; here the extension keeps them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    environment = {
        k: v for k, v in environment.items() if not k.startswith(("VSCODE_", "ETSCOPE_"))
    }
    subprocess.run([*command, "--install-extension", VSIX], env=environment, check=True)
    port = free_port()
    serve = ["--auth", "none", "--bind-addr", f"127.0.0.1:{port}", "--disable-telemetry",
             "--disable-update-check"]  # fmt: skip
    with subprocess.Popen(
        [*command, *serve], env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert any("HTTP server listening" in line for line in server.stdout)
        yield f"http://127.0.0.1:{port}/?folder={folder}"
        server.terminate()


class Editor:
    """What somebody does in the editor, and sees in it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        page.goto(address)
        page.dblclick(".explorer-folders-view .monaco-list-row >> text=model.py")
        page.wait_for_selector(".codelens-decoration >> text=Debug this model")

    def sets_breakpoint(self, line: int, condition: str) -> None:
        keyboard = self.page.keyboard
        self.page.click(".view-lines")
        keyboard.press("Control+g")
        self.page.wait_for_selector(".quick-input-widget input:focus")
        keyboard.type(str(line))
        self.page.wait_for_selector(f".quick-input-list >> text=/line {line}/i")
        keyboard.press("Enter")
        self.page.wait_for_selector(f".line-numbers.active-line-number >> text='{line}'")
        keyboard.press("F1")
        self.page.wait_for_selector(".quick-input-widget input:focus")
        keyboard.type("Add Conditional Breakpoint")
        self.page.click(".quick-input-list .monaco-list-row >> text=Conditional Breakpoint")
        self.page.wait_for_selector(".breakpoint-widget .monaco-editor.focused")
        keyboard.type(condition)
        keyboard.press("Enter")
        self.page.wait_for_selector(".codicon-debug-breakpoint-conditional")

    def stops(self, why: str, line: int) -> None:
        """Wait until the run stands at a line, where the cursor is, and its thread says why."""
        thread = f'[aria-label^="Thread forward"][aria-label$="{why}"]'
        self.page.wait_for_selector(f".debug-call-stack {thread}")
        self.page.wait_for_selector(f".statusbar-item >> text=Ln {line}, Col 1")

    def presses(self, button: str) -> None:
        """Press a button of the debugger, and wait until the console tells of the stop."""
        before = self.page.inner_text(CONSOLE)
        self.page.click(f".codicon-debug-{button}")
        self.page.wait_for_function(
            "([console, before]) => document.querySelector(console).innerText !== before",
            arg=[CONSOLE, before],
        )

    def types(self, command: str) -> None:
        """Give a command to the debug console."""
        self.page.click(".repl-input-wrapper .monaco-editor")
        self.page.keyboard.type(command)
        self.page.keyboard.press("Escape")  # the list of completions
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector(f"{CONSOLE} >> text={command}")

    def reads(self, scope: str, pattern: str) -> None:
        """Open a scope, and wait until a variable of it shows a text."""
        row = f'.debug-variables .monaco-list-row[aria-label^="Scope {scope}"]'
        if self.page.wait_for_selector(row).get_attribute("aria-expanded") != "true":
            self.page.click(f"{row} .monaco-tl-twistie")
        self.page.wait_for_function(
            """pattern => [...document.querySelectorAll(".debug-variables .monaco-list-row")].some(
                row => new RegExp(pattern).test(row.textContent.replace(/\\s+/g, " ")))""",
            arg=pattern,
        )


def test_from_a_nan_to_its_operator_and_on_with_the_right_value(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 1400, "height": 1000})
    editor = Editor(page, address)
    editor.sets_breakpoint(HEAD, "isnan($)")
    page.click(".codelens-decoration a:text('Debug this model') >> nth=-1")
    editor.stops("Paused on breakpoint", HEAD)
    editor.reads("Output", "4 NaN")
    editor.reads("Inputs", "64 NaN")
    editor.reads("Reference", r"^ref\(\$\) ?= ?float32\[4, 4\](?!.*NaN)")
    page.wait_for_function(
        """() => [...document.querySelectorAll(".view-line span")].some(
            one => getComputedStyle(one, "::after").content.includes(" ms · "))"""
    )
    screenshot(page, "editor-stop")

    while "layer_norm" not in page.inner_text(CONSOLE):
        editor.presses("step-back")
    editor.stops("Paused on step", NORM)
    editor.reads("Reference", r"^gap\(sqnr\) ?= ?-inf")
    screenshot(page, "editor-back")
    editor.types("set $ = ref()")
    editor.reads("Reference", r"^gap\(max_abs\) ?= ?0")
    screenshot(page, "editor-patch")

    editor.presses("continue")
    editor.stops("run 0 is over", HEAD)
    model = weather.Weather().eval()
    with torch.no_grad():
        least = model(*model.example_inputs()).min().item()
    editor.reads("Model outputs", rf"float32\[4, 4\] min {least:.5g}(?!.*NaN)")
    screenshot(page, "editor-end")
