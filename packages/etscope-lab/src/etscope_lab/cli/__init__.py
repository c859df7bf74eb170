"""`etscope lab`: benchmark models on devices."""

from __future__ import annotations

import click

from etscope.cli import CommandSpec, LazyGroup
from etscope_lab.cli.options import LabOptions, lab_options

COMMANDS: dict[str, CommandSpec] = {
    "submit": CommandSpec("etscope_lab.cli.submit", "Benchmark a model on a device."),
    "list": CommandSpec("etscope_lab.cli.jobs:list_jobs", "List jobs, the newest first."),
    "status": CommandSpec("etscope_lab.cli.jobs:status", "Show a job: state, steps and result."),
    "log": CommandSpec("etscope_lab.cli.jobs:log", "Show the output of a job's processes."),
    "fetch": CommandSpec(
        "etscope_lab.cli.jobs:fetch", "Copy a job's files: ETDump, outputs, samples…"
    ),
    "cancel": CommandSpec("etscope_lab.cli.jobs:cancel", "Stop jobs that have not ended."),
    "history": CommandSpec(
        "etscope_lab.cli.history:history", "Show the times of models, job after job, judged."
    ),
    "alarms": CommandSpec("etscope_lab.cli.history:alarms", "Show models that became slower."),
    "bisect": CommandSpec(
        "etscope_lab.cli.bisect:bisect", "Find the commit that made a program slower."
    ),
    "devices": CommandSpec("etscope_lab.cli.devices:devices", "List the devices."),
    "calibrate": CommandSpec("etscope_lab.cli.devices:calibrate", "Measure the peaks of devices."),
    "collect": CommandSpec("etscope_lab.cli.collect", "Collect many dumps into a dataset."),
    "sql": CommandSpec("etscope_lab.cli.sql", "Query a dataset of dumps in SQL."),
    "init": CommandSpec("etscope_lab.cli.server:init", "Write a lab.yaml with explanations."),
    "serve": CommandSpec("etscope_lab.cli.server:serve", "Run jobs; serve the web pages and API."),
    "worker": CommandSpec("etscope_lab.cli.devices:worker", "Offer a device to a Dask cluster."),
    "token": CommandSpec("etscope_lab.cli.server:token", "Make, list and revoke access tokens."),
    "audit": CommandSpec("etscope_lab.cli.server:audit", "Show who changed what in the lab."),
    "sweep": CommandSpec("etscope_lab.cli.server:sweep", "Remove stored files that no job uses."),
    "schema": CommandSpec("etscope_lab.cli.server:schema", "Print the JSON Schema of a job."),
}


@click.group(cls=LazyGroup, specs=COMMANDS)
@lab_options
def command(where: LabOptions) -> None:
    """Benchmark models on devices, keep the results, and show them.

    The lab is a folder (~/.etscope/lab, or $ETSCOPE_LAB): `etscope lab submit MODEL` works without
    a server. Name another lab before the command: etscope lab --server URL list.
    """
