"""What the documentation says is run, so that it stays true: the pages that take a second or two in
make test-all, the others each night. tests/contract/test_docs_commands.py checks the commands and
code of all of them without running them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.artifacts import artifacts
from tests.support.docs.pages import ROOT, blocks, wanted_artifacts
from tests.support.warm import warm_python

# Pages with nothing to run, and why.
QUIET = {
    "CONTRIBUTING.md": "what it tells to run is run by CI",
    "cli.md": "generated from --help, and compared with it",
    "benchmarks.md": "the benchmarks print its table",
    "glossary.md": "words",
    "systems.md": "tables of what was run where",
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Seconds, without an export. What the others show is also tested beside the code.
QUICK = {
    *("README.md", "index.md", "errors.md", "metrics.md", "formats.md", "findings.md"),
    *("differences.md", "etdb-protocol.md", "python.md"),
}
RUN = [
    pytest.param(page, True, id=page.name, marks=() if page.name in QUICK else pytest.mark.nightly)
    for page in PAGES
    if page.name not in QUIET
]
# What a page tells to start is forked; that of the first page really begins, at night.
RUN.append(pytest.param(PAGES[0], False, id="real commands", marks=pytest.mark.nightly))


def run_page(
    page: Path, folder: Path, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg", "COLUMNS": "100"}
    del environment["ETSCOPE_RUNS"]  # runs are kept in the page's folder, as for a reader
    environment["ETSCOPE_LAB"] = str(folder / "lab")
    return subprocess.run(
        [python, "-m", "tests.support.docs.pages", str(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def lay_out(name: str, folder: Path) -> None:
    """Copy an artefact's files, under the names that the pages use."""
    made = artifacts(name)
    folder.mkdir(exist_ok=True)
    for target, source in {
        "model.pte": made.pte,
        "model.etrecord": made.etrecord,
        "run.etdp": made.etdump,
        "debug.bin": made.debug_buffer,
        "weights.ptd": made.folder / "weights.ptd",
    }.items():
        if source is not None and source.is_file():
            shutil.copyfile(source, folder / target)


@pytest.mark.parametrize(("page", "forked"), RUN)
def test_what_a_page_shows_works(page: Path, forked: bool, tmp_path: Path) -> None:
    for number, name in enumerate(wanted_artifacts(page)):
        lay_out(name, tmp_path if number == 0 else tmp_path / name)
    done = run_page(page, tmp_path, warm_python() if forked else sys.executable)
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_page_runs_something_and_names_the_languages_of_its_blocks() -> None:
    assert {page.name for page in PAGES} >= QUIET.keys() | QUICK
    for page in PAGES:
        found = blocks(page)
        assert page.name in QUIET or any(block.runs for block in found), page
        assert [block.line for block in found if not block.language] == [], page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "assert x == 2"),
        ("```console\n$ echo fine\nfine\n$ exit 3\n```\n", "+ exit 3"),
        (
            "```console\n$ printf 'a\\nb\\nc\\n'\n```\n\n<!-- output -->\n```text\na\nc\n```\n",
            "not printed: 'c'",
        ),
    ],
)
def test_a_wrong_page_is_found(tmp_path: Path, text: str, words: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run_page(page, tmp_path)
    assert done.returncode != 0
    assert words in done.stderr


def test_a_right_page_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- no-run: it would fail -->\n```python\n1 / 0\n```\n\n"
        "<!-- file: a.txt -->\n```text\nhello\n```\n\n"
        "```python\nfrom pathlib import Path\ntext = Path('a.txt').read_text()\n```\n\n"
        "1. In a list:\n\n    ```python\n    assert text == 'hello\\n'\n    ```\n\n"
        "```console\n$ etscope --version \\\n    | grep etscope\n```\n"
        "```console\n$ printf 'a\\nb\\nc  ██▎\\nd\\n'\n```\n\n"
        "<!-- output -->\n```text\na\n…\nc\nd\n```\n"
    )
    done = run_page(page, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [block.runs for block in blocks(page)] == [False, True, True, True, True, True, False]
