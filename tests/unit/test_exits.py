"""Modules that are run by `python -m` end with one line for an error, and quietly when nobody reads
their output any more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from etscope import exits
from etscope.formats.etdump.writer import ETDumpWriter
from tests.support.formats.handmade import integer, method, pte_file

SOURCE = Path(__file__).resolve().parents[2] / "src"
MODULES = {
    "inspector.inspector_cli": ["--etdump_path", "run.etdp"],
    "pte_tool.diff_pte": ["a.pte", "b.pte"],
    "run.native": ["--sources"],
    "scripts.generate_profiling_csv": ["--etdump_path", "run.etdp", "--output", "run.csv"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.log_profiling("Method::execute", 0, 2_000_000)
    writer.save(tmp_path / "run.etdp")
    for name, value in {"a": 1, "b": 2}.items():
        program = pte_file(method([integer(value)], name="forward", inputs=[0], outputs=[0]))
        (tmp_path / f"{name}.pte").write_bytes(program)
    return tmp_path


def ended(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and standard error of a command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("module", MODULES)
def test_nobody_reads(
    folder: Path, module: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)

    done = ended(folder, "-m", f"etscope.{module}", *MODULES[module])

    assert done == (exits.BROKEN_PIPE, "")


@pytest.mark.parametrize(
    "words",
    [
        ["inspector.inspector_cli", "--etdump_path", "nowhere.etdp"],
        ["pte_tool.diff_pte", "a.pte", "nowhere.pte"],
        ["scripts.generate_profiling_csv", "--etdump_path", "a.pte"],
        ["size_analysis_tool.size_analysis_tool", "--etrecord_path", "a.pte"],
    ],
)
def test_a_bad_file_is_one_line(folder: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"etscope.{words[0]}", *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (2, 3)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_nobody_reads_a_module_under_its_upstream_name(folder: Path) -> None:
    module = "executorch.devtools.pte_tool.diff_pte"

    done = ended(folder, "-m", "etscope.compat", "-m", module, "a.pte", "b.pte")

    assert done == (exits.BROKEN_PIPE, "")


def test_each_module_with_a_command_line_is_in_the_list() -> None:
    found = {
        ".".join(path.relative_to(SOURCE / "etscope").with_suffix("").parts)
        for path in (SOURCE / "etscope").rglob("*.py")
        if re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE)
    }
    elsewhere = {
        "__main__": "the command, tested in tests/integration/cli/test_app.py",
        "bisect._repro_script": "is copied to the user, and needs no etscope",
        "compat": "runs a script as Python does",
        "lab.worker.measure": "is started by the lab, which reads it to its end",
        "size_analysis_tool.size_analysis_tool": "prints nothing",
    }
    assert found == MODULES.keys() | elsewhere.keys()


def test_other_exit_codes(folder: Path) -> None:
    program = "import sys; from etscope.exits import exit_with; exit_with({})"
    for main, wanted in {
        "lambda: None": 0,
        "lambda: 3": 3,
        "lambda: sys.exit(4)": 4,
        "lambda: 1 / 0": 1,
    }.items():
        done = subprocess.run(
            [sys.executable, "-c", program.format(main)],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == wanted
