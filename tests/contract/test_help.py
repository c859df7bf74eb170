"""`--help` of every command fits a screen; `--help-all` has the rest."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from etscope.cli._app import COMMANDS, cli
from etscope.cli.settings import settings_of
from etscope.cli.verb import all_help

LINES = 40  # of a terminal
# Of all commands together: may fall, never rise. Keys are those of -X.
VERBS, OPTIONS, KEYS = 17, 296, 142


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(
                inner, info_name=name, parent=context, terminal_width=80, max_content_width=80
            )
            yield from commands(inner, below)


def every() -> list[click.Context]:
    top = click.Context(cli, info_name="etscope", terminal_width=80, max_content_width=80)
    return list(commands(cli, top))


@pytest.mark.parametrize("context", every(), ids=lambda context: context.command_path)
def test_help_fits_a_screen(context: click.Context) -> None:
    text = context.get_help()
    assert len(text.splitlines()) <= LINES
    whole = all_help(click.Context(context.command, info_name="x"))
    for option in context.command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.opts[0] in whole


def test_options_do_not_grow() -> None:
    assert len(COMMANDS) <= VERBS
    found = [
        one
        for context in every()
        for one in context.command.get_params(context)
        if isinstance(one, click.Option) and not one.hidden and "help" not in one.opts[-1]
    ]
    assert len(found) <= OPTIONS
    assert sum(len(settings_of(context.command)) for context in every()) <= KEYS


def test_a_letter_is_short_for_one_option() -> None:
    options = [one for context in every() for one in context.command.params]
    spellings = [(name, one.opts[0]) for one in options for name in one.opts if len(name) == 2]
    assert len(set(spellings)) == len(dict(spellings))
