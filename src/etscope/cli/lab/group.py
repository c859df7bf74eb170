"""`etscope lab`: benchmark models on devices. Each command is a module of its own."""

from __future__ import annotations

import click

from etscope.cli._lazy_group import CommandSpec, LazyGroup

COMMANDS: dict[str, CommandSpec] = {
    "submit": CommandSpec("etscope.cli.lab.submit", "Benchmark a model on a device."),
    "list": CommandSpec("etscope.cli.lab.list", "List jobs, the newest first."),
    "status": CommandSpec("etscope.cli.lab.status", "Show a job: its state, steps and result."),
    "log": CommandSpec("etscope.cli.lab.log", "Show what a job's processes said."),
    "fetch": CommandSpec("etscope.cli.lab.fetch", "Copy a job's files: ETDump, outputs, samples…"),
    "cancel": CommandSpec("etscope.cli.lab.cancel", "Stop jobs that have not ended."),
    "devices": CommandSpec("etscope.cli.lab.devices", "List the devices and what they are."),
    "serve": CommandSpec("etscope.cli.lab.serve", "Run jobs; serve the web pages and the API."),
    "worker": CommandSpec("etscope.cli.lab.worker", "Offer a device to a Dask cluster."),
    "token": CommandSpec("etscope.cli.lab.token", "Make, list and revoke access tokens."),
    "sweep": CommandSpec("etscope.cli.lab.sweep", "Remove files from the store that no job has."),
    "schema": CommandSpec("etscope.cli.lab.schema", "Print the JSON Schema of a job."),
}


@click.group(
    cls=LazyGroup,
    specs=COMMANDS,
    short_help="Benchmark models on devices; keep and show the results.",
)
def command() -> None:
    """Benchmark models on devices, keep what was measured, and look at it.

    The lab is a folder (~/.etscope/lab, or $ETSCOPE_LAB): `etscope lab submit MODEL` works with
    nothing else running.
    """
