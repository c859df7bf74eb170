"""`-X KEY=VALUE` and `-X FILE.toml`: rare options of a verb, checked like the others.

A setting is declared among the options of a command, and reaches its function as a parameter of
the same name. The key is that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from etscope.errors import FormatError, UsageError, reading

__all__ = ["Setting", "setting"]

_GIVEN = "etscope.settings"  # key of click's context: the texts of each setting


class Setting(click.Option):
    """A key of `-X`, with the type, default and help of an option.

    takes_dotted: the setting takes the keys with a dot, as "vulkan.force_fp16=true".
    """

    def __init__(self, declared: Sequence[str], *, takes_dotted: bool = False, **more: Any) -> None:
        if isinstance(more.get("type"), click.types.IntRange):
            more.setdefault("metavar", "N")
        super().__init__(declared, hidden=True, **more)
        self.takes_dotted = takes_dotted
        self.opts = [f"-X {self.name}"]  # its name in messages

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add nothing: the value comes from `-X`."""

    def consume_value(self, ctx: click.Context, opts: Any) -> tuple[Any, ParameterSource]:
        texts = ctx.meta.get(_GIVEN, {}).get(self.name)
        if texts is None:
            return super().consume_value(ctx, {})
        if not self.multiple and len(texts) > 1:
            raise UsageError(f"{self.opts[0]} is given twice: {texts[0]} and {texts[1]}")
        return (tuple(texts) if self.multiple else texts[0]), ParameterSource.COMMANDLINE

    def help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the key with the form of its value, and its help."""
        shown = copy(self)
        shown.hidden, shown.opts = False, [f"--{self.name}"]
        words, text = shown.get_help_record(ctx) or ("", "")
        form = words.partition(" ")[2]
        return form if self.takes_dotted else f"{self.name}={form}", text


def setting(name: str, **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds a setting to a command; `options` are those of
    `click.option`.
    """
    return click.option(f"--{name}", name, cls=Setting, **options)


def switch(name: str, default: bool | None, help: str) -> Callable[[Any], Any]:
    """Return a decorator that adds a true-or-false setting to a command."""
    return setting(name, type=click.BOOL, metavar="true|false", default=default, help=help)


def settings_of(command: click.Command) -> list[Setting]:
    """Return the settings of a command."""
    return [one for one in command.params if isinstance(one, Setting)]


def write_settings(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the section of the help that lists the keys."""
    with formatter.section("Settings (-X KEY=VALUE, or a FILE.toml with these keys)"):
        formatter.write_dl([one.help_record(ctx) for one in settings_of(ctx.command)])


def _read(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> None:
    if ctx.resilient_parsing:
        return
    if "help" in given:
        formatter = ctx.make_formatter()
        write_settings(ctx, formatter)
        click.echo(formatter.getvalue().strip())
        ctx.exit()
    of_files: dict[str, list[str]] = {}
    of_pairs: dict[str, list[str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if equals and not Path(text).is_file():
            name, texts = _named(ctx, key, [value])
            of_pairs.setdefault(name, []).extend(texts)
        elif Path(text).suffix == ".toml":
            for name, texts in _of_file(ctx, text):
                of_files.setdefault(name, []).extend(texts)
        else:
            raise UsageError(
                f"-X {text} is neither KEY=VALUE nor a .toml file",
                hint=f"{ctx.command_path} -X help lists the keys",
            )
    ctx.meta[_GIVEN] = of_files | of_pairs


def _named(ctx: click.Context, key: str, texts: list[str]) -> tuple[str, list[str]]:
    """Return the parameter of a key, and its values. Raises `UsageError` for an unknown key."""
    known = settings_of(ctx.command)
    dotted = next((str(one.name) for one in known if one.takes_dotted), None)
    if "." in key and dotted is not None:
        return dotted, [f"{key}={text}" for text in texts]
    name = key.strip().replace("-", "_")
    names = [str(one.name) for one in known if not one.takes_dotted]
    if name not in names:
        from difflib import get_close_matches

        close = get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"unknown key -X {key}",
            hint=f"{hint}{ctx.command_path} -X help lists the keys",
        )
    return name, texts


def _of_file(ctx: click.Context, path: str) -> Iterator[tuple[str, list[str]]]:
    """Read the keys of a TOML file; a table holds the options of the backend of its name."""
    from etscope.support.optional import require

    toml = require("tomllib" if sys.version_info >= (3, 11) else "tomli", wanted_by="-X FILE.toml")
    with reading("TOML", path):
        content = Path(path).read_bytes()
    try:
        values = toml.loads(content.decode())
    except ValueError as error:  # also of the encoding
        raise FormatError(f"{path} is not TOML: {error}") from error
    for key, value in values.items():
        if isinstance(value, dict):
            for inner, one in value.items():
                yield _named(ctx, f"{key}.{inner}", _texts(one))
        else:
            yield _named(ctx, key, _texts(value))


def _texts(value: Any) -> list[str]:
    """Return the values of a file as texts, as in `KEY=VALUE`."""
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


class _SettingsOption(click.Option):
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = (str(one.name) for one in settings_of(ctx.command) if not one.takes_dotted)
        return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete)]


SETTINGS = _SettingsOption(
    ["-X", "_settings"],
    metavar="KEY=VALUE",
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="Change a setting; -X help lists them. Or a FILE.toml of settings. Repeatable.",
)
