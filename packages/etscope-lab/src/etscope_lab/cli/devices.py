"""`etscope lab devices, worker`: list the lab's devices, and offer some to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import FILE, output_options
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import Verb
from etscope.cli.verbs.calibrate import (
    CalibrationArguments,
    calibration_options,
    warn_of_marks,
)
from etscope.errors import LabError, UsageError
from etscope_lab.cli.options import LabOptions, in_lab, start_log

if TYPE_CHECKING:
    import asyncio

    from etscope_lab.jobs.records import Device
    from etscope_lab.lab import Lab

_AGAIN = 5.0  # seconds before a scheduler that went away is tried again
_CONNECT, _PAUSE = 5.0, 1.0  # seconds of a try to connect, and before the next one
_START = 60  # seconds that a worker has to start in
_PATIENCE = 2.0  # seconds before the user reads that the scheduler does not answer


@click.command()
@click.argument("action", required=False, type=click.Choice(["disable", "enable"]))
@click.argument("name", required=False)
@click.argument("reason", required=False, default="taken out of service")
@click.option(
    "--check", is_flag=True, help="Check each device now. Exit code 5 if one cannot be reached."
)
@in_lab
@partial(output_options, to_file=False)
def devices(
    action: str | None,
    name: str | None,
    reason: str,
    check: bool,
    where: LabOptions,
    output: OutputOptions,
) -> int:
    """List the lab's devices: their state, their attributes (which selectors match), and the
    conditions last seen on them. Stability is 100 if their results do not vary from job to job. Or
    disable the device NAME: it gets no more jobs until it is enabled; its job at work ends.

    Devices are described in lab.yaml in the lab's folder. On a server, the scope operate may
    disable and enable devices. --check contacts the devices of this
    machine's lab from here, busy ones too.
    """
    if action and not name:
        raise UsageError(f"{action} needs the name of a device")
    with where.open(direct=check) as lab:
        from etscope_lab.comparison.noise import stability
        from etscope_lab.jobs.job_tables import DEVICES_SCHEMA, devices_report
        from etscope_lab.lab import Lab

        if action and name:
            lab.disable_device(name, reason if action == "disable" else "")
        found = list(lab.devices())
        names = [device.config.name for device in found]
        steady = {name: stability(lab.history(device=name)) for name in names}
        if check:
            if not isinstance(lab, Lab):
                raise UsageError("--check contacts devices from this machine, not a server's")
            found = _check_devices(lab, found)
    output.write_reports([devices_report(found, steady)], DEVICES_SCHEMA)
    return 5 if check and any(device.state == "offline" for device in found) else 0


def _check_devices(lab: Lab, devices: Sequence[Device]) -> list[Device]:
    """Contact all devices at the same time; return and store what they report."""
    from concurrent.futures import ThreadPoolExecutor
    from dataclasses import replace
    from datetime import datetime, timezone

    from etscope.cli.output.progress import progress
    from etscope_lab.worker.worker import check

    with progress("checking devices"), ThreadPoolExecutor(8) as threads:
        reports = list(threads.map(check, [device.config for device in devices]))
    checked = []
    for device, report in zip(devices, reports, strict=True):
        if report.error:
            now = replace(device, state="offline", message=report.error)
        else:
            now = replace(
                device,
                attributes={**report.attributes, **device.config.attributes},
                conditions=report.conditions,
                state=device.state if device.state == "busy" else "available",
                seen_at=datetime.now(timezone.utc),
                message="",
            )
        lab.database.set_devices(now)
        checked.append(now)
    return checked


@click.command(cls=Verb)
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option("--program", type=FILE, help="A program that etscope calibrate --program made.")
@calibration_options
@in_lab
@partial(output_options, to_file=False)
def calibrate(
    names: tuple[str, ...],
    program: str | None,
    options: CalibrationArguments,
    where: LabOptions,
    output: OutputOptions,
) -> int:
    """Measure the peaks of the lab's devices, all of them by default, one after the other.

    A lab's server does so by itself, once after the first job of a device. Devices of this
    machine's lab are measured from here; let no job run on them meanwhile. The calibrations are
    kept in the lab, for its next jobs, and in the user's cache folder, for reports made on this
    machine. Exit code 5 if a device could not be measured.
    """
    from etscope.analysis.calibration import SCHEMA, calibration_report
    from etscope.cli.output.progress import counting, progress
    from etscope.errors import EtscopeError
    from etscope.formats.calibration import keep_calibration
    from etscope.run.calibration import find_program
    from etscope.support.quiet import quiet
    from etscope_lab.devices.calibration import calibrate_device
    from etscope_lab.lab import Lab

    with where.open(direct=True) as lab:
        if not isinstance(lab, Lab):
            raise UsageError("calibrate needs direct access to the lab: leave out --server")
        configs = {device.config.name: device.config for device in lab.devices()}
        if unknown := [name for name in names if name not in configs]:
            raise UsageError(
                f"the lab has no device {unknown[0]!r}",
                hint=f"the lab's devices: {', '.join(configs) or 'none'}",
            )
        with progress("making the calibration program (once)"), quiet():
            path = find_program(program)
        found, failed = [], 0
        for name in names or configs:
            try:
                with counting(f"measuring {name}") as told:
                    measured = calibrate_device(configs[name], path, options.options(), told=told)
            except EtscopeError as error:
                failed += 1
                click.echo(f"{name} could not be measured: {error}", err=True)
                continue
            lab.database.keep_calibration(measured)
            calibration = measured.calibration
            if calibration is not None:
                warn_of_marks(calibration, output, name)
                click.echo(f"{name}: kept in {keep_calibration(calibration)}", err=True)
                found.append(calibration_report(calibration))
    if found:
        output.write_reports(found, SCHEMA)
    return 5 if failed else 0


@click.command()
@click.option(
    "--scheduler",
    required=True,
    metavar="ADDRESS",
    help="Address of the cluster's scheduler: tcp://lab:8786.",
)
@click.option(
    "--device", "-d", "devices", multiple=True, required=True, metavar="NAME",
    help="A device of the lab's lab.yaml that this machine can reach. Repeatable.",
)  # fmt: skip
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address to listen on. Default: this machine's address on the route to the scheduler.",
)
@in_lab
def worker(scheduler: str, devices: tuple[str, ...], host: str | None, where: LabOptions) -> int:
    """Offer devices to the lab with the Dask scheduler at ADDRESS, until SIGINT or SIGTERM.

    Each device gets its own worker process, which is restarted when it dies. If the scheduler does
    not answer or goes away, the worker tries again every few seconds. The lab's lab.yaml describes
    the device, its driver and its address; this machine needs the driver's tools, a connection to
    the device, and access to the lab's store.

    Dask workers run whatever their scheduler sends: keep them in a network of your own, or give
    Dask certificates (distributed.comm.tls in its configuration, and a tls:// address).

    Exit codes: 0 stopped by a signal; 2: ADDRESS is not an address; 5: what listens there takes no
    workers.
    """
    import asyncio
    import logging

    from distributed.comm import get_address_host_port

    from etscope_lab.config import Home

    start_log(Home.open(where.home).config.log)
    # Dask's lines about its own parts say nothing about devices.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        get_address_host_port(scheduler)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{scheduler!r} is not the address of a scheduler: {error}", hint="tcp://lab:8786"
        ) from error
    return asyncio.run(_offer(scheduler, devices, host))


async def _offer(scheduler: str, devices: tuple[str, ...], host: str | None) -> int:
    import asyncio
    import logging
    import signal
    import socket

    from distributed import Nanny

    from etscope_lab.cluster import resources_of

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopped = asyncio.ensure_future(stop.wait())
    reached = False
    while await _answers(scheduler, stopped):
        nannies = [
            Nanny(
                scheduler,
                name=f"{socket.gethostname()}-{device}",
                host=host,
                nthreads=1,
                memory_limit=None,
                resources=resources_of([device]),
                dashboard=False,
                dashboard_address="127.0.0.1:0",
                death_timeout=f"{_START} s",
                silence_logs=logging.CRITICAL,
            )
            for device in devices
        ]
        started = asyncio.gather(*nannies)
        try:
            first: list[asyncio.Future[Any]] = [started, stopped]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                started.result()
                reached = True
                click.echo(f"offering {', '.join(devices)} to {scheduler}", err=True)
                ends = [asyncio.ensure_future(nanny.finished()) for nanny in nannies]
                await asyncio.wait([*ends, stopped], return_when=asyncio.FIRST_COMPLETED)
                if not stop.is_set():
                    click.echo(f"the scheduler at {scheduler} is gone: trying again", err=True)
        except (OSError, asyncio.TimeoutError, RuntimeError, ValueError) as error:
            if not reached:
                why = str(error.__cause__ or error) or f"no answer within {_START} s"
                raise LabError(
                    f"devices cannot be offered to {scheduler}: {why}",
                    hint="the address has to be a Dask scheduler's, of a version that works "
                    "with the Dask here; for a tls:// address, Dask's configuration names "
                    "the certificates",
                ) from error
        finally:
            started.cancel()
            closed = (nanny.close(timeout=5) for nanny in nannies)
            await asyncio.gather(started, *closed, return_exceptions=True)
        await asyncio.wait([stopped], timeout=_AGAIN)
    return 0


async def _answers(scheduler: str, stopped: asyncio.Future[Any]) -> bool:
    """Wait until a program listens at the scheduler's address; False when `stopped` comes first.

    A `Nanny` that finds none ends after a long time, with errors of its parts.
    """
    import asyncio
    import socket

    from distributed.comm import get_address_host_port

    why = "no answer"
    waiting = asyncio.get_running_loop().call_later(
        _PATIENCE,
        lambda: click.echo(f"waiting for the scheduler at {scheduler} ({why}) …", err=True),
    )
    try:
        while not stopped.done():
            address = get_address_host_port(scheduler)
            try:
                (await asyncio.to_thread(socket.create_connection, address, _CONNECT)).close()
                return True
            except OSError as error:
                why = error.strerror or str(error)
            await asyncio.wait([stopped], timeout=_PAUSE)
        return False
    finally:
        waiting.cancel()
