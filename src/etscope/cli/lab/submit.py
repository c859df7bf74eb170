"""`etscope lab submit`: a model, a device, and what was measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.lab.options import key_values, lab_options, need_lab_packages, open_lab
from etscope.cli.options.files import FILE
from etscope.errors import FormatError, UsageError, reading

if TYPE_CHECKING:
    from etscope.lab.client import Client
    from etscope.lab.jobs.records import Job
    from etscope.lab.jobs.spec import JobSpec
    from etscope.lab.lab import Lab


# A job's specification from a file.


_FILES = ("model", "etrecord", "data", "baseline", "inputs")
_LIMIT = 1 << 20  # bytes


def read_spec(path: str) -> dict[str, Any]:
    """The plain values of a YAML or JSON file; paths in it are made relative to its folder's.

    Raises `MissingFileError`, `FormatError` for what is neither, `UsageError` when it holds no
    mapping.
    """
    from etscope.optional import require

    yaml = require("yaml", wanted_by="a job's specification in a file")
    with reading("job specification", path):
        data = Path(path).read_bytes()
        if len(data) > _LIMIT:
            raise FormatError(f"a specification has {_LIMIT:,} bytes at most", path=path)
        try:
            found = yaml.safe_load(data)  # JSON is YAML, too
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f" in line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or error
            raise FormatError(f"neither YAML nor JSON{line}: {problem}", path=path) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no job specification", hint="etscope lab schema")
    for field in _FILES:
        if field in found:
            found[field] = _relative(found[field], Path(path).parent)
    return found


def _relative(value: Any, folder: Path) -> Any:
    if isinstance(value, str) and not value.startswith("sha256:"):
        return str(folder / Path(value).expanduser())
    if isinstance(value, dict) and isinstance(value.get("path"), str):
        return {**value, "path": str(folder / Path(value["path"]).expanduser())}
    return value


# Waiting for a job in a terminal: what it is at, on stderr.


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
    from etscope.cli.lab.progress import transfers
    from etscope.cli.lab.result import exit_code, write_job

    need_lab_packages()
    spec = _spec(model, spec_file, options)
    with transfers() as progress, open_lab(server, token, home, progress=progress) as lab:
        job, new = lab.submit_new(spec, again=again, submitter=_user())
        if not new:
            click.echo(f"the same job is {job.state} already (--again: do it again)", err=True)
        if not wait:
            write_job(lab, job, spec, format)
            return 0
        if not job.state.is_final:
            job = finished(lab, job)
        write_job(lab, job, spec, format)
    return exit_code(job)


def _spec(model: str | None, file: str | None, options: dict[str, Any]) -> JobSpec:
    """The job that the file and the options say."""
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
