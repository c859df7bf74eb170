"""`etscope lab sweep`: files of the lab that no job has any more."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.lab.options import home_option, need_lab_packages, span_of


def _age(context: click.Context, parameter: click.Parameter, value: str) -> int:
    span = span_of(value)
    if span is None:
        raise click.BadParameter(f"{value!r} is no age: write 12h, 7d or 2w")
    return int(span.total_seconds())


@click.command(short_help="Remove files from the store that no job has.")
@click.option(
    "--older-than", "seconds", default="1d", show_default=True, metavar="AGE", callback=_age,
    help="12h, 7d, 2w: what was put there later stays, as a job may be about to name it.",
)  # fmt: skip
@home_option
def command(seconds: int, home: Path | None) -> None:
    """Remove from the artefact store what no job reads or wrote: uploads that were never submitted,
    and what killed writers left. Prints how many objects went. The lab may be at work meanwhile.
    """
    need_lab_packages()
    from etscope.lab.lab import Lab

    with Lab.open(home) as lab:
        click.echo(lab.sweep(seconds))
