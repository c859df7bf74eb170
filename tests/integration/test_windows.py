"""The commands that read, under the rules of Windows (tests/support/windows.py), answer as here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import ROOT, artifacts

EMULATED = pytest.mark.skipif(sys.platform != "linux", reason="Linux emulates Windows")
# Each reads `base`, `new` (the same run), `cnn` and `wrong`, or what one before it wrote.
COMMANDS = """
    inspect new
    inspect new -f csv
    inspect new -o times.csv
    inspect new -o times.csv
    info cnn/program.pte
    info new -f json
    graph new exported -f json
    graph new edge/forward -o graph.dot
    explain new
    explain new -o findings.md
    diff base new
    check base new -o check.md -o check.sarif -o check.json -o check.xml
    check check.json new -f github
    report new -o report.html
    report new -o report.html
    convert new -o trace.json
    runs import cnn/timing.etdp cnn/etrecord.bin cnn/program.pte
    runs
    inspect @0
    runs remove @0
    agent skill skills
    etdb --batch -ex break~handle:3 -ex run -ex bt -ex top wrong/wrong.etdp wrong/etrecord.bin
    numerics wrong/wrong.etdp wrong/etrecord.bin wrong/wrong.bin
""".strip().splitlines()
WITH_TORCH = """
    numerics wrong/wrong.etdp wrong/etrecord.bin wrong/wrong.bin
    etdb --batch -ex watch~nan -ex run -ex gap wrong/wrong.etdp wrong/etrecord.bin wrong/wrong.bin
""".strip().splitlines()


def answers(folder: Path, commands: list[str], **how: bool) -> list[dict[str, Any]]:
    """What the commands answer in a folder of its own with the runs."""
    folder.mkdir()
    for name, place in {
        "explained_mobile_CNN": "base", "cnn_xnnpack": "cnn", "fault_portable_1": "wrong",
    }.items():  # fmt: skip
        shutil.copytree(artifacts(name).folder, folder / place)
    shutil.copytree(folder / "base", folder / "new")
    words = [[word.replace("~", " ") for word in line.split()] for line in commands]  # ~: a space
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.windows", json.dumps({"commands": words, **how})],
        cwd=folder,
        env={
            **os.environ,
            "ETSCOPE_RUNS": "kept",
            "COLUMNS": "120",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
        },
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def compare(tmp_path: Path, commands: list[str], **how: bool) -> list[dict[str, Any]]:
    """Run the commands under both rules: the same answers and files. Returns those of Windows."""
    plain = answers(tmp_path / "plain", commands, plain=True, **how)
    windows = answers(tmp_path / "windows", commands, **how)
    for command, here, there in zip(commands, plain, windows, strict=True):
        assert there["code"] == here["code"], (command, there["stderr"])
        assert there["stdout"].replace("\r\n", "\n") == here["stdout"], command
    files = [path for path in (tmp_path / "plain").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        other = tmp_path / "windows" / path.relative_to(tmp_path / "plain")
        here, there = (one.read_bytes().replace(b"\r\n", b"\n") for one in (path, other))
        assert here == there, path
    return windows


def test_commands_that_read(tmp_path: Path) -> None:
    if sys.platform == "linux":
        found = compare(tmp_path, COMMANDS)
    else:  # the real rules; .github/workflows/tests.yml
        found = answers(tmp_path / "here", COMMANDS, plain=True)
    for command, answer in zip(COMMANDS, found, strict=True):
        verb = command.split()[0]
        wanted = 5 if verb == "numerics" else 0  # there is no torch
        assert answer["code"] == wanted, (command, answer["stderr"])


@EMULATED
@pytest.mark.nightly
def test_values_with_torch(tmp_path: Path) -> None:
    pytest.importorskip("executorch.exir")
    assert [one["code"] for one in compare(tmp_path, WITH_TORCH, torch=True)] == [1, 0]


@EMULATED
def test_what_cannot_run_says_so_in_one_line(tmp_path: Path) -> None:
    (found,) = answers(tmp_path / "windows", ["run cnn/program.pte -X runner=native --no-save"])
    assert found["code"] == 5
    assert "the native runner does not run on Windows; use it on Linux" in found["stderr"]


@EMULATED
def test_a_mapped_file_cannot_be_replaced(tmp_path: Path) -> None:
    """The rules do hold in the process of this test."""
    program = """
import mmap, sys
from pathlib import Path
from tests.support.windows import emulate
emulate()
for act in (
    lambda: __import__("fcntl"),
    lambda: Path("a").replace("held"),
    lambda: Path("held").unlink(),
    lambda: Path("a").rename("b"),
    lambda: Path("x:y").write_text("", "utf-8"),
    lambda: Path("a").write_text("\N{RIGHTWARDS ARROW}"),
):
    with open("held", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        act()
    except (OSError, ImportError, ValueError) as error:
        print(type(error).__name__)
"""
    for name in ("held", "a", "b"):
        (tmp_path / name).write_text(name)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "ModuleNotFoundError", "PermissionError", "PermissionError", "FileExistsError", "OSError",
        "UnicodeEncodeError",
    ]  # fmt: skip
