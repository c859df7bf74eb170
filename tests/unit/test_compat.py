"""Scripts for `executorch.devtools` run on etscope: names, identity of types, what is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etscope.compat import counterpart
from etscope.formats.etdump.writer import ETDumpWriter

SOURCE = Path(__file__).resolve().parents[2] / "src"


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-W", "error", "-m", "etscope.compat", *words)


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    return command(folder, "script.py", *arguments)


def test_a_module_of_a_checkout_is_that_of_the_package(dump: Path, tmp_path: Path) -> None:
    words = "--etdump_path", str(dump)
    for module in ("devtools.inspector.inspector_cli", "sdk.inspector.inspector_cli"):
        done = command(tmp_path, "-m", module, *words)
        assert done.returncode == 0 and "Method::execute" in done.stdout, done.stderr
    own = tmp_path / "devtools"
    own.mkdir()
    (own / "mine.py").write_text("print('mine')")
    assert command(tmp_path, "-m", "devtools.mine").stdout == "mine\n"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.log_profiling("Method::execute", 0, 2_000_000)
    writer.save(tmp_path / "run.etdp")
    return tmp_path / "run.etdp"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("executorch.devtools", "etscope"),
        ("executorch.sdk", "etscope"),
        ("executorch.sdk.edir.et_schema", "etscope.debug_format.et_schema"),
        ("executorch.devtools.inspector.inspector_cli", "etscope.inspector.inspector_cli"),
        (
            "executorch.devtools.intermediate_output_tap._selectors",
            "etscope.intermediate_output_tap",
        ),
        ("executorch.exir", None),
        ("executorch.devtoolsmith", None),
        ("numpy", None),
    ],
)
def test_modules_by_name(theirs: str, ours: str | None) -> None:
    assert counterpart(theirs) == ours


def test_a_script_reads_a_dump_and_nothing_more_is_said(tmp_path: Path, dump: Path) -> None:
    done = run(
        tmp_path,
        "import sys\n"
        "import executorch.devtools.inspector as inspector\n"
        "from executorch.devtools import Inspector\n"
        "from executorch.sdk import Inspector as Older\n"
        "from executorch.devtools.inspector._inspector_utils import TimeScale\n"
        "from executorch.devtools.bundled_program.schema.bundled_program_schema import Bool\n"
        "import etscope, pickle\n"
        "assert Inspector is Older is inspector.Inspector is etscope.Inspector\n"
        "assert pickle.loads(pickle.dumps(TimeScale.US)) is etscope.TimeScale.US\n"
        "assert etscope.inspector.__spec__.name == 'etscope.inspector'\n"
        "assert Bool.__module__ == 'etscope.formats.program.bpte'\n"  # a package, upstream
        "assert __name__ == '__main__' and sys.path[0] != ''\n"
        "(block,) = Inspector(sys.argv[1]).event_blocks\n"
        "print(block.name, block.events[0].perf_data.raw, sys.argv[2:])\n"
        "assert 'torch' not in sys.modules\n"
        "try:\n    import executorch.devtools.nowhere\n"  # a script may do without a name
        "except ImportError:\n    print('without')\n",
        str(dump),
        "more",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Execute [2.0] ['more']\nwithout\n"


def test_a_module_of_upstream_runs(tmp_path: Path, dump: Path) -> None:
    module = "executorch.devtools.inspector.inspector_cli"
    done = python(dump.parent, "-m", "etscope.compat", "-m", module, "--etdump_path", str(dump))
    assert "Method::execute" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("from executorch.devtools.inspector import Nothing", "Nothing"),
        ("import executorch.devtools.nowhere", "executorch.devtools.nowhere"),
        ("from executorch.sdk.nowhere import x", "executorch.sdk.nowhere"),
        ("import executorch.devtools.bundled_program.core.nowhere", "core.nowhere"),
    ],
)
def test_what_is_not_there_names_the_page(tmp_path: Path, line: str, missing: str) -> None:
    done = run(tmp_path, line)
    last = done.stderr.splitlines()[-2:]
    assert done.returncode == 1
    assert "MissingNameError" in last[0] and missing in last[0]
    assert "docs/appendix/differences.md" in last[1]
    if missing == "core.nowhere":  # a program that installs is told the same
        program = f"from etscope import compat\ncompat.install()\n{line}\n"
        other = python(tmp_path, "-W", "error", "-c", program)
        assert (other.returncode, other.stderr.splitlines()[-2:]) == (1, last)


BEFORE = "import sys, types; sys.modules['executorch.devtools'] = types.ModuleType('x')\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["-m", "etscope.compat", "-m", "executorch.devtools.inspector.nowhere"],
            1,
            "MissingNameError: etscope has no executorch.devtools.inspector.nowhere",
        ),
        (["-m", "etscope.compat", "no.py"], 2, "etscope.compat: can't open file 'no.py'\n"),
        (["-c", "from etscope.compat import main; main([])"], 2, "-m etscope.compat SCRIPT"),
        (
            ["-c", f"{BEFORE}from etscope import compat\ncompat.install()"],
            1,
            "before the first import",
        ),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    done = python(tmp_path, "-W", "error", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == said if said.endswith("\n") else said in done.stderr
    assert "before" not in said or "UsageError" in done.stderr


def test_executorch_need_not_be_installed(tmp_path: Path, dump: Path) -> None:
    program = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'executorch' else found(n, p)\n"
        "from etscope import compat; compat.install()\n"
        "from executorch.devtools import Inspector\n"
        f"print(len(Inspector({str(dump)!r}).event_blocks))"
    )
    done = python(tmp_path, "-W", "error", "-c", program)
    assert (done.stdout, done.stderr) == ("1\n", "")


CHILD = (
    "def where():\n"
    "    from executorch.devtools import Inspector\n"
    "    return Inspector.__module__.partition('.')[0]\n"
)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_multiprocessing(tmp_path: Path, method: str) -> None:
    (tmp_path / "places.py").write_text(CHILD)
    done = run(
        tmp_path,
        "import multiprocessing\n"
        "from places import where\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "        print(pool.apply(where))\n",
    )
    assert (done.stdout, done.returncode) == ("etscope\n", 0), done.stderr


def test_python_processes_that_a_script_starts(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    child = CHILD + "import sys; print(where(), hasattr(sys, 'customized'), len(sys.argv))"
    done = run(
        tmp_path,
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-S', '-c', 'pass'], check=True)\n"
        f"child = [sys.executable, '-c', {child!r}, 'more']\n"
        "subprocess.run(child, check=True)\n"
        "os.environ['PYTHONPATH'] += os.pathsep + 'site'\n"
        "subprocess.run(child, check=True)\n",
    )
    assert (done.stdout, done.stderr) == ("etscope False 2\netscope True 2\n", "")
    assert done.returncode == 0


def test_code_of_the_command_line(tmp_path: Path) -> None:
    done = command(tmp_path, "-c", CHILD + "import sys; print(where(), sys.argv)", "-m", "x")
    assert (done.stdout, done.stderr) == ("etscope ['-c', '-m', 'x']\n", "")


def test_pytest_runs_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # which only take time
    (tmp_path / "test_places.py").write_text(
        CHILD + "def test_where():\n    assert where() == 'etscope'\n"
    )
    done = command(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_places.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
