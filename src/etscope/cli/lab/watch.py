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
    from etscope.lab.jobs.records import Job
    from etscope.lab.lab import Lab

_LOOK = 0.5  # seconds
_WONDER = 5.0  # seconds in the queue after which it is said what the job waits for
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
    begun = time.monotonic()
    while True:
        where = f" on {job.device}" if job.device else ""
        again = f", attempt {job.attempt}" if job.attempt > 1 else ""
        why = ""
        if job.state == "queued" and time.monotonic() - begun > _WONDER:
            why = _why_queued(lab, job)
        show(f"{job.state}{where}{again}{why}")
        try:
            return lab.wait(job.id, _LOOK)
        except TimeoutError:
            job = lab.job(job.id)


def _why_queued(lab: Lab | Client, job: Job) -> str:
    """What a job waits for when no device that takes it is there. One may come: it is no error."""
    takes = job.spec.device.takes
    fit = [one for one in lab.devices() if takes(one.config.name, one.attributes)]
    if not fit:
        return ", for a device like that: no device of the lab, as last seen, takes it"
    away = [one for one in fit if one.state == "offline"]
    if len(away) < len(fit):
        return ""
    return ", for " + "; ".join(f"{one.config.name} (offline: {one.message})" for one in away)


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
