"""A command with commands of its own, whose modules are imported only when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class CommandSpec(NamedTuple):
    """Where a command is, and the line that its group's `--help` says about it."""

    module: str
    help: str


class LazyGroup(click.Group):
    """A group that imports a command's module only to run it, complete it or show its help.

    specs: where the commands are, by name; each is a click command named `command` in its module.
    """

    def __init__(self, *arguments: Any, specs: Mapping[str, CommandSpec], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._specs = specs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._specs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        spec = self._specs.get(cmd_name)
        if spec is None:
            return None
        command: click.Command = importlib.import_module(spec.module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._specs and not name.startswith("-"):
            raise click.UsageError(f"No such command {name!r}. {self._advice(name)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, spec.help) for name, spec in self._specs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=spec.help)
            for name, spec in self._specs.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def _advice(self, name: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(name, self._specs)
        if close:
            return f"Did you mean {close[0]!r}?"
        return f"Commands are: {', '.join(self._specs)}."
