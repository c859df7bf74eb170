"""The commands by name. A new one is a function with a decorator, in a module of `_commands`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from etscope.errors import UsageError
from etscope.etdb.debugger import Debugger
from etscope.etdb.output import Output
from etscope.model.selector import Selector

_NAME = re.compile(r"[a-z-]+")
Function = Callable[[Debugger, str], Output]

COMMANDS: dict[str, Command] = {}


@dataclass(frozen=True, slots=True)
class Command:
    """A command. usage: how it is written. words: what can follow it, for completion: "node",
    "selector", "file", "graph", "command", "metric", "method", "breakpoint", or texts themselves.
    repeats: whether an empty line does it again, as in gdb. group: its heading in help.
    """

    name: str
    function: Function
    usage: str
    group: str
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def help(self) -> str:
        """What it does: the text of its function."""
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
) -> Callable[[Function], Function]:
    """Make a function the command that `usage` begins with; its docstring is the help."""

    def register(function: Function) -> Function:
        name = _NAME.match(usage)[0]  # type: ignore[index]
        COMMANDS[name] = Command(name, function, usage, group, aliases, words, repeats)
        return function

    return register


def find_command(word: str) -> Command:
    """The command of that name, alias or unique prefix. Raises `UsageError`."""
    for one in COMMANDS.values():
        if word == one.name or word in one.aliases:
            return one
    found = [one for one in COMMANDS.values() if one.name.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.name for one in found)
        raise UsageError(f"{word!r} is ambiguous: {names}")
    close = get_close_matches(word, [*_names()], 1)
    hint = f"did you mean {close[0]!r}?" if close else "help lists the commands"
    raise UsageError(f"there is no command {word!r}", hint=hint)


def _names() -> Iterator[str]:
    for one in COMMANDS.values():
        yield one.name
        yield from one.aliases


def whole(text: str, default: int | None = None, what: str = "a number") -> int:
    """A whole number that a person wrote."""
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what} is expected, not {text!r}") from None


def selector_of(text: str) -> Selector:
    """The selector that a person wrote; `%12` is the debug handle 12, as in expressions."""
    return Selector(re.sub(r"%(\d+)", r"handle:\1", text))
