"""The command as a process sees it: exit codes, and what goes to which stream."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

import click
import pytest

import etscope
from etscope.cli import COMMANDS, CommandSpec, main
from etscope.errors import EtscopeWarning, FormatError, MissingDataError, UsageError
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run

Install = Callable[[Callable[[], object]], None]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes `etscope try` run a function."""

    def install(function: Callable[[], object]) -> None:
        module = ModuleType("verb_for_a_test")
        module.command = click.Command("try", callback=function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, "try", CommandSpec(module.__name__, "Try something."))

    return install


def raising(error: BaseException) -> Callable[[], object]:
    def function() -> object:
        raise error

    return function


def test_help_lists_every_verb_and_imports_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "broken", CommandSpec("no.such.module", "Cannot be imported."))
    code, listed, _ = run("--help")
    assert code == 0
    assert all(f"  {name}" in listed for name in COMMANDS)
    assert all(spec.help.split()[0] in listed for spec in COMMANDS.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Run a model:"),
        (["--nonsense"], "--nonsense"),
        (["exprot"], "Did you mean 'export'?"),
        (["zzz"], ", ".join(COMMANDS)),
    ],
)
def test_wrong_usage(run: Run, words: list[str], said: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_command_that_is_not_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **wanted: ())
    code, out, err = run("lab", "submit", "net.pte")
    assert (code, out) == (5, "")
    assert "pip install 'etscope[lab]'" in err
    assert run("--help")[0] == 0


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1), (4, 4)])
def test_a_verb_returns_its_exit_code(verb: Install, result: int | None, code: int) -> None:
    verb(lambda: result)
    assert main(["try"]) == code


def test_an_error_becomes_text_with_its_hint_and_its_section(verb: Install, run: Run) -> None:
    verb(raising(FormatError("not an ETDump", path="a.etdp", offset=8, hint="look at it")))
    said = (
        "error: a.etdp at offset 8 (0x8): not an ETDump\n"
        "  hint: look at it\n"
        "  see: https://etscope.github.io/etscope/reference/errors/#bad-file\n"
    )
    assert run("try") == (3, "", said)


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("u"), 2), (MissingDataError("m"), 4), (KeyboardInterrupt(), 130)],
)
def test_exit_codes(verb: Install, error: BaseException, code: int) -> None:
    verb(raising(error))
    assert main(["try"]) == code


@pytest.mark.parametrize("words", [["--debug", "try"], ["try"]])
def test_debug_shows_the_traceback(
    verb: Install, run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    verb(raising(UsageError("wrong")))
    if "--debug" not in words:
        monkeypatch.setenv("ETSCOPE_DEBUG", "1")
    code, _, err = run(*words)
    assert code == 2
    assert "Traceback" in err
    assert "error: wrong" in err


def test_a_bug_is_not_a_finding(verb: Install, run: Run) -> None:
    verb(raising(ZeroDivisionError("oh")))
    code, _, err = run("try")
    assert code == 70
    assert "ZeroDivisionError: oh" in err
    assert "bug in etscope" in err


def test_a_warning_is_one_line(verb: Install, run: Run) -> None:
    def function() -> None:
        warnings.simplefilter("always")
        warnings.warn("mind the gap", EtscopeWarning, stacklevel=1)

    verb(function)
    assert run("try") == (0, "", "warning: mind the gap\n")


def test_commands_that_read_import_nothing_heavy() -> None:
    made, lowered = artifacts("cnn_portable"), artifacts("cnn_xnnpack_lowered")
    lines = [
        ["info", made.etdump, made.etrecord, made.pte],
        ["graph", lowered.etrecord, "edge", "--dump", lowered.etdump],
        ["explain", made.etdump_timing, "-r", made.etrecord, "-p", made.pte],
    ]
    code = (
        "import sys; from etscope.cli import main; assert main(sys.argv[1:]) == 0; "
        "print({'torch', 'executorch', 'pandas', 'matplotlib', 'rich'} & set(sys.modules))"
    )
    for line in lines:
        command = [sys.executable, "-c", code, *map(str, line)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "set()", line


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "etscope", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()


def test_the_module_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "etscope", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"etscope {etscope.__version__}\n"


@pytest.mark.parametrize(
    ("words", "redirection", "unbuffered"),
    [
        ("inspect ETDUMP", ">/dev/full", ""),
        ("inspect ETDUMP", ">/dev/full", "1"),
        ("inspect ETDUMP", ">&-", ""),
        ("--version", ">/dev/full", ""),
    ],
)
def test_standard_output_that_takes_nothing(words: str, redirection: str, unbuffered: str) -> None:
    given = words.replace("ETDUMP", str(artifacts("cnn_portable").etdump))
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m etscope {given} {redirection}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert done.returncode == 2, done.stderr
    assert "cannot write standard output" in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
