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
from etscope.cli import COMMANDS, CommandSpec, lab, main
from etscope.errors import EtscopeWarning, FormatError, MissingDataError, UsageError
from tests.support.artifacts import artifacts

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


def etscope_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etscope", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name}" in listed for name in COMMANDS)
    assert all(spec.help.split()[0] in listed for spec in COMMANDS.values())


def test_help_imports_no_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "broken", CommandSpec("no.such.module", "Cannot be imported."))
    assert main(["--help"]) == 0


def test_the_module_runs_as_the_command() -> None:
    assert etscope_process("--version").stdout == f"etscope {etscope.__version__}\n"


def test_no_verb_shows_the_help_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Make a program and run it:" in capsys.readouterr().err


def test_a_mistyped_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complection"]) == 2
    assert "Did you mean 'completion'?" in capsys.readouterr().err


def test_a_wrong_verb_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zzz"]) == 2
    assert ", ".join(COMMANDS) in capsys.readouterr().err


def test_commands_of_a_verb_are_found_in_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "sbumit"]) == 2
    assert "Did you mean 'submit'?" in capsys.readouterr().err


def test_help_of_the_lab_imports_no_command_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = CommandSpec("no.such.module", "Cannot be imported.")
    monkeypatch.setitem(lab.COMMANDS, "broken", broken)
    assert main(["lab", "--help"]) == 0


def test_a_wrong_option_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1), (4, 4)])
def test_a_verb_returns_its_exit_code(verb: Install, result: int | None, code: int) -> None:
    verb(lambda: result)
    assert main(["try"]) == code


def test_an_error_becomes_text_with_its_hint_and_its_section(
    verb: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    verb(raising(FormatError("not an ETDump", path="a.etdp", offset=8, hint="look at it")))
    assert main(["try"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: a.etdp at offset 8 (0x8): not an ETDump\n"
        "  hint: look at it\n"
        "  see: https://etscope.github.io/etscope/errors/#bad-file\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("u"), 2), (MissingDataError("m"), 4), (KeyboardInterrupt(), 130)],
)
def test_exit_codes(verb: Install, error: BaseException, code: int) -> None:
    verb(raising(error))
    assert main(["try"]) == code


@pytest.mark.parametrize("way", ["option", "variable"])
def test_debug_shows_the_traceback(
    verb: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    verb(raising(UsageError("wrong")))
    if way == "variable":
        monkeypatch.setenv("ETSCOPE_DEBUG", "1")
    assert main(["--debug", "try"] if way == "option" else ["try"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "error: wrong" in err


def test_a_bug_is_not_a_finding(verb: Install, capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(ZeroDivisionError("oh")))
    assert main(["try"]) == 70
    err = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in err
    assert "bug in etscope" in err


def test_a_warning_is_one_line(verb: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def function() -> None:
        warnings.simplefilter("always")
        warnings.warn("mind the gap", EtscopeWarning, stacklevel=1)

    verb(function)
    assert main(["try"]) == 0
    assert capsys.readouterr().err == "warning: mind the gap\n"


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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "redirection"),
    [("inspect ETDUMP", ">/dev/full"), ("inspect ETDUMP", ">&-"), ("--version", ">/dev/full")],
)
def test_standard_output_that_takes_nothing(
    arguments: str, redirection: str, unbuffered: str
) -> None:
    given = arguments.replace("ETDUMP", str(artifacts("cnn_portable").etdump))

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
