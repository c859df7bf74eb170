"""`etscope lab fetch`: copy a job's files."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.lab.options import lab_options


@click.command(short_help="Copy a job's files: ETDump, outputs, samples…")
@click.argument("job_id", metavar="JOB")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=None,
    metavar="FOLDER", help="Copy into this folder. Default: one named like the job.",
)  # fmt: skip
@click.option("--names", "list_them", is_flag=True, help="Only print the names, and copy nothing.")
@lab_options
def command(
    job_id: str,
    names: tuple[str, ...],
    output: Path | None,
    list_them: bool,
    server: str | None,
    token: str | None,
    home: Path | None,
) -> int | None:
    """Copy files of a job, all or those with a NAME, and print the path of each.

    Their content is checked. A file is there when it is whole. Exit code 4: there is no such job
    or file, or the job has none.
    """
    from etscope.cli.lab.options import open_lab
    from etscope.cli.lab.progress import transfers
    from etscope.errors import MissingDataError

    with transfers() as progress, open_lab(server, token, home, progress=progress) as lab:
        job = lab.job(job_id)
        if not job.artifacts:
            raise MissingDataError(f"job {job.id} is {job.state} and has no files")
        if list_them:
            for name in sorted(job.artifacts):
                click.echo(name)
            return None
        for path in lab.fetch(job.id, output or Path(job.id), names):
            click.echo(path)
    return None
