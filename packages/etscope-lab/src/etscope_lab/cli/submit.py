"""`etscope lab submit`: benchmark a model on a device."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    FILE,
    RUNNERS,
    data_option,
    etrecord_option,
    file_option,
    pairs_option,
)
from etscope.cli.options.run import DEBUG_LEVELS
from etscope.cli.output.progress import saying, transfers
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import Setting, setting
from etscope.cli.verb import verb
from etscope.errors import FormatError, UsageError, reading
from etscope_lab.cli.options import (
    LabOptions,
    exit_code,
    in_lab,
    write_job,
)

if TYPE_CHECKING:
    from etscope_lab.client import Client
    from etscope_lab.jobs.records import Job
    from etscope_lab.jobs.spec import JobSpec
    from etscope_lab.lab import Lab

_JOBS = (".yaml", ".yml", ".json")
_GENERATION = ("lengths", "new_tokens", "cold", "warm")  # options that are fields of `generation`
_LIMIT = 1 << 20  # bytes of a specification
_POLL = 0.5  # seconds
_PATIENCE = 5.0  # seconds in the queue before the reason for waiting is shown
_STOP = 10.0  # seconds that an interrupted job has to end


_DETAILS = """\
No server is needed: this process runs the job, in the lab in ~/.etscope/lab. If a server runs
for that folder, or is named with --server, it runs the job instead. The same job is not run
twice: its result is shown again, and conditions that did not hold are named.

JOB is a job as YAML or JSON (see etscope lab schema), with paths relative to the file; options
override it. Or it is a sweep, SWEEP.toml: lists of models, backends, quantize, options, devices,
threads and commits, with a job for each combination. The same command goes on where an interrupted
one stopped.

--kind generate, or one of its options, measures the tokens of a language model: to the first
one, cold and warm, and from one to the next. With --baseline an A/B job compares these times.

Exit codes: 0 done; 1 done, with a finding: values differ from the reference, outputs of a test
case differ, the model is slower than its baseline or under sustained load, a quality gate
failed; 3 user_error (what was submitted cannot run); 4 invalid (a limit was exceeded) or
cancelled; 5 failed, timeout or device_lost; 130 interrupted, which cancels a job that this
process runs.
"""


@verb(
    {
        "Job": ("--device", "--inputs", "--baseline", "--kind"),
        "Measure": ("--iterations", "--threads", "--debug-level", "-X"),
        "Result": ("--label", "--name", "--wait", "--format"),
    },
    details=_DETAILS,
)
@click.argument("model", metavar="MODEL|JOB", type=FILE)
@click.option(
    "--device", "-d", metavar="SELECTOR",
    help="A name, or attributes: arch=aarch64,driver=ssh. Values may be patterns: pixel-*. "
    "Default: host.",
)  # fmt: skip
@etrecord_option
@data_option
@file_option("--inputs", "-i", help="Inputs of the method.")
@click.option("--method", "-m", metavar="NAME", help="Method to run.")
@file_option("--baseline", help="Run an A/B job: compare MODEL with this model.")
@click.option(
    "--kind",
    type=click.Choice(("benchmark", "generate", "accuracy", "ab")),
    help="Kind of the job; generate: tokens of a language model.",
)
@click.option(
    "--prompt-length", "lengths", type=int, multiple=True, metavar="N",
    help="Generate from a prompt of N tokens, drawn from the job's seed. Repeatable. Default: 128.",
)  # fmt: skip
@file_option(
    "--prompts", cls=Setting, help="Generate from the prompts in this file: a line of ids each."
)
@setting("new_tokens", type=int, metavar="N", help="Number of tokens to generate. Default: 128.")
@setting(
    "cold", type=int, metavar="N",
    help="New processes that generate once, for each prompt. Default: 2.",
)  # fmt: skip
@setting(
    "warm", type=int, metavar="N",
    help="Timed generations in one process, for each prompt. Default: 3.",
)  # fmt: skip
@click.option(
    "--iterations", type=int, metavar="N", help="Number of timed executions. Default: 50."
)
@setting(
    "warmup",
    type=int,
    metavar="N",
    help="Number of untimed executions before the timed ones. Default: 5.",
)
@setting(
    "traced_iterations", type=int, metavar="N",
    help="Executions of the separate run that writes the ETDump; 0: none. Default: 20.",
)  # fmt: skip
@click.option(
    "--debug-level",
    type=click.Choice(DEBUG_LEVELS),
    help="Values to record, in a separate run.",
)
@setting("runner", type=click.Choice((*RUNNERS, "app")), help="Default: auto.")
@click.option("--threads", type=int, metavar="N", help="Threads of the runtime's thread pool.")
@setting(
    "cool_down_seconds",
    type=float,
    metavar="SECONDS",
    help="Idle time of the device before the job.",
)
@setting(
    "timeout_seconds",
    type=float,
    metavar="SECONDS",
    help="Time limit of the whole job. Default: 600.",
)
@pairs_option("--label", "labels", help="Label of the job. Repeatable.")
@click.option("--name", metavar="TEXT", help="Name of the job in lists. Default: the model's name.")
@setting("priority", type=int, metavar="N", help="Jobs with a higher priority run first.")
@click.option("--again", is_flag=True, help="Run the job even if the same job has been run.")
@click.option(
    "--wait/--async", "wait", default=True,
    help="Wait for the result, or only queue the job.",
)  # fmt: skip
@click.option(
    "--format", "-f", type=click.Choice(("table", "json")), default="table",
    help="json: the job as the API returns it.",
)  # fmt: skip
@in_lab
def command(
    model: str,
    again: bool,
    wait: bool,
    where: LabOptions,
    format: str,
    **options: Any,
) -> int:
    """Benchmark MODEL (an ETRecord that holds its program, a .pte or a .bpte) on a device.

    \b
    etscope lab submit model.etrecord --wait
    etscope lab --server URL submit model.etrecord --device pixel-8
    etscope lab submit new.etrecord --baseline old.etrecord
    etscope lab submit job.yaml
    etscope lab submit nightly.toml
    """
    if model.endswith(".toml"):
        return _submit_sweep(model, again, wait, where, format, options)
    spec = _job_spec(model, options)
    with transfers() as progress, where.open(progress=progress) as lab:
        import getpass

        user = ""
        with suppress(KeyError, OSError):  # a user id without a name
            user = getpass.getuser()
        job, new = lab.submit_new(spec, again=again, submitter=user)
        if not new:
            click.echo(_already(job), err=True)
        if not wait:
            write_job(lab, job, spec, format)
            return 0
        job = wait_for(lab, job)
        write_job(lab, job, spec, format)
    return exit_code(job)


def _submit_sweep(
    path: str, again: bool, wait: bool, where: LabOptions, format: str, options: dict[str, Any]
) -> int:
    """Submit the jobs of a sweep, wait for them, and show its board; return the exit code."""
    from etscope_lab.jobs.records import FINAL, State
    from etscope_lab.lab import Lab
    from etscope_lab.sweep import board, cells_of, jobs_of, read_sweep, work_of

    given = [name for name, one in options.items() if one not in (None, (), {}, False)]
    if extra := [name for name in given if name != "labels"]:
        raise UsageError(f"a sweep does not take {extra[0]}", hint=f"write it into {path}")
    sweep = read_sweep(path)
    jobs: list[Job] = []
    failed = set()  # programs
    with transfers() as progress, where.open(progress=progress) as lab:
        failures = FINAL - {State.DONE}
        known = {
            work_of(job.spec): job
            for job in jobs_of(lab, sweep.name)
            if not again and job.state not in failures
        }
        before = Path.cwd()
        os.chdir(Path(path).parent)
        try:
            for cell in cells_of(sweep, options["labels"]):
                if cell.failure and cell.spec.model not in failed:
                    failed.add(cell.spec.model)
                    click.echo(f"warning: {cell.spec.title}: {cell.failure}", err=True)
                job = known.get(work_of(cell.spec))
                if job is None:
                    job, _ = lab.submit_new(cell.spec, again=again, failure=cell.failure)
                jobs.append(job)
        finally:
            os.chdir(before)
        if wait:
            if isinstance(lab, Lab) and not all(job.state.is_final for job in jobs):
                for job in jobs:
                    _check_device(lab, job)
                lab.start_engine(only=[job.id for job in jobs])
            for number, job in enumerate(jobs):
                ended = lab.wait(job.id)
                jobs[number] = ended
                said = f"{number + 1} of {len(jobs)}: {job.spec.title}, {ended.device}"
                click.echo(f"{said}: {ended.state}", err=True)
        table = board(sweep.name, jobs_of(lab, sweep.name))
        OutputOptions(format=format).write_tables([table])
    shown = jobs if wait else [job for job in jobs if job.state is State.USER_ERROR]
    return max(map(exit_code, shown), default=0)


def _already(job: Job) -> str:
    """Say that the same job is not done again, and what is wrong with its result."""
    from etscope_lab.worker.conditions import is_lasting

    caveats = "; ".join(mark for mark in job.marks if not is_lasting(mark))
    if not caveats:
        return f"the same job is {job.state} already (--again: run it again)"
    return (
        f"the same job is {job.state} already, with a caveat: {caveats}. "
        "Histories do not judge its times; --again measures it anew"
    )


def _job_spec(model: str, options: dict[str, Any]) -> JobSpec:
    """Combine a job's file, if there is one, and the options, which override it."""
    from etscope_lab.jobs.spec import spec_of

    plain: dict[str, Any] = read_spec(model) if model.endswith(_JOBS) else {"model": model}
    if labels := options.pop("labels"):
        plain["labels"] = {**plain.get("labels", {}), **labels}
    generation = {name: options.pop(name) for name in _GENERATION}
    generation = {name: value for name, value in generation.items() if value not in (None, ())}
    kind = options["kind"] or plain.get("kind")
    if kind is None and (generation or options["prompts"]):
        plain["kind"] = "ab" if options["baseline"] else "generate"
    if generation:
        plain["generation"] = {**(plain.get("generation") or {}), **generation}
    plain |= {name: value for name, value in options.items() if value is not None}
    if options["baseline"] is not None and options["kind"] is None:
        plain["kind"] = "ab"
    return spec_of(plain)


def read_spec(path: str) -> dict[str, Any]:
    """Read a job's specification as plain values; paths in it are relative to the file's folder.

    Raises `MissingFileError`, `FormatError` for neither YAML nor JSON, `UsageError` for no mapping.
    """
    import yaml

    from etscope_lab.jobs.spec import FILES, FILES_OF_QUALITY

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
    folder = Path(path).parent
    _locate(found, FILES, folder)
    if isinstance(found.get("quality"), dict):
        _locate(found["quality"], FILES_OF_QUALITY, folder)
    return found


def _locate(fields: dict[str, Any], names: Sequence[str], folder: Path) -> None:
    """Make the paths of files relative to the current folder, not to `folder`."""
    for field in names:
        value = fields.get(field)
        if isinstance(value, str) and not value.startswith("sha256:"):
            fields[field] = str(folder / Path(value).expanduser())
        elif isinstance(value, dict) and isinstance(value.get("path"), str):
            fields[field] = {**value, "path": str(folder / Path(value["path"]).expanduser())}


def wait_for(lab: Lab | Client, job: Job) -> Job:
    """Wait for the job to end and show its state. Without a server, this process runs the job.

    An interrupt cancels a job that this process runs; one of a server continues.
    """
    if job.state.is_final:
        return job
    from etscope_lab.lab import Lab

    here = lab if isinstance(lab, Lab) else None
    if here is not None:
        _check_device(here, job)
        here.start_engine(only=[job.id])
    begun = time.monotonic()
    try:
        with _state_line(job.spec.title) as show:
            while True:
                on_device = f" on {job.device}" if job.device else ""
                attempt = f", attempt {job.attempt}" if job.attempt > 1 else ""
                reason = ""
                if job.state == "queued" and time.monotonic() - begun > _PATIENCE:
                    reason = _missing_device(lab, job)
                show(f"{job.state}{on_device}{attempt}{reason}")
                try:
                    return lab.wait(job.id, _POLL)
                except TimeoutError:
                    job = lab.job(job.id)
    except KeyboardInterrupt:
        if here is None:
            click.echo(f"the server continues it: etscope lab cancel {job.id[:12]}", err=True)
            raise
        with suppress(UsageError, TimeoutError):  # it has ended meanwhile; it does not end
            here.cancel(job.id)
            here.wait(job.id, _STOP)
        raise


def _missing_device(lab: Lab | Client, job: Job) -> str:
    """Describe the device that a queued job waits for; empty if one is online."""
    takes = job.spec.device.takes
    matching = [one for one in lab.devices() if takes(one.config.name, one.attributes)]
    if not matching:
        return ", waiting for a device: no device of the lab, as last seen, matches the selector"
    offline = [one for one in matching if one.state == "offline"]
    if len(offline) < len(matching):
        return ""
    names = "; ".join(f"{one.config.name} (offline: {one.message})" for one in offline)
    return f", waiting for {names}"


def _check_device(lab: Lab, job: Job) -> None:
    """Cancel the job and raise `UsageError` if no device of this lab can ever run it."""
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
            hint=f"the lab's devices: {names}; describe more in {lab.home.folder / 'lab.yaml'}",
        )


@contextmanager
def _state_line(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a job's state on stderr: on a terminal in a line that changes,
    else a line for each change."""
    last = ""
    with saying(f"{title}: queued") as draw:

        def show(text: str) -> None:
            nonlocal last
            if text == last:
                return
            last = text
            draw(f"{title}: {text}")
            if not sys.stderr.isatty():
                click.echo(f"{title}: {text}", err=True)

        yield show
