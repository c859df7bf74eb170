"""`etscope lab worker`: a machine offers its devices to a lab's Dask cluster."""

from __future__ import annotations

import click


@click.command(short_help="Offer a device to a Dask cluster.")
@click.option(
    "--scheduler", required=True, metavar="ADDRESS", help="Of the cluster: tcp://lab:8786."
)
@click.option(
    "--device", "-d", "devices", multiple=True, required=True, metavar="NAME",
    help="A device of the lab's lab.yaml that is in reach of this machine. Repeatable.",
)  # fmt: skip
@click.option(
    "--host", metavar="ADDRESS", help="Where to listen. Default: where the scheduler is reached."
)
def command(scheduler: str, devices: tuple[str, ...], host: str | None) -> int:
    """Offer devices to the lab whose Dask scheduler is at ADDRESS, until SIGINT or SIGTERM.

    Each device gets a worker process of its own, which is started again when it dies. What a device
    is, its driver and how it is reached, is said in the lab.yaml of the lab; here are the driver's
    tools and the way to the device. The lab's store must be in reach from here, too.

    Dask's workers do whatever their scheduler says: keep them in a network of your own, or give
    Dask certificates (distributed.comm.tls in its configuration, and a tls:// address).
    """
    import asyncio
    import logging

    from etscope.optional import require

    require("distributed", wanted_by="etscope lab worker")
    logging.basicConfig(level=logging.WARNING)
    return asyncio.run(_offer(scheduler, devices, host))


async def _offer(scheduler: str, devices: tuple[str, ...], host: str | None) -> int:
    import asyncio
    import signal
    import socket

    from distributed import Nanny

    from etscope.errors import LabError
    from etscope.lab.cluster import resources_of

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
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
            death_timeout="60 s",
        )
        for device in devices
    ]
    try:
        await asyncio.wait_for(asyncio.gather(*nannies), 60)
    except (OSError, asyncio.TimeoutError, RuntimeError, ValueError) as error:
        raise LabError(f"no Dask scheduler at {scheduler}: {error}") from error
    else:
        click.echo(f"offering {', '.join(devices)} to {scheduler}", err=True)
        ends = [asyncio.ensure_future(nanny.finished()) for nanny in nannies]
        wait = asyncio.ensure_future(stop.wait())
        await asyncio.wait([*ends, wait], return_when=asyncio.FIRST_COMPLETED)
        return 0 if stop.is_set() else 5
    finally:
        await asyncio.gather(*(nanny.close(timeout=5) for nanny in nannies), return_exceptions=True)
