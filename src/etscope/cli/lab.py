"""`etscope lab`: benchmark models on devices. Each command is a module of its own."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click


class LabCommand(NamedTuple):
    """Where a command of the lab is, and the line that `etscope lab --help` says about it."""

    module: str
    help: str


COMMANDS: dict[str, LabCommand] = {
    "submit": LabCommand("etscope.cli._lab_submit", "Benchmark a model on a device."),
    "list": LabCommand("etscope.cli._lab_list", "List jobs, the newest first."),
    "status": LabCommand("etscope.cli._lab_status", "Show a job: its state, steps and result."),
    "log": LabCommand("etscope.cli._lab_log", "Show what a job's processes said."),
    "fetch": LabCommand("etscope.cli._lab_fetch", "Copy a job's files: ETDump, outputs, samples…"),
    "cancel": LabCommand("etscope.cli._lab_cancel", "Stop jobs that have not ended."),
    "devices": LabCommand("etscope.cli._lab_devices", "List the devices and what they are."),
    "serve": LabCommand("etscope.cli._lab_serve", "Run jobs; serve the web pages and the API."),
    "worker": LabCommand("etscope.cli._lab_worker", "Offer a device to a Dask cluster."),
    "token": LabCommand("etscope.cli._lab_token", "Make, list and revoke access tokens."),
    "sweep": LabCommand("etscope.cli._lab_sweep", "Remove files from the store that no job has."),
    "schema": LabCommand("etscope.cli._lab_schema", "Print the JSON Schema of a job."),
}


class _LazyGroup(click.Group):
    """Imports a command's module only to run it, complete it or show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        spec = COMMANDS.get(cmd_name)
        if spec is None:
            return None
        command: click.Command = importlib.import_module(spec.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, spec.help) for name, spec in COMMANDS.items()])


@click.group(cls=_LazyGroup, short_help="Benchmark models on devices; keep and show the results.")
def command() -> None:
    """Benchmark models on devices, keep what was measured, and look at it.

    The lab is a folder (~/.etscope/lab, or $ETSCOPE_LAB): `etscope lab submit MODEL` works with
    nothing else running.
    """
