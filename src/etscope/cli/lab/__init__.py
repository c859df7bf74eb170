"""`etscope lab`: benchmark models on devices."""

from __future__ import annotations

import click

from etscope.cli._app import CommandSpec, LazyGroup

COMMANDS: dict[str, CommandSpec] = {
    "submit": CommandSpec("etscope.cli.lab.submit", "Benchmark a model on a device."),
    "list": CommandSpec("etscope.cli.lab.jobs:list_jobs", "List jobs, the newest first."),
    "status": CommandSpec("etscope.cli.lab.jobs:status", "Show a job: state, steps and result."),
    "log": CommandSpec("etscope.cli.lab.jobs:log", "Show the output of a job's processes."),
    "fetch": CommandSpec(
        "etscope.cli.lab.jobs:fetch", "Copy a job's files: ETDump, outputs, samples…"
    ),
    "cancel": CommandSpec("etscope.cli.lab.jobs:cancel", "Stop jobs that have not ended."),
    "devices": CommandSpec("etscope.cli.lab.devices:devices", "List the devices."),
    "calibrate": CommandSpec("etscope.cli.lab.devices:calibrate", "Measure the peaks of devices."),
    "collect": CommandSpec("etscope.cli.lab.collect", "Collect many dumps into a dataset."),
    "sql": CommandSpec("etscope.cli.lab.sql", "Query a dataset of dumps in SQL."),
    "init": CommandSpec("etscope.cli.lab.server:init", "Write a lab.yaml with explanations."),
    "serve": CommandSpec("etscope.cli.lab.server:serve", "Run jobs; serve the web pages and API."),
    "worker": CommandSpec("etscope.cli.lab.devices:worker", "Offer a device to a Dask cluster."),
    "token": CommandSpec("etscope.cli.lab.server:token", "Make, list and revoke access tokens."),
    "sweep": CommandSpec("etscope.cli.lab.server:sweep", "Remove stored files that no job uses."),
    "schema": CommandSpec("etscope.cli.lab.server:schema", "Print the JSON Schema of a job."),
}


@click.group(cls=LazyGroup, specs=COMMANDS)
def command() -> None:
    """Benchmark models on devices, keep the results, and show them.

    The lab is a folder (~/.etscope/lab, or $ETSCOPE_LAB): `etscope lab submit MODEL` works without
    a server.
    """
