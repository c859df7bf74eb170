"""`etscope lab schema`: the JSON Schema of a job."""

from __future__ import annotations

import click


@click.command(short_help="Print the JSON Schema of a job.")
def command() -> None:
    """Print the JSON Schema of a job's specification, which etscope lab submit --spec reads.

    An editor that knows the schema completes and checks the file.
    """
    import json

    from etscope.optional import require

    require("pydantic", wanted_by="etscope lab")
    from etscope.lab.jobs.spec import JobSpec

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    click.echo(json.dumps({**schema, **JobSpec.model_json_schema()}, indent=2))
