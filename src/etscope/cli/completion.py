"""`etscope completion`: print the script that makes a shell complete verbs, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from etscope.cli._app import COMPLETE_VARIABLE, cli


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash  etscope completion bash > ~/.local/share/bash-completion/completions/etscope
    zsh   etscope completion zsh > "${fpath[1]}/_etscope"
    fish  etscope completion fish > ~/.config/fish/completions/etscope.fish
    """
    writer = get_completion_class(shell)
    if writer is None:
        raise click.UsageError(f"this version of click cannot complete for {shell}")
    click.echo(writer(cli, {}, "etscope", COMPLETE_VARIABLE).source())
