"""Sessions for programs: commands as methods, results, help, completion."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from etscope.errors import UsageError
from etscope.etdb import Result
from etscope.etdb import __main__ as _prompt
from etscope.etdb.commands import COMMANDS, find_command, split_words
from etscope.etdb.session import Completer
from tests.support.artifacts import ROOT
from tests.support.etdb.sessions import refused, said, session


def test_every_command_is_a_method() -> None:
    one = session("cnn_portable")
    assert one.start().ok
    assert one.break_("op:relu").ok
    assert one.continue_().text.startswith("breakpoint 1")
    assert one.reverse_step().ok
    assert one.step(2).ok
    assert "aten" in repr(one.info("stop"))
    assert {"reverse_next", "break_", "continue_", "print"} <= set(dir(one))
    assert one.print.__doc__
    with pytest.raises(AttributeError, match="nothing"):
        _ = one.nothing


def test_unique_beginnings_and_aliases() -> None:
    assert find_command("s").name == "step"
    assert find_command("rs").name == "reverse-step"
    assert find_command("disp").name == "display"
    with pytest.raises(UsageError, match="ambiguous"):
        find_command("re")
    with pytest.raises(UsageError) as caught:
        find_command("brake")
    assert "did you mean 'break'" in str(caught.value)


def test_every_command_has_help() -> None:
    one = session("cnn_portable")
    tasks, overview = said(one, "help"), said(one, "help all")
    assert "blame" in tasks and len(tasks.splitlines()) < 20
    for name, command in COMMANDS.items():
        assert command.usage in overview
        assert command.help
        assert command.usage in said(one, f"help {name}")
    for topic in ("", "all", *COMMANDS, "expressions", "selectors", "metrics"):
        assert "`" not in said(one, f"help {topic}")
    assert "'break net.py:12'" in said(one, "help break")
    assert "ref(NAME)" in said(one, "help expressions")
    assert "module:blocks.0" in said(one, "help selectors")
    assert "SQNR" in said(one, "help metrics")
    assert "unknown command" in refused(one, "help nothing")


def test_a_value_is_an_array_of_numpy() -> None:
    one = session("cnn_portable")
    said(one, "start", "until op:softmax")
    value = one.value()
    assert isinstance(value, np.ndarray)
    assert (value.shape, value.dtype) == ((1, 10), np.float32)
    assert one.value("$[0, 3]") == value[0, 3]
    assert one.value("$.shape") == [1, 10]
    assert isinstance(one.value("$ > 0.5"), np.ndarray)
    with pytest.raises(UsageError, match="no value is called"):
        one.value("nothing")


def test_commands_are_defined_of_others(tmp_path: Path) -> None:
    one = session("cnn_portable")
    assert one.prompt == "(etdb) "
    said(one, "define most")
    assert one.prompt == "> "
    said(one, "# a comment", "", "print $arg0.max()", "print $arg0.ndim + $arg1", "end")
    assert one.prompt == "(etdb) "
    assert said(one, "start", "most $ 3") == said(one, "print $.max() + 0") + "7\n"
    assert "$arg0 is not given" in refused(one, "most")
    assert "print $arg0.max()" in said(one, "help most")
    assert Completer(one.debugger).complete("mo")[1] == ["most"]
    assert "is a command of etdb" in refused(one, "define s")
    assert "cannot be the name of a command" in refused(one, "define 1x")
    said(one, "define again", "again", "end")
    assert "nested too deeply" in one.execute("again").text
    said(one, "define most", "end")
    assert "unknown command" in refused(one, "most")
    path = tmp_path / "open.etdb"
    path.write_text("define y\nprint 1\n")
    result = one.execute(f"source {path}")
    assert result.exit_code == 2
    assert "no end follows" in result.text
    assert one.prompt == "(etdb) "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rev", "reverse-step"),
        ("break op:aten.re", "op:aten.relu.default"),
        ("break mod", "module:"),
        ("break module:sta", "module:stages.0"),
        ("print aten_add", "aten_add_tensor"),
        ("print 1 + aten_add", "aten_add_tensor"),
        ("info mem", "memory"),
        ("graph ex", "exported"),
        ("list c", "cnn.py"),
        ("help rev", "reverse-continue"),
        ("gap sq", "sqnr"),
        ("select ste", "stem.conv"),
        ("target l", "live"),
        ("file tests/unit/etd", "tests/unit/etdb/"),
    ],
)
def test_lines_are_completed(line: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    _, found = Completer(session("cnn_portable").debugger).complete(line)
    assert expected in found


def test_lines_that_cannot_be_meant() -> None:
    one = session("cnn_portable")
    said(one, "start")
    for line, words in {
        "print 2 ** 9999": "an exponent is a number up to",
        "print #999": "no stop of this run belongs to instruction 999",
        "print {1}": "is not part of the language of expressions",
        "print nothing(1)": "nothing() is not known",
        "print/e 1": "print has no option /e",
        "bt all": "bt or bt full, not bt all",
        "checkpoint 1": "checkpoint takes no arguments",
        "ignore 1": "ignore needs a breakpoint and a number of hits",
        "disable": "which breakpoints?",
        "save points x": "cannot read 'points x'",
    }.items():
        assert words in refused(one, line), line


def test_a_ctrl_c_while_an_answer_is_shown_ends_that_answer_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    def show(result: Result, **_: object) -> None:
        shown.append(result.line)
        if result.line == "start":
            raise KeyboardInterrupt

    monkeypatch.setattr(_prompt, "available", lambda _: False)
    monkeypatch.setattr(_prompt, "_lines", lambda *_: iter(["start", "step", "quit", "step"]))
    monkeypatch.setattr(_prompt, "show", show)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    assert _prompt.interact(session("cnn_portable")) == 0
    assert shown == ["start", "step", "quit"]
    assert capsys.readouterr().err == "interrupted\n"


def test_words_of_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_words(r"a\ b 'c d' #e") == ["a b", "c d", "#e"]
    monkeypatch.setattr("sys.platform", "win32")
    assert split_words(r"C:\runs\a 'C:\my runs'") == [r"C:\runs\a", r"C:\my runs"]
