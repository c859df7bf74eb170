"""Files and lines that mean harm, or are broken: messages, and the session goes on."""

from __future__ import annotations

import asyncio
import io
import random
import time
import zipfile
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from etscope.etdb import Session
from etscope.etdb.commands.registry import COMMANDS
from etscope.etdb.ui.complete import Completer
from tests.integration.etdb.test_main import etdb
from tests.support.artifacts import artifacts
from tests.support.etdb.server import SECONDS
from tests.support.etdb.sessions import refused, said, session
from tests.support.fuzz import fuzzed

T = TypeVar("T")

# As JSON writes them. Brackets in the paths of modules must come in pairs.
EVIL, MODULE = "\\u001b[31mred\\u0007", "[/b]\\u001bc"


def hostile_record(path: Path) -> Path:
    """A record whose nodes, modules and files have names that would change a terminal."""
    record = artifacts("cnn_portable").etrecord
    assert record is not None
    out = io.BytesIO()
    with zipfile.ZipFile(record) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if data[:1] == b"{":
                text = data.decode()
                text = text.replace("cnn.py", f"cnn{EVIL}.py").replace("stages.0", MODULE)
                data = text.replace("aten_relu_default", f"aten_{EVIL}relu").encode()
            new.writestr(entry.filename, data)
    path.write_bytes(out.getvalue())
    return path


def hostile_session(folder: Path) -> Session:
    artifact = artifacts("cnn_portable")
    record = hostile_record(folder / "evil.etrecord")
    return Session(str(record), str(artifact.etdump), str(artifact.debug_buffer), force=True)


def test_names_from_files_cannot_change_a_terminal(tmp_path: Path) -> None:
    one = hostile_session(tmp_path)
    lines = ("start", "step 2", "bt", "list", "list nothing.py", "print aten_relu", "info source",
             "info ops", "info modules", "select aten_relu", "until module:nothing", "crosswalk",
             "overview", "top 5", "display $", "step")  # fmt: skip
    shown = ""
    for line in lines:
        shown += one.execute(line).text
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert r"cnn\x1b[31mred" in shown
    assert r"files are: cnn\x1b" in one.execute("list nothing.py").text


def test_the_command_shows_errors_with_escapes(tmp_path: Path) -> None:
    record = hostile_record(tmp_path / "evil.etrecord")
    done = etdb(record, "--batch", "-ex", "list no.py")
    assert done.returncode == 2
    assert r"files are: cnn\x1b[31m" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def ran(look: Coroutine[Any, Any, T]) -> T:
    """What it gives, in a thread of its own: a browser's event loop may run in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, look).result()


def test_the_full_screen_shows_names_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("textual")
    from etscope.etdb.ui.tui import DebuggerApp

    async def look() -> str:
        app = DebuggerApp(hostile_session(tmp_path), ["start", "step 3"])
        async with app.run_test(size=(100, 40)) as pilot:
            end = time.monotonic() + SECONDS
            shown = ""
            while not (r"[/b]\x1bc" in shown and r"\x1b[31mred" in shown):
                assert time.monotonic() < end, shown
                await pilot.pause(0.05)  # the commands run in a thread
                tree = app.query_one("#modules")
                labels = "\n".join(str(node.label) for node in tree._tree_nodes.values())
                shown = str(app.query_one("#source").render()) + labels
            return shown

    assert "\x1b" not in ran(look())


def test_lines_of_panes_are_cut_to_their_width() -> None:
    pytest.importorskip("textual")
    from etscope.etdb.ui.tui import DebuggerApp

    async def look() -> list[str]:
        app = DebuggerApp(session("cnn_portable"), ["start", "until op:add"])
        async with app.run_test(size=(60, 40)) as pilot:
            source = app.query_one("#source")
            end = time.monotonic() + SECONDS
            shown: list[str] = []
            while not any(line.startswith(">") for line in shown):
                assert time.monotonic() < end, "\n".join(shown)
                await pilot.pause(0.05)  # the commands run in a thread
                shown = str(source.render()).split("\n")
            assert len(shown) == source.size.height
            assert max(map(len, shown)) <= source.content_size.width
            return shown

    assert any(line.endswith("…") for line in ran(look()))


ARGUMENTS = """
$|$0|$9|%1|%²|#3|ref()|gap(sqnr)|gap(1)|ref(1, 2)|device(ref)|value()|weight(1)|1|-1|²|٣
9**9**9|1e308*10|'a'|[1, 2]|[[1],[2, 3]]|None|True.mean()|$.T|$.sum(axis=(0, 1))
$.reshape(3, 3)|$[99]|$['a']|$[$ > 0]|$ @ $|$ / 0|~$|1 // 0|$ < 1 < 2|round($, 'a')
$.__class__|lambda: 1|f'{1}'|%|((((|'|\x00|\ud800|\x1b[31m|$.shape[0]|op:softmax|op:*
delegate:*|(|op:[|not op:add|* if $ > 0|* if ((|live nothing.npz|by p90|10 by x|ops|run|off
~nouser/x|/dev/null|/tmp|"|\\|/e|/z|/8f $|/9999f $|nan|inf|= 1|$ = 1|$x = $|%1 = 1|3 2
1 2 3|cnn.py:40|aten_x
""".replace("\n", "|").split("|")


@pytest.mark.parametrize("name", ["cnn_xnnpack", "while_loop"])
@fuzzed(200, nightly=5000)
def test_lines_at_random_never_end_a_session(name: str, seed: int, count: int) -> None:
    rng = random.Random(seed)
    one = session(name)
    completer = Completer(one.debugger)
    commands = [c for c in COMMANDS if c not in ("quit", "source", "target", "file", "core", "gap")]
    for _ in range(count):
        if one.debugger.stop is None or rng.random() < 0.1:
            one.execute("start")
        word = rng.choice(commands)
        topic = rng.choice(["ops", "tensors", "stop", "runs", ""]) if word == "info" else ""
        line = " ".join(filter(None, (word, topic, rng.choice(ARGUMENTS))))
        if line.startswith("set logging"):
            continue
        result = one.execute(line)
        assert result.exit_code != 70, f"{line}: {result.error!r}"
        assert "\x1b" not in result.text
        completer.complete(line)


def test_a_bug_is_told_and_the_session_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    one = session("cnn_portable")

    def broken(*arguments: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(one.debugger, "here", broken)
    result = one.execute("bt")
    assert result.exit_code == 70
    assert result.error is not None
    assert isinstance(result.error.__cause__, KeyError)
    assert "bug in etscope" in result.text
    assert one.execute("info runs").ok


def test_a_log_that_cannot_be_written_ends_without_the_session() -> None:
    one = session("cnn_portable")
    one.debugger.logging = "/dev/full"
    assert "logging ended" in one.execute("start").text
    assert one.debugger.logging is None


def test_going_far_back_ends_at_the_start() -> None:
    one = session("cnn_portable")
    said(one, "start", "step 5")
    assert "the start of the run" in said(one, "reverse-continue 99999999999")


def test_folders_of_nobody_and_digits_that_are_none() -> None:
    one = session("cnn_portable")
    said(one, "start")
    assert "not found" in refused(one, "file ~nobody-of-that-name/x")
    assert Completer(one.debugger).complete("file ~nobody-of-that-name/x")[1] == []
    assert "no line" in refused(one, "list ²")
    refused(one, "crosswalk ²")


def test_files_are_completed_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "my-model=2+(1).etrecord").touch()
    _, found = Completer(session("cnn_portable").debugger).complete(f"file {tmp_path}/my-mo")
    assert found == [f"{tmp_path}/my-model=2+(1).etrecord"]
