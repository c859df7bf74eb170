"""Waiting for a job in a terminal: what it is at, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.lab.client import Client
    from etscope.lab.lab import Lab
    from etscope.lab.records import Job

_LOOK = 0.5  # seconds
_LEAVE = 10.0  # seconds that a job that is stopped here has to end


def finished(lab: Lab | Client, job: Job) -> Job:
    """The job when it has ended. In a lab without a server, this process does it meanwhile.

    When the user interrupts: a job that is done here is cancelled; one of a server goes on.
    """
    from etscope.lab.lab import Lab

    here = lab if isinstance(lab, Lab) else None
    if here is not None:
        _check_device(here, job)
        here.start_engine(only=[job.id])
    try:
        with _shown(job.spec.title) as show:
            return _ended(lab, job, show)
    except KeyboardInterrupt:
        if here is None:
            click.echo(f"the server goes on with it: etscope lab cancel {job.id[:12]}", err=True)
            raise
        with suppress(UsageError, TimeoutError):  # it ended meanwhile; it does not end
            here.cancel(job.id)
            here.wait(job.id, _LEAVE)
        raise


def _ended(lab: Lab | Client, job: Job, show: Callable[[str], None]) -> Job:
    while True:
        where = f" on {job.device}" if job.device else ""
        again = f", attempt {job.attempt}" if job.attempt > 1 else ""
        show(f"{job.state}{where}{again}")
        try:
            return lab.wait(job.id, _LOOK)
        except TimeoutError:
            job = lab.job(job.id)


def _check_device(lab: Lab, job: Job) -> None:
    """Raise `UsageError` when no device of this lab can ever take the job."""
    selector = job.spec.device
    configured = lab.home.config.devices
    if selector.name is not None and not any(
        selector.model_copy(update={"attributes": {}}).takes(config.name, {})
        for config in configured
    ):
        names = ", ".join(config.name for config in configured) or "none"
        lab.cancel(job.id)
        raise UsageError(
            f"no device of this lab is named {selector.name}",
            hint=f"it has {names}; more are described in {lab.home.folder / 'lab.yaml'}",
        )


@contextmanager
def _shown(title: str) -> Iterator[Callable[[str], None]]:
    """A function that shows what a job is at: in a terminal a line that changes, else a line for
    each change."""
    if not sys.stderr.isatty():
        said: list[str] = []

        def say(text: str) -> None:
            if said[-1:] != [text]:
                said.append(text)
                click.echo(f"{title}: {text}", err=True)

        yield say
        return
    from rich.console import Console

    begun = time.monotonic()
    with Console(stderr=True).status(f"{title}: queued") as status:

        def update(text: str) -> None:
            spinner: Any = status
            spinner.update(f"{title}: {text}, {time.monotonic() - begun:.0f} s")

        yield update
