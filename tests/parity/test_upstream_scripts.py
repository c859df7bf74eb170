"""Scripts that come with ExecuTorch and import its devtools, run with etscope in their place.

Each is in one of the lists below. A script that is in none fails, and so does a name that a file of
the package imports from the devtools and etscope does not have.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.artifacts import artifacts

pytest.importorskip("executorch.devtools")

from etscope import compat
from etscope.etrecord import parse_etrecord
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.pte import read_pte
from tests.contract.upstream_names import upstream_folder

PACKAGE = upstream_folder().parent
SOURCE = Path(__file__).resolve().parents[2] / "src"

NOT_RUN = {
    "backends/arm/scripts/aot_arm_compiler.py": "needs Arm's tosa_serializer and its compiler Vela",
    "examples/models/moshi/mimi/test_mimi.py": "needs torchaudio and a model from the model hub",
    "examples/nxp/aot_neutron_compile.py": "needs NXP's eIQ Neutron SDK",
    "examples/qualcomm/oss_scripts/t5/t5.py": "needs Qualcomm's SDK, a device and the model hub",
    "examples/qualcomm/oss_scripts/whisper/whisper.py": "needs Qualcomm's SDK and a device",
    "examples/qualcomm/util_scripts/cli.py": "needs Qualcomm's SDK",
    "examples/qualcomm/util_scripts/gen_etrecord.py": "needs Qualcomm's SDK and a device",
}


def recorded(*more: str) -> list[str]:
    made = artifacts("cnn_portable")
    return ["--etdump_path", str(made.etdump), "--etrecord_path", str(made.etrecord), *more]


def bundled_program() -> str:
    return str(artifacts("bundled").bpte)


# Scripts that say and write the same with upstream's devtools -> their arguments. They run in a
# folder with the files that NXP's expects.
SAME: dict[str, Callable[[], list[str]]] = {
    "backends/arm/scripts/etdump_to_chrome_trace.py": lambda: recorded("--output", "trace.json"),
    "backends/arm/scripts/get_ethosu_scratch_from_pte.py": lambda: [bundled_program()],
    "devtools/inspector/inspector_cli.py": lambda: recorded("--tsv_path", "events.tsv"),
    # Without values, which upstream shows as zeros when the debug buffer is not given.
    "devtools/scripts/generate_profiling_csv.py": lambda: [
        *("--etdump_path", str(artifacts("cnn_portable").etdump_timing)),
    ],
    "devtools/size_analysis_tool/size_analysis_tool.py": lambda: [
        *("--etrecord_path", str(artifacts("record_variants").extra("extra_modules.bin"))),
    ],
    "examples/apple/coreml/scripts/inspector_cli.py": recorded,
    "examples/nxp/analyzing_with_inspector.py": list,
}


def coreml_record(folder: Path) -> None:
    assert read_pte(folder / "add_coreml_all.pte").methods[0].delegates
    record = parse_etrecord(folder / "add_coreml_etrecord.bin")
    assert record.edge_dialect_program is not None


def coreml_partitioned(folder: Path) -> None:
    record = parse_etrecord(folder / "add_coreml_all_coreml_etrecord.bin")
    assert record.edge_dialect_program is not None


def ten_cases(folder: Path) -> None:
    (suite,) = read_bundled(folder / "bundled_program.bpte").suites
    assert [len(case.expected_outputs) for case in suite.cases] == [1] * 10


def compared(folder: Path) -> None:
    assert (folder / "snr_output_plot.png").exists()


# Script, arguments, and what it must have made.
MADE: list[tuple[str, Callable[[], list[str]], Callable[[Path], None]]] = [
    (
        "examples/apple/coreml/scripts/export.py",
        lambda: ["--model_name", "add", "--generate_etrecord"],
        coreml_record,
    ),
    (
        "examples/apple/coreml/scripts/export.py",
        lambda: ["--model_name", "add", "--generate_etrecord", "--use_partitioner"],
        coreml_partitioned,
    ),
    (
        "examples/apple/coreml/scripts/inspector_cli.py",
        lambda: [
            *("--etdump_path", str(artifacts("bundled").etdump)),
            *("--etrecord_path", str(artifacts("bundled").etrecord)),
            *("--debug_buffer_path", str(artifacts("bundled").debug_buffer), "--compare_results"),
        ],
        compared,
    ),
    ("extension/module/test/resources/gen_bundled_program.py", list, ten_cases),
    ("extension/llm/custom_ops/test_gated_delta.py", list, lambda _: None),
]


def importing_files() -> Iterator[tuple[str, ast.Module]]:
    """The files of ExecuTorch that import its devtools; those of the devtools' tests left out."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        relative = path.relative_to(PACKAGE).as_posix()
        if "devtools" in text and not re.match(r"devtools/.*(/tests?/|_test\.py$)", relative):
            tree = ast.parse(text)
            if any(True for _ in imported(tree)):
                yield relative, tree


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The modules of the devtools that a file imports from, with the names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and compat.counterpart(node.module or ""):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, "") for name in names if compat.counterpart(name))


def is_script(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
        for node in tree.body
    )


@pytest.fixture(scope="module")
def files() -> dict[str, ast.Module]:
    return dict(importing_files())


def test_each_script_is_run_or_says_why_not(files: dict[str, ast.Module]) -> None:
    scripts = {path for path, tree in files.items() if is_script(tree)}
    assert scripts == SAME.keys() | {script for script, *_ in MADE} | NOT_RUN.keys()


def test_what_they_import_is_in_etscope(files: dict[str, ast.Module]) -> None:
    """In files that are no scripts, too; but for what upstream does not have either."""
    wanted = {
        pair
        for path, tree in files.items()
        if not path.startswith("devtools/")
        for pair in imported(tree)
    }
    assert len(wanted) > 20
    missing = {(module, name) for module, name in wanted if not is_there(module, name)}
    assert missing == {("executorch.devtools.etdump.schema_flatcc", "ETDump")}
    assert not hasattr(
        importlib.import_module("executorch.devtools.etdump.schema_flatcc"), "ETDump"
    )


def is_there(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(str(compat.counterpart(module)))
        if name and not hasattr(found, name):
            importlib.import_module(f"{found.__name__}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def run(folder: Path, script: str, words: list[str], *options: str) -> str:
    """Run a script in `folder`, with the files there that NXP's script expects, and return what it
    prints."""
    made = artifacts("cnn_portable")
    for source, name in (
        (made.etdump, "etdump/trace.etdump"),
        (made.etrecord, "etrecord/etrecord.bin"),
    ):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy(source, folder / name)
    done = subprocess.run(
        [sys.executable, *options, str(PACKAGE / script), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("script", SAME)
def test_it_does_what_it_does_with_upstream(script: str, tmp_path: Path) -> None:
    words = SAME[script]()
    ours = run(tmp_path / "ours", script, words, "-m", "etscope.compat")
    theirs = run(tmp_path / "theirs", script, words)

    assert ours == theirs
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")


def contents(folder: Path) -> dict[str, object]:
    """The files of a folder by name; JSON as values."""
    return {
        path.name: json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.nightly
@pytest.mark.parametrize(("script", "words", "check"), MADE)
def test_it_makes_what_it_should(
    script: str,
    words: Callable[[], list[str]],
    check: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    run(tmp_path, script, words(), "-m", "etscope.compat")

    check(tmp_path)
