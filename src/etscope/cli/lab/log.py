"""`etscope lab log`: what a job's processes said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.lab.options import lab_options

if TYPE_CHECKING:
    from etscope.lab.lab import Lab

_LOOK_SECONDS = 0.5


@click.command(short_help="Show what a job's processes said.")
@click.argument("job_id", metavar="JOB")
@click.option("--follow", is_flag=True, help="Go on until the job has ended.")
@lab_options
def command(
    job_id: str, follow: bool, server: str | None, token: str | None, home: Path | None
) -> None:
    """Print the log of a job: of one at work, so far.

    Exit code 4: no such job.
    """
    from etscope.cli.lab.options import open_lab

    with open_lab(server, token, home) as lab:
        job_id = lab.job(job_id).id
        if not follow:
            _write(lab.log(job_id))
            return
        from etscope.lab.client import Client

        for piece in lab.follow(job_id) if isinstance(lab, Client) else _follow(lab, job_id):
            _write(piece)


def _follow(lab: Lab, job_id: str) -> Iterator[str]:
    done = 0
    while True:
        ended = lab.job(job_id).state.is_final  # before its log: then that is whole
        text = lab.log(job_id)
        yield text[done:]
        done = max(done, len(text))
        if ended:
            return
        time.sleep(_LOOK_SECONDS)


def _write(text: str) -> None:
    """Its own line ends; other control characters, which could rule a terminal, as escapes."""
    from etscope.views.tables.text_cells import visible

    if text:
        shown = (visible(line) for line in text.split("\n"))
        click.echo("\n".join(shown), nl=False)
