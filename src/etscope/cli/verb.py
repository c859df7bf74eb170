"""A command with a `--help` that fits a screen: what it does, examples, and the usual options.

`--help-all` shows all options, and how the command works.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from etscope.cli.settings import SETTINGS, settings_of, write_settings
from etscope.errors import UsageError

__all__ = ["Verb", "verb"]

_ALL = "etscope.help-all"  # key of click's context
_WIDEST = 30  # columns of an option: a wider one moves the help of all others to the right
_METAVARS = {  # click's words for types, and ours
    "INTEGER RANGE": "N",
    "FLOAT RANGE": "X",
    "DIRECTORY": "DIR",
    "--inputs, --input ": "--inputs ",
    " TEXT": " NAME",
}


class Verb(click.Command):
    """A click command with `--help-all`.

    first: the options of `--help`, by the title of their group; empty for all options. details: the
    text of `--help-all` after the docstring.
    """

    first: Mapping[str, Sequence[str]] = {}
    details: str = ""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        settings = [SETTINGS] if settings_of(self) else []
        return [*own[:-1], *settings, *own[-1:], *([_HELP_ALL] if self.first else [])]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add a hint if an unknown option is a setting."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            key = error.option_name.lstrip("-").replace("-", "_")
            if key not in [one.name for one in settings_of(self)]:
                raise
            raise UsageError(
                f"{error.option_name} is a setting", hint=f"write it as -X {key}=VALUE"
            ) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        text = inspect.cleandoc(self.help or "")
        if self.details and self._shows_all(ctx):
            text = f"{text}\n\n{self.details.rstrip()}"
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.first or self._shows_all(ctx):
            super().format_options(ctx, formatter)
            if settings_of(self):
                write_settings(ctx, formatter)
            return
        options = {name: one for one in self.get_params(ctx) for name in one.opts}
        for title, names in self.first.items():
            with formatter.section(title):
                formatter.write_dl([self._record(options[name], ctx) for name in names])
        help_option = self.get_help_option(ctx)
        assert help_option is not None
        with formatter.section("Help"):
            formatter.write_dl([self._record(one, ctx) for one in (help_option, _HELP_ALL)])

    @staticmethod
    def _shows_all(ctx: click.Context) -> bool:
        return bool(ctx.meta.get(_ALL))

    @staticmethod
    def _record(option: click.Parameter, ctx: click.Context) -> tuple[str, str]:
        """Return the option with the first sentence of its help, without its range and default.

        The words of a choice that would take half of the line go into the help.
        """
        found = option.get_help_record(ctx)
        assert found is not None and isinstance(option, click.Option), f"{option.name} is hidden"
        first, *_ = re.split(r"(?<=\.)\s+(?=[A-Z\d])", option.help or "", maxsplit=1)
        option_words = found[0]
        for words, metavar in _METAVARS.items():
            option_words = option_words.replace(words, metavar)
        if isinstance(option.type, click.Choice) and len(option_words) > _WIDEST:
            option_words = f"{option_words.partition('[')[0]}NAME"
            first = f"{first.removesuffix('.')}: {', '.join(map(str, option.type.choices))}."
        return option_words, first


def _show_all(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options and details.",
)


def verb(
    first: Mapping[str, Sequence[str]], details: str = "", cls: type[Verb] = Verb
) -> Callable[[Callable[..., Any]], Verb]:
    """Return the decorator of a verb.

    first: the options that its `--help` shows, by the title of their group. details: what
    `--help-all` says after the docstring.
    """

    def made(function: Callable[..., Any]) -> Verb:
        command: Verb = click.command(cls=cls)(function)
        command.first, command.details = first, details
        return command

    return made


def all_help(ctx: click.Context) -> str:
    """Return the text of `--help-all`."""
    ctx.meta[_ALL] = True
    return ctx.get_help()
