"""`etscope lab devices`: what there is to run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.lab.options import lab_options, open_lab
from etscope.cli.options.common import output_options

if TYPE_CHECKING:
    from etscope.lab.jobs.records import Device, DeviceConfig
    from etscope.lab.lab import Lab


@click.command(short_help="List the devices and what they are.")
@click.option("--check", is_flag=True, help="Ask each device now. Exit code 5 when one is away.")
@lab_options
@output_options
def command(
    check: bool,
    server: str | None,
    token: str | None,
    home: Path | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """List the lab's devices: their state, their attributes (what selectors ask for), and the
    conditions they were last seen in.

    Devices are described in lab.yaml in the lab's folder. --check asks those of this machine's lab
    from here, one at work too.
    """
    from etscope.cli.output.output import write_reports
    from etscope.errors import UsageError
    from etscope.lab.jobs.job_tables import DEVICES_SCHEMA, devices_report
    from etscope.lab.lab import Lab

    with open_lab(server, token, home, direct=check) as lab:
        devices = list(lab.devices())
        if check:
            if not isinstance(lab, Lab):
                raise UsageError("--check asks devices from this machine, not those of a server")
            devices = _asked(lab, devices)
    write_reports([devices_report(devices)], DEVICES_SCHEMA, format, output, color)
    return 5 if check and any(device.state == "offline" for device in devices) else 0


def _asked(lab: Lab, devices: Sequence[Device]) -> list[Device]:
    """The devices as they answer now, all asked at once; the database is told, too."""
    from concurrent.futures import ThreadPoolExecutor
    from dataclasses import replace
    from datetime import datetime, timezone

    from etscope.cli.output.progress import progress
    from etscope.lab.worker.worker import DeviceCheck, check

    def seen(device: Device, found: DeviceCheck) -> Device:
        state = device.state if device.state == "busy" else "available"
        if found.error:
            return replace(device, state="offline", message=found.error)
        return replace(
            device,
            attributes={**found.attributes, **device.config.attributes},
            conditions=found.conditions,
            state=state,
            seen_at=datetime.now(timezone.utc),
            message="",
        )

    configs: list[DeviceConfig] = [device.config for device in devices]
    with progress("asking devices"), ThreadPoolExecutor(8) as threads:
        found = list(threads.map(check, configs))
    asked = [seen(device, one) for device, one in zip(devices, found, strict=True)]
    for device in asked:
        lab.database.set_device(device)
    return asked
