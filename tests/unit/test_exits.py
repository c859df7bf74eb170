"""Modules that are run by `python -m` end with one line for an error, and quietly when nobody reads
their output any more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from etscope.formats.etdump.writer import ETDumpWriter
from etscope.support import exits
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
    """The exit code and standard error of a module whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = python(folder, "-m", *words, stdout=writer)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


def python(folder: Path, *words: str, stdout: int) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, *words], {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "unbuffered"),
    [*((module, "") for module in MODULES), ("pte_tool.diff_pte", "1"), ("run.native", "1")],
)
def test_nobody_reads(
    folder: Path, module: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert ended(folder, f"etscope.{module}", *MODULES[module]) == (exits.BROKEN_PIPE, "")
    if module == "pte_tool.diff_pte" and not unbuffered:  # and under its upstream name
        words = ("etscope.compat", "-m", f"executorch.devtools.{module}", "a.pte", "b.pte")
        assert ended(folder, *words) == (exits.BROKEN_PIPE, "")


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
    done = python(folder, "-m", f"etscope.{words[0]}", *words[1:], stdout=subprocess.PIPE)
    assert done.returncode in (2, 3)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_each_module_with_a_command_line_is_in_the_list() -> None:
    found = {
        ".".join(path.relative_to(SOURCE / "etscope").with_suffix("").parts)
        for path in (SOURCE / "etscope").rglob("*.py")
        if re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE)
    }
    elsewhere = {
        "__main__": "the command, tested in tests/integration/cli/test_app.py",
        "etdb.__main__": "the debugger, tested in tests/integration/etdb",
        "search.bisect._repro_script": "is copied to the user, and needs no etscope",
        "size_analysis_tool.size_analysis_tool": "prints nothing",
    }
    assert found == MODULES.keys() | elsewhere.keys()


@pytest.mark.parametrize(
    ("main", "code"), [("None", 0), ("3", 3), ("sys.exit(4)", 4), ("1 / 0", 1)]
)
def test_other_exit_codes(folder: Path, main: str, code: int) -> None:
    program = f"import sys; from etscope.support.exits import exit_with; exit_with(lambda: {main})"
    assert python(folder, "-c", program, stdout=subprocess.PIPE).returncode == code
