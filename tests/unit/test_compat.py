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


def run(
    folder: Path, script: str, *arguments: str, prefix: str = ""
) -> subprocess.CompletedProcess[str]:
    if prefix:
        return python(folder, "-W", "error", "-c", prefix)
    (folder / "script.py").write_text(script)
    return command(folder, "script.py", *arguments)


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
        "import etscope, pickle\n"
        "assert Inspector is Older is inspector.Inspector is etscope.Inspector\n"
        "assert pickle.loads(pickle.dumps(TimeScale.US)) is etscope.TimeScale.US\n"
        "assert etscope.inspector.__spec__.name == 'etscope.inspector'\n"
        "assert __name__ == '__main__' and sys.path[0] != ''\n"
        "(block,) = Inspector(sys.argv[1]).event_blocks\n"
        "print(block.name, block.events[0].perf_data.raw, sys.argv[2:])\n"
        "assert 'torch' not in sys.modules\n",
        str(dump),
        "more",
    )

    assert done.stdout == "Execute [2.0] ['more']\n"
    assert done.stderr == ""
    assert done.returncode == 0


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
    assert "MissingNameError" in last[0]
    assert missing in last[0]
    assert "docs/differences.md" in last[1]


def test_a_program_that_installs_is_told_the_same(tmp_path: Path) -> None:
    module = "executorch.devtools.bundled_program.core.nowhere"
    program = f"from etscope import compat\ncompat.install()\nimport {module}\n"
    done = python(tmp_path, "-W", "error", "-c", program)

    assert done.returncode == 1
    assert f"MissingNameError: etscope has no {module}" in done.stderr
    assert (
        done.stderr.splitlines()[-2:] == run(tmp_path, f"import {module}").stderr.splitlines()[-2:]
    )


def test_a_module_to_run_that_is_not_there(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "etscope.compat", "-m", "executorch.devtools.inspector.nowhere")

    assert done.returncode == 1
    assert "MissingNameError: etscope has no executorch.devtools.inspector.nowhere" in done.stderr


def test_a_module_that_is_a_package_upstream(tmp_path: Path) -> None:
    path = "devtools.bundled_program.schema.bundled_program_schema"
    done = run(tmp_path, f"from executorch.{path} import Bool\nprint(Bool.__module__)\n")

    assert (done.stdout, done.stderr) == ("etscope.formats.program.bpte\n", "")


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "etscope.compat", "nope.py")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "etscope.compat: can't open file 'nope.py'\n"


def test_a_script_may_do_without_a_name(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "try:\n    import executorch.devtools.nowhere\nexcept ImportError:\n    print('without')\n",
    )

    assert (done.stdout, done.returncode) == ("without\n", 0)


def test_executorch_need_not_be_installed(tmp_path: Path, dump: Path) -> None:
    done = run(
        tmp_path,
        "",
        prefix="import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'executorch' else found(n, p)\n"
        "from etscope import compat; compat.install()\n"
        "from executorch.devtools import Inspector\n"
        f"print(len(Inspector({str(dump)!r}).event_blocks))",
    )

    assert (done.stdout, done.stderr) == ("1\n", "")


def test_it_comes_first(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "",
        prefix="import sys, types; sys.modules['executorch.devtools'] = types.ModuleType('x')\n"
        "from etscope import compat\ncompat.install()",
    )

    assert "UsageError" in done.stderr
    assert "before the first import" in done.stderr


def test_no_script_is_a_usage_error(tmp_path: Path) -> None:
    done = run(tmp_path, "", prefix="from etscope.compat import main; main([])")

    assert done.returncode == 2
    assert "python -m etscope.compat SCRIPT" in done.stderr


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
    child = CHILD + "import sys; print(where(), sys.customized, len(sys.argv))"
    done = run(
        tmp_path,
        "import os, subprocess, sys\n"
        "os.environ['PYTHONPATH'] += os.pathsep + 'site'\n"
        f"subprocess.run([sys.executable, '-c', {child!r}, 'more'], check=True)\n",
    )

    assert (done.stdout, done.returncode) == ("etscope True 2\n", 0), done.stderr


def test_without_a_sitecustomize_of_ones_own(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-S', '-c', 'pass'], check=True)\n"
        f"subprocess.run([sys.executable, '-c', {CHILD + 'print(where())'!r}], check=True)\n",
    )

    assert (done.stdout, done.stderr, done.returncode) == ("etscope\n", "", 0)


def test_code_of_the_command_line(tmp_path: Path) -> None:
    done = command(tmp_path, "-c", CHILD + "import sys; print(where(), sys.argv)", "-m", "x")

    assert (done.stdout, done.stderr) == ("etscope ['-c', '-m', 'x']\n", "")


def test_pytest_runs_tests(tmp_path: Path) -> None:
    (tmp_path / "test_places.py").write_text(
        CHILD + "def test_where():\n    assert where() == 'etscope'\n"
    )

    done = command(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_places.py")

    assert "1 passed" in done.stdout, done.stdout + done.stderr
