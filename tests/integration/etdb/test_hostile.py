"""Files and lines that mean harm, or are broken: messages, and the session goes on."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest

from etscope.etdb import Session
from etscope.etdb.commands import COMMANDS
from etscope.etdb.session import Completer
from tests.support.artifacts import artifacts
from tests.support.etdb.command import etdb
from tests.support.etdb.runtime_sessions import on_runtime, target_of
from tests.support.etdb.sessions import refused, said, session
from tests.support.fuzz import fuzzed

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
    shown = "".join(one.execute(line).text for line in lines)
    done = etdb(tmp_path / "evil.etrecord", "--batch", "-ex", "list no.py")
    assert done.returncode == 2
    for text in (shown, done.stdout, done.stderr):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert r"cnn\x1b[31mred" in shown
    assert r"files are: cnn\x1b" in one.execute("list nothing.py").text
    assert r"files are: cnn\x1b[31m" in done.stderr


ARGUMENTS = """
$|$0|$9|%1|%²|#3|ref()|gap(sqnr)|gap(1)|ref(1, 2)|device(ref)|value()|weight(1)|1|-1|²|٣
9**9**9|1e308*10|'a'|[1, 2]|[[1],[2, 3]]|None|True.mean()|$.T|$.sum(axis=(0, 1))
$.reshape(3, 3)|$[99]|$['a']|$[$ > 0]|$ @ $|$ / 0|~$|1 // 0|$ < 1 < 2|round($, 'a')
$.__class__|lambda: 1|f'{1}'|%|((((|'|\x00|\ud800|\x1b[31m|$.shape[0]|op:softmax|op:*
delegate:*|(|op:[|not op:add|* if $ > 0|* if ((|live nothing.npz|by p90|10 by x|ops|run|off
~nouser/x|/dev/null|/tmp|"|\\|/e|/z|/8f $|/9999f $|nan|inf|= 1|$ = 1|$x = $|%1 = 1|3 2
1 2 3|cnn.py:40|aten_x
""".replace("\n", "|").split("|")


@pytest.mark.parametrize(
    ("name", "target"), [("cnn_xnnpack", "recorded"), ("while_loop", "runtime")]
)
@fuzzed(200, nightly=5000)
def test_lines_at_random_never_end_a_session(
    name: str,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    count: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    one = session(name) if target == "recorded" else on_runtime(name)
    completer = Completer(one.debugger)
    left_out = ("quit", "source", "replay", "record", "target", "file", "core", "gap")
    commands = [command for command in COMMANDS if command not in left_out]
    for _ in range(count):
        if one.debugger.stop is None or rng.random() < 0.1:
            one.execute("start")
        word = rng.choice(commands)
        topic = rng.choice(["ops", "tensors", "stop", "runs", ""]) if word == "info" else ""
        line = " ".join(filter(None, (word, topic, rng.choice(ARGUMENTS))))
        result = one.execute(line)
        assert result.exit_code != 70, f"{line}: {result.error!r}"
        assert "\x1b" not in result.text
        completer.complete(line)
        stop = one.debugger.stop
        if target == "runtime":
            assert stop is None or target_of(one).position == stop.position, line


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
    one.debugger.recording = "/dev/full"
    assert "the record ends" in one.execute("start").text
    assert one.debugger.recording is None


def test_folders_of_nobody_and_digits_that_are_none(tmp_path: Path) -> None:
    one = session("cnn_portable")
    complete = Completer(one.debugger).complete
    said(one, "start", "step 5")
    assert "not found" in refused(one, "file ~nobody-of-that-name/x")
    assert complete("file ~nobody-of-that-name/x")[1] == []
    assert "no line" in refused(one, "list ²")
    refused(one, "crosswalk ²")
    assert "the start of the run" in said(one, "reverse-continue 99999999999")
    (tmp_path / "my-model=2+(1).etrecord").touch()
    assert complete(f"file {tmp_path}/my-mo")[1] == [f"{tmp_path}/my-model=2+(1).etrecord"]
