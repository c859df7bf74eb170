"""The `etscope` command: one module a verb, imported only when asked for."""

from __future__ import annotations

from etscope.cli._app import COMMANDS, CommandSpec, LazyGroup, main

__all__ = ["COMMANDS", "CommandSpec", "LazyGroup", "main"]
