"""Commands and code of the documentation fit etscope, without running them: `make test-nightly`
runs the pages (tests/e2e/docs)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from etscope.cli import COMMANDS
from etscope.cli._app import _Session, cli
from etscope.errors import EtscopeError, MissingFileError
from etscope.etdb.__main__ import command as etdb
from tests.contract.source_tree import ROOT
from tests.support.docs.pages import blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {"etscope": cli, "etdb": etdb}
# Its names are there when they are used, which imports torch; test_public_names.py tests them.
NEEDS_TORCH = "etscope.intermediate_output_tap"
INLINE = re.compile(r"`((?:etscope|etdb) [^`\n]+)`")


# -- commands


@pytest.fixture(autouse=True, scope="module")
def some_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Three kept runs, as a reader of the docs has: commands without RUN take them."""
    folder = tmp_path_factory.mktemp("runs")
    for number in range(3):
        (folder / f"00{number}-model").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETSCOPE_RUNS", str(folder))
        yield


def calls(line: str) -> Iterator[list[str]]:
    """The words of each call of etscope and etdb in a line of a shell."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    call: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= set("();<>|&"):
            if call and call[0] in PROGRAMS:
                yield call
            call = []
        elif call or not (word == "do" or "=" in word):  # in a loop; a variable is set before
            call.append(word)


def fault_of(call: list[str]) -> str | None:
    """Why the command line would refuse the call. Files need not be there."""
    name, *given = call
    command: click.Command | None = PROGRAMS[name]
    context = None
    try:
        while command is not None:
            context = command.make_context(name, given, parent=context, obj=_Session())
            if not isinstance(command, click.Group):
                break
            rest = [*context._protected_args, *context.args]
            if not rest:  # a group that does something by itself
                break
            name, command, given = command.resolve_command(context, rest)
    except click.ClickException as error:
        return error.format_message()
    except (MissingFileError, click.exceptions.Exit):
        return None
    except EtscopeError as error:
        return str(error)
    return None


def unknown(text: str) -> list[str]:
    """The command, or the options, of a command in the text that are not there."""
    words = text.split()
    found: Any = PROGRAMS[words.pop(0)]
    context = click.Context(found)
    while words and isinstance(found, click.Group) and not words[0].startswith("-"):
        context = click.Context(found, parent=context)
        found = found.get_command(context, words.pop(0))
        if found is None:
            return [text]
    known = [name for one in found.get_params(context) for name in one.opts + one.secondary_opts]
    options = [match[0] for word in words if (match := re.match(r"--?[a-zA-Z][\w-]*", word))]
    return [f"{text}: {option}" for option in options if option not in known]


# -- code


def faults_of(code: str) -> Iterator[str]:
    """Code must compile, and have the names that it takes of etscope and the arguments of calls."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError as error:
        yield str(error)
        return
    try:
        names = dict(imports(nodes))
    except ImportError as error:
        yield str(error)
        return
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            fault = call_fault(node, names.get(node.func.id))
            if fault is not None:
                yield f"{ast.unparse(node)}: {fault}"


def imports(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Each name that is imported from etscope, and what it is."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "etscope":
                    importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "etscope":
            for alias in node.names:
                yield alias.asname or alias.name, imported(str(node.module), alias.name)


def imported(module: str, name: str) -> Any:
    """What `from module import name` gives; None where that would import torch."""
    found = importlib.import_module(module)
    if module == NEEDS_TORCH and name in found.__all__:
        return None
    if hasattr(found, name):
        return getattr(found, name)
    return importlib.import_module(f"{module}.{name}")


def call_fault(call: ast.Call, function: Any) -> str | None:
    """Why the function would not take these arguments."""
    keywords = {word.arg: None for word in call.keywords if word.arg is not None}
    is_starred = any(isinstance(one, ast.Starred) for one in call.args)
    if function is None or is_starred or len(keywords) < len(call.keywords):
        return None
    try:
        inspect.signature(function).bind(*call.args, **keywords)
    except TypeError as error:
        return str(error)
    return None


# -- pages


def faults(page: Path) -> list[str]:
    """What is wrong with the commands of a page's console blocks, also of those that never run,
    with its code, and with the commands in its text."""
    found = []
    for block in blocks(page):
        wrong: list[str] = []
        if block.language == "console":
            told = [(call, fault_of(call)) for line in block.commands for call in calls(line)]
            wrong = [f"{shlex.join(call)}: {fault}" for call, fault in told if fault is not None]
        elif block.language == "python":
            wrong = list(faults_of(block.code))
        found += [f"{page}:{block.line}: {fault}" for fault in wrong]
    texts = INLINE.findall(page.read_text())
    return found + [f"{page}: {fault}" for text in texts for fault in unknown(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_code_of_a_page_are_those_of_etscope(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert faults(page) == []


def test_every_verb_is_shown() -> None:
    shown = {
        call[1]
        for page in PAGES
        for block in blocks(page)
        if block.language == "console"
        for line in block.commands
        for call in calls(line)
        if call[0] == "etscope" and len(call) > 1
    }
    assert shown >= set(COMMANDS)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("$ etscope nonsense", "No such command"),
        ("$ etscope lab nonsense", "No such command"),
        ("$ etscope inspect run.etdp --by", "requires an argument"),
        ("$ etscope inspect run.etdp --nonsense", "No such option"),
        ("$ etscope info --size model.pte --by nonsense", "is not one of"),
        ("$ etscope convert model.etrecord --slim", "Missing option"),
        ("$ etdb model.etrecord --nonsense", "No such option"),
        ("$ x=1 etscope nonsense > file", "No such command"),
        ("$ job=$(etscope nonsense | head)", "No such command"),
        ("$ for i in 1 2; do etscope nonsense; done", "No such command"),
        ("$ echo x \\\n    | etscope nonsense || echo fine", "No such command"),
        ("`etscope nonsense`", "etscope nonsense"),
        ("`etscope lab nonsense`", "etscope lab nonsense"),
        ("`etscope inspect --nonsense`", "etscope inspect --nonsense: --nonsense"),
        ("`etdb --no`", "etdb --no: --no"),
        ("x = = 1", "invalid syntax"),
        ("from etscope import Inspektor", "Inspektor"),
        ("from etscope.nonsense import Inspector", "nonsense"),
        ("from etscope.run import run\nrun('model.pte', iteration=3)", "iteration"),
        ("from etscope.errors import reading\nreading()", "missing a required argument"),
        (f"from {NEEDS_TORCH} import nonsense", "nonsense"),
    ],
)
def test_what_is_wrong_is_found(block: str, words: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    if block.startswith("$"):
        page.write_text(f"```console\n$ etscope info model.pte\n{block}\n```\n")
    else:
        page.write_text(block if block.startswith("`") else f"```python\n{block}\n```\n")
    (fault,) = faults(page)
    assert words in fault
