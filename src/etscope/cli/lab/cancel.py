"""`etscope lab cancel`: stop jobs."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.lab.options import lab_options


@click.command(short_help="Stop jobs that have not ended.")
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
@lab_options
def command(
    job_ids: tuple[str, ...], server: str | None, token: str | None, home: Path | None
) -> None:
    """Stop jobs: a queued one is cancelled at once, one at work is told to stop.

    Prints id and state of each. Exit code 2: a job has ended already; 4: no such job. Jobs before
    it on the line are stopped.
    """
    from etscope.cli.lab.options import open_lab

    with open_lab(server, token, home) as lab:
        for job_id in job_ids:
            job = lab.cancel(lab.job(job_id).id)
            word = "cancelling" if job.cancel_requested and not job.state.is_final else job.state
            click.echo(f"{job.id} {word}")
