"""The command: options, scripts, JSON, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope._version import __version__
from etscope.etdb import Session
from tests.support.artifacts import artifacts
from tests.support.etdb.command import etdb, ex
from tests.support.etdb.sessions import script, session


def files(name: str) -> list[object]:
    artifact = artifacts(name)
    return [artifact.etrecord, artifact.etdump, "-b", artifact.debug_buffer]


def test_commands_come_from_options_files_and_standard_input(tmp_path: Path) -> None:
    path = script(tmp_path, "# a comment", "", "step", "print $.shape")
    done = etdb(*files("cnn_portable"), "-ex", "start", "-x", path, "--batch")
    assert done.returncode == 0
    assert "[1] aten__native_batch_norm" in done.stdout
    assert done.stdout.endswith("[1, 8, 16, 16]\n")
    piped = etdb(*files("cnn_portable"), input="start\nstep\nquit\nstep\n")
    assert piped.returncode == 0
    assert piped.stdout.count("instruction") == 2
    for json_option in ([], ["--json"]):  # both are done
        done = etdb(*files("cnn_portable"), *json_option, "-ex", "nope", input="start\n")
        assert done.returncode == 2
        assert "aten_convolution_default" in done.stdout


def test_options_and_files_of_commands_keep_the_order_given(tmp_path: Path) -> None:
    first, second = tmp_path / "first.etdb", tmp_path / "second.etdb"
    first.write_text("print 1\nprint 2\n")
    second.write_text("print 4\n")
    done = etdb(
        "--batch", "-x", first, "-ex", "print 3", f"--script={second}", "-ex", "print 5",
        "-x", first,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1", "2", "3", "4", "5", "1", "2"]
    done = etdb("--batch", "-ex", "print 1", "-ex", "-x", "-x", second)  # -x is a command here
    assert done.stdout.split() == ["1", "4"]
    assert "unknown command '-x'" in done.stderr


def test_answers_to_standard_output_and_errors_to_standard_error() -> None:
    done = etdb(*files("cnn_portable"), "--batch", *ex("step", "start"))
    assert done.returncode == 2
    assert "has not begun" in done.stderr
    assert "error" not in done.stdout
    assert "aten_convolution_default" in done.stdout


def test_exit_codes() -> None:
    nan = files("nan_output")
    assert etdb(*nan, "--batch", *ex("watch nan", "run")).returncode == 1
    assert etdb(*nan, "--batch", *ex("watch inf", "run")).returncode == 0
    assert etdb(artifacts("nan_output").etdump, "--batch", "-ex", "overview").returncode == 4
    other = [artifacts("transformer_portable").etrecord, artifacts("cnn_portable").etdump]
    done = etdb(*other, "--batch")
    assert done.returncode == 3
    assert "do not belong together" in done.stderr
    assert "Traceback" not in done.stderr
    assert etdb(*other, "--force", "--batch", "-ex", "start").returncode == 0
    assert etdb("nothing.etdp").returncode == 2
    assert etdb("--nothing").returncode == 2
    assert etdb("--batch", "-x", "nothing.etdb").returncode == 2
    assert etdb("--batch", "-ex", "source nothing.etdb").returncode == 2


def test_a_debug_buffer_of_any_name_is_named_by_its_option(tmp_path: Path) -> None:
    artifact = artifacts("cnn_portable")
    assert artifact.debug_buffer is not None
    path = tmp_path / "logged.dbg"
    path.write_bytes(artifact.debug_buffer.read_bytes())
    rest = ("--batch", *ex("start", "print $.shape", "core"))
    done = etdb(artifact.etrecord, artifact.etdump, "-b", path, *rest)
    assert done.returncode == 0, done.stderr
    assert "[1, 8, 16, 16]" in done.stdout
    assert f"debug buffer: {path}" in done.stdout
    done = etdb(artifact.etrecord, artifact.etdump, path, *rest)
    assert done.returncode == 2
    assert "with the option -b" in done.stderr
    session = Session(artifact.etrecord, artifact.etdump, debug_buffer=path)
    assert session.start().ok
    assert session.print("$.shape").text == "[1, 8, 16, 16]\n"


def told(*options: object) -> tuple[list[dict[str, Any]], int]:
    """The objects that --json prints, and the exit code."""
    done = etdb(*files("cnn_portable"), "--json", "--batch", *options)
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def test_json_is_an_object_a_command() -> None:
    (first, second, third), _ = told(*ex("start", "nope", "top 2"))
    assert first["ok"]
    assert first["stop"]["node"] == "aten_convolution_default"
    assert first["stop"]["source"][0].endswith("cnn.py:35")
    assert not second["ok"]
    assert second["error"]["slug"] == "usage"
    assert third["answer"][0]["rows"][0]["avg_ms"] > 0


def test_json_names_the_command_that_was_given_where_a_breakpoint_has_commands() -> None:
    lines = ("break op:relu", "commands", "print 1", "print 2", "end", "run", "continue")
    found, _ = told(*ex(*lines))
    assert [one["command"] for one in found] == list(lines)
    assert found[-1]["answer"][-2:] == [{"value": "1", "number": 1}, {"value": "2", "number": 2}]


def test_json_has_nan_and_infinities_by_name() -> None:
    lines = ("print nan", "print -inf", "start", "print $[0, 0] * nan", "print $[0, 0] - inf")
    answers = [one["answer"][-1] for one in told(*ex(*lines))[0]]
    assert [answers[at]["number"] for at in (0, 1)] == ["NaN", "-Infinity"]
    for answer, name in zip(answers[-2:], ("NaN", "-Infinity"), strict=True):
        assert set(np.ravel(answer["numbers"])) == {name}
        assert [answer[key] for key in ("min", "max", "mean", "std")] == [None] * 4


def test_json_of_a_script_is_an_object_a_command(tmp_path: Path) -> None:
    path = tmp_path / "script.etdb"
    for lines, codes in (("start\n\ntop 2\n", [0, 0]), ("# x\nstart\nnope\nstep\n", [0, 2, 0])):
        path.write_text(lines)
        found, code = told("-x", path)
        assert [one["exit_code"] for one in found] == codes
        assert [one["command"] for one in found] == [
            line for line in lines.splitlines() if line and not line.startswith("#")
        ]
        assert code == max(codes)
    nested = tmp_path / "nested.etdb"
    nested.write_text(f"source {path}\n")
    (told_once,), code = told("-x", nested)
    assert (told_once["ok"], told_once["exit_code"], code) == (False, 2, 2)
    path.write_text("start\nquit\n")
    done = etdb(*files("cnn_portable"), "-x", path, input="step\n")
    assert "[1]" not in done.stdout


def test_the_lines_of_a_refused_block_are_skipped(tmp_path: Path) -> None:
    for refused in ("define g", "define 1x", "commands", "commands 7"):
        lines = (refused, "# more", "print 1+1", "print 2+2", "end", "print 3+3")
        path = script(tmp_path, *lines)
        for done in (
            etdb("--batch", "-x", path),
            etdb("--batch", "-ex", f"source {path}"),
            etdb(input="".join(f"{line}\n" for line in lines)),
        ):
            assert done.returncode == 2
            said = (done.stdout + done.stderr).split("\n")
            assert sum("error:" in line for line in said) == 1, said
            assert "6" in said
            assert "2" not in said
            assert "4" not in said
    done = etdb("--batch", *ex("commands", "print 1"))
    assert "no breakpoints" in done.stderr
    assert "no end follows" in done.stderr


def test_no_torch_until_a_reference_needs_it() -> None:
    artifact = artifacts("cnn_portable")
    dump, buffer = str(artifact.etdump), str(artifact.debug_buffer)
    program = (
        "import sys\nfrom etscope.etdb import Session\n"
        f"s = Session({str(artifact.etrecord)!r}, {dump!r}, {buffer!r})\n"
        "lines = ('run', 'start', 'print $', 'list', 'bt', 'top', 'overview', 'info tensors')\n"
        "for line in lines:\n"
        "    assert s.execute(line).ok, line\n"
        "assert not {'torch', 'executorch', 'pandas'} & set(sys.modules)\n"
        f"s = Session({dump!r}, debug_buffer={buffer!r})\n"  # nor to say that there is none
        "for line in ('gap', 'blame'):\n"
        "    assert 'hint: load one: file MODEL.etrecord' in s.execute(line).text, line\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.nightly  # tests of reference.Background alone are in test_loading.py
def test_ctrl_c_does_not_cut_off_the_import_of_torch() -> None:
    artifact = artifacts("cnn_portable")
    program = f"""
import os, signal, sys, threading, time
from etscope.etdb import Session
from etscope.etdb.targets import reference

def interrupt():
    while "torch" not in sys.modules:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

reference._SILENT_SECONDS = 0
session = Session({str(artifact.etrecord)!r}, {str(artifact.etdump)!r},
                  {str(artifact.debug_buffer)!r})
session.debugger.inputs = __import__("numpy").load({str(artifact.inputs)!r})["forward/0/0"],
session.start()
threading.Thread(target=interrupt).start()
try:
    session.execute("print $")
except KeyboardInterrupt:
    print("interrupted")
print(session.execute("print $").text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("interrupted\nfloat32[1, 8, 16, 16]")
    assert "gap: SQNR" in done.stdout
    # Said in each wait that is long enough.
    notice = "loading PyTorch and the reference; Ctrl-C ends the wait"
    assert set(done.stderr.splitlines()) == {notice}


def test_help_and_version() -> None:
    done = etdb("--help")
    assert done.returncode == 0
    assert "etdb MODEL.etrecord RUN.etdp" in " ".join(done.stdout.split())  # however wide it is
    assert __version__ in etdb("--version").stdout


def test_scripts_run_scripts_but_not_without_end(tmp_path: Path) -> None:
    path = tmp_path / "again.etdb"
    path.write_text(f"source {path}\n")
    done = etdb("-x", path, "--batch")
    assert "nested too deeply" in done.stdout + done.stderr
    assert done.returncode == 2


def test_a_session_is_recorded_and_replayed(tmp_path: Path) -> None:
    record = tmp_path / "session.txt"
    done = etdb(
        *files("cnn_portable"), "--batch", "-ex", f"record {record}", "-ex", "start",
        "-ex", "nope", "-ex", "define twice", "-ex", "step", "-ex", "end", "-ex", "twice",
        "-ex", "record off", "-ex", "step",
    )  # fmt: skip
    assert done.returncode == 2
    text = record.read_text()
    assert "(etdb) start\n[0] aten_convolution_default" in text
    assert "error: unknown command 'nope'" in text
    assert "(etdb) define twice\n> step\n> end\n(etdb) twice\n[1] " in text
    assert "record" not in text and "ms" not in text
    again = etdb(*files("cnn_portable"), "--batch", "-ex", f"replay {record}")
    assert again.returncode == 0
    assert "6 of 6 lines as recorded" in again.stdout
    record.write_text(text.replace("aten_convolution_default ·", "another ·"))
    other = etdb(*files("cnn_portable"), "--batch", "-ex", f"replay {record}")
    assert other.returncode == 1
    assert "(etdb) start\n  - [0] another ·" in other.stdout
    assert "\n  + [0] aten_convolution_default ·" in other.stdout
    assert "5 of 6 lines as recorded" in other.stdout


def test_a_bug_report_has_no_weights_unless_asked(tmp_path: Path) -> None:
    small, whole = tmp_path / "small.zip", tmp_path / "whole.zip"
    done = etdb(
        *files("cnn_portable"), "--batch", "-ex", "start", "-ex", f"bug-report {small}",
        "-ex", f"bug-report --weights {whole}", "-ex", f"bug-report {small}",
    )  # fmt: skip
    assert f"cannot write {small}: File exists" in done.stderr
    with zipfile.ZipFile(small) as file:
        names = set(file.namelist())
        assert "(etdb) start" in file.read("session.txt").decode()
        assert "executorch 1." in file.read("versions.txt").decode()
        assert "cnn.py" in file.read("bt-full.txt").decode()
    with zipfile.ZipFile(whole) as file:
        more = set(file.namelist()) - names
    artifact = artifacts("cnn_portable")
    assert artifact.debug_buffer is not None
    assert more == {Path(artifact.etrecord).name, artifact.debug_buffer.name}


def test_without_files_the_last_run_is_debugged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = artifacts("cnn_portable")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ETSCOPE_RUNS", raising=False)
    for number in (1, 2):
        run = tmp_path / ".etscope" / "runs" / f"{number:03}-cnn"
        run.mkdir(parents=True)
        shutil.copy(str(artifact.etrecord), run / "model.etrecord")
        shutil.copy(str(artifact.etdump), run / "run.etdp")
    done = etdb("--batch", "-ex", "start")
    assert "the last run: .etscope/runs/002-cnn" in done.stderr
    assert "[0] aten_convolution_default" in done.stdout
    monkeypatch.setenv("ETSCOPE_RUNS", "")
    assert "no recorded run is loaded" in etdb("--batch", "-ex", "start").stderr


BAD_LINES = """
break|tbreak (|watch|print|print (|x|x/|x/9|set|set %|set = 1|call|list|list/z|list 3 4|frame 99|up
down|finish|until|until (|select|graph x|back|top by|diff|diff '|file '|core x|target x|info|source
help x|gap x|crosswalk x|disassemble x|delete x|display (|undisplay x|condition|condition x|enable
step x|step 0|step -1|continue x|run x|run -1|$|/|\\|%12|print %|\x00|print \x1b[2J
"""


@pytest.mark.parametrize("begin", ["info runs", "start", "run"])
def test_bad_input_to_every_command_is_a_message(begin: str) -> None:
    one = session("cnn_portable", inputs=False)
    for line in BAD_LINES.replace("\n", "|").strip("|").split("|"):
        one.execute(begin)
        result = one.execute(line)
        assert result.ok or str(result.error), line
        assert "\x1b" not in result.text.replace(line, "")
        assert one.execute("info runs").ok


def test_characters_that_a_stream_has_not_are_escaped() -> None:
    artifact = artifacts("cnn_portable")
    done = subprocess.run(
        [sys.executable, "-m", "etscope.etdb", str(artifact.etrecord), str(artifact.etdump)],
        input=b"start\n\xff\xfe\n",
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 2
    assert rb"\xb7 instruction 0" in done.stdout
    assert b"Traceback" not in done.stderr
