"""`--help` of every command fits a screen; `--help-all` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest

from etscope.cli._app import COMMANDS, cli
from etscope.cli.settings import settings_of
from etscope.cli.verb import all_help

LINES = 40  # of a terminal
WIDE: Any = {"terminal_width": 80, "max_content_width": 80}
# Of all commands together: may fall, never rise. Keys are those of -X.
VERBS, OPTIONS, KEYS = 22, 314, 149


def with_all_below(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            inner = context.command.get_command(context, name)
            yield from with_all_below(click.Context(inner, context, name, **WIDE))


def every() -> list[click.Context]:
    return list(with_all_below(click.Context(cli, info_name="etscope", **WIDE)))


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
