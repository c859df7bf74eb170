"""`etscope lab submit`: a model, a device, and what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.lab.options import key_values, lab_options, need_lab_packages, open_lab
from etscope.cli.options.files import FILE

if TYPE_CHECKING:
    from etscope.lab.jobs.spec import JobSpec


@click.command(short_help="Benchmark a model on a device.")
@click.argument("model", required=False, type=FILE)
@click.option(
    "--spec", "spec_file", type=FILE, metavar="FILE",
    help="The job as YAML or JSON (etscope lab schema); options below go before it. Its paths are "
    "relative to it.",
)  # fmt: skip
@click.option(
    "--device", "-d", metavar="SELECTOR",
    help="A name, or attributes: arch=aarch64,driver=ssh. Values may be patterns: pixel-*. "
    "Default: host.",
)  # fmt: skip
@click.option("--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of the export.")
@click.option("--data", type=FILE, metavar="PTD", help="The program's external weights.")
@click.option("--inputs", "-i", type=FILE, metavar="FILE", help="Inputs of the method.")
@click.option("--method", "-m", metavar="NAME", help="Method to run.")
@click.option(
    "--baseline", type=FILE, metavar="FILE", help="Make it an A/B job: MODEL against this one."
)
@click.option("--kind", type=click.Choice(("benchmark", "accuracy", "ab")), help="Kind of the job.")
@click.option("--iterations", type=int, metavar="N", help="Timed executions. Default: 50.")
@click.option("--warmup", type=int, metavar="N", help="Executions before them. Default: 5.")
@click.option(
    "--traced-iterations", type=int, metavar="N",
    help="Of a run of its own that writes the ETDump; 0: none. Default: 20.",
)  # fmt: skip
@click.option(
    "--debug-level", type=click.Choice(("none", "program_outputs", "intermediate_outputs")),
    help="Which values to record, in a run of its own.",
)  # fmt: skip
@click.option("--runner", type=click.Choice(("auto", "python", "native")), help="Default: auto.")
@click.option("--threads", type=int, metavar="N", help="Of the runtime's thread pool.")
@click.option("--cool-down", type=float, metavar="SECONDS", help="Rest of the device before.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Of the whole job. Default: 600.")
@click.option(
    "--limit", "limits", multiple=True, metavar="KEY=VALUE", callback=key_values,
    help="Conditions beyond which it is no result: max_temperature_c=45. Repeatable.",
)  # fmt: skip
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", callback=key_values,
    help="Repeatable.",
)  # fmt: skip
@click.option("--name", metavar="TEXT", help="For people. Default: the model's name.")
@click.option("--priority", type=int, metavar="N", help="Larger goes first.")
@click.option("--again", is_flag=True, help="Run it though the same job has been done already.")
@click.option(
    "--wait/--async", "wait", default=True, show_default=True,
    help="Wait for the result, or only queue the job.",
)  # fmt: skip
@click.option(
    "--format", "-f", type=click.Choice(("table", "json")), default="table", show_default=True,
    help="json: the job as the API answers it.",
)  # fmt: skip
@lab_options
def command(
    model: str | None,
    spec_file: str | None,
    again: bool,
    wait: bool,
    server: str | None,
    token: str | None,
    home: Path | None,
    format: str,
    **options: Any,
) -> int:
    """Benchmark MODEL (an ETRecord that holds its program, a .pte or a .bpte) on a device.

    Nothing else needs to run: the job is done here, by the lab in ~/.etscope/lab. A server that
    runs for that folder, or the one of --server, does it instead. The same job is not done twice:
    its result is shown again.

    Exit codes: 0 done; 1 done, with a finding: values are not the reference's, outputs of a test
    case differ, the model is slower than its baseline; 3 user_error (what was submitted cannot
    run); 4 invalid (a limit did not hold) or cancelled; 5 failed, timeout or device_lost; 130
    interrupted, which cancels a job that is done here.
    """
    from etscope.cli.lab.result import exit_code, write_job

    need_lab_packages()
    spec = _spec(model, spec_file, options)
    with open_lab(server, token, home) as lab:
        job, new = lab.submit_new(spec, again=again, submitter=_user())
        if not new:
            click.echo(f"the same job is {job.state} already (--again: do it again)", err=True)
        if not wait:
            write_job(lab, job, spec, format)
            return 0
        if not job.state.is_final:
            from etscope.cli.lab.watch import finished

            job = finished(lab, job)
        write_job(lab, job, spec, format)
    return exit_code(job)


def _spec(model: str | None, file: str | None, options: dict[str, Any]) -> JobSpec:
    """The job that the file and the options say."""
    from etscope.cli.lab.spec import read_spec
    from etscope.errors import UsageError
    from etscope.lab.jobs.spec import spec_of

    plain = {} if file is None else read_spec(file)
    if model is not None:
        plain["model"] = model
    if "model" not in plain:
        raise UsageError("no model", hint="etscope lab submit MODEL, or model: in --spec FILE")
    renamed = {"cool_down": "cool_down_seconds", "timeout": "timeout_seconds"}
    limits = {key: _value(text) for key, text in options.pop("limits").items()}
    pairs = {"limits": limits, "labels": options.pop("labels")}
    for name, value in options.items():
        if value is not None:
            plain[renamed.get(name, name)] = value
    for name, found in pairs.items():
        if found:
            plain[name] = {**plain.get(name, {}), **found}
    if options["baseline"] is not None and options["kind"] is None:
        plain["kind"] = "ab"
    return spec_of(plain)


def _value(text: str) -> Any:
    """A number, true or false; else the text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return ""
