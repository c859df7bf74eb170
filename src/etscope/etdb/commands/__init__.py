"""The commands, one module per subject, which the import of this package registers. A new command
is a function with the decorator `command` in one of the modules."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from etscope.errors import UsageError
from etscope.etdb.debugger import Debugger
from etscope.etdb.output import Output

_NAME = re.compile(r"[a-z-]+")
Function = Callable[[Debugger, str], Output]

COMMANDS: dict[str, Command] = {}


@dataclass(frozen=True, slots=True)
class Command:
    """A command. usage: its syntax. group: its heading in help. words: kinds of its arguments, for
    completion: "node", "selector", "file", "graph", "command", "metric", "method", "breakpoint",
    or literal words. repeats: an empty line repeats it, as in gdb. takes_lines: the lines that
    follow, up to `end`, belong to it.
    """

    name: str
    function: Function
    usage: str
    group: str
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    repeats: bool = False
    takes_lines: bool = False

    @property
    def help(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return self.help.partition("\n\n")[0].replace("\n", " ")


def command(
    usage: str,
    *,
    group: str,
    aliases: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    repeats: bool = False,
    takes_lines: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as a command, with the first word of `usage` as its name; its docstring
    is the help.
    """

    def register(function: Function) -> Function:
        name = _NAME.match(usage)[0]  # type: ignore[index]
        COMMANDS[name] = Command(name, function, usage, group, aliases, words, repeats, takes_lines)
        return function

    return register


def find_command(word: str) -> Command:
    """Find a command by name, alias or unique prefix. Raises `UsageError`."""
    for one in COMMANDS.values():
        if word == one.name or word in one.aliases:
            return one
    found = [one for one in COMMANDS.values() if one.name.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.name for one in found)
        raise UsageError(f"{word!r} is ambiguous: {names}")
    known = [name for one in COMMANDS.values() for name in (one.name, *one.aliases)]
    close = get_close_matches(word, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else "help lists the commands"
    raise UsageError(f"unknown command {word!r}", hint=hint)


def whole(text: str, default: int | None = None, what: str = "a number") -> int:
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what} is expected, not {text!r}") from None


def split_words(rest: str) -> list[str]:
    """Split arguments as a shell does; on Windows, a backslash is part of a path. Raises
    `UsageError`."""
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    lexer.escape = "" if sys.platform == "win32" else lexer.escape
    try:
        return list(lexer)
    except ValueError as error:
        raise UsageError(f"cannot read {rest!r}: {error}") from error


def flag_of(rest: str, name: str, flag: str, effect: str) -> tuple[bool, str]:
    """Split the flag off a command's arguments: "/f x" is (True, "x"). Raises `UsageError`."""
    if not rest.startswith("/"):
        return False, rest
    option, _, rest = rest[1:].partition(" ")
    if option != flag:
        raise UsageError(f"{name} has no option /{option}", hint=f"{name}/{flag} {effect}")
    return True, rest


# In the order of `help`, whichever module is imported first.
_MODULES = (
    "running", "breaks", "source", "values", "numerics", "times", "graph", "targets",
    "info",
)  # fmt: skip
for _name in _MODULES:
    importlib.import_module(f"{__name__}.{_name}")
