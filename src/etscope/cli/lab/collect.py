"""The dumps of a lab's finished jobs, for `etscope collect --lab`."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from etscope.errors import EtscopeError, MissingDataError, MissingFileError
from etscope.fleet import Dataset, Source

if TYPE_CHECKING:
    from etscope.lab.jobs.api import LabApi
    from etscope.lab.jobs.records import Artifact, Job
    from etscope.lab.lab import Lab

_DUMP, _CONDITIONS = "run.etdp", "conditions.json"
_PAGE = 200


@contextmanager
def lab_sources(lab: str, dataset: str) -> Iterator[list[Source]]:
    """The dumps of all done jobs of a lab: a home's folder, or the URL of a server.

    A home's are read where its store has them, with the record that was submitted. A server's are
    fetched into a temporary folder, those that are not in the dataset yet; it gives no records.
    Raises `MissingDataError` when no job has a dump.
    """
    from etscope.cli.lab.options import need_lab_packages

    need_lab_packages()
    with contextlib.ExitStack() as stack:
        if lab.startswith(("http://", "https://")):
            from etscope.lab.client import Client

            client = stack.enter_context(Client(lab))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etscope-lab-")))
            found = list(_fetched(client, folder, _known(dataset)))
        else:
            from etscope.lab.lab import Lab

            if not Path(lab).is_dir():  # which `Lab.open` would make
                raise MissingFileError(f"there is no lab at {lab}")
            found = list(_stored(stack.enter_context(Lab.open(lab))))
        if not found:
            raise MissingDataError(
                f"no job of {lab} has an ETDump", hint="jobs with traced_iterations leave one"
            )
        yield found


def _stored(lab: Lab) -> Iterator[Source]:
    for job in _jobs(lab):
        dump = job.artifacts[_DUMP]
        yield _source(lab, job, _place(lab, dump.sha256), dump, _record(lab, job))


def _fetched(lab: LabApi, folder: Path, known: set[str]) -> Iterator[Source]:
    """As sources; of those in the dataset already no byte is moved."""
    for job in _jobs(lab):
        dump = job.artifacts[_DUMP]
        target = folder / f"{dump.sha256}.etdp"
        if dump.sha256 not in known and not target.exists():
            with target.open("wb") as out:
                for piece in lab.read(job.id, _DUMP):
                    out.write(piece)
        yield _source(lab, job, str(target), dump, None)


def _jobs(lab: LabApi) -> Iterator[Job]:
    """The done jobs that have a dump, oldest page last."""
    from etscope.lab.jobs.api import Filter
    from etscope.lab.jobs.states import State

    cursor: str | None = None
    while True:
        page = lab.jobs(Filter(states=(State.DONE,)), limit=_PAGE, cursor=cursor)
        yield from (job for job in page.jobs if _DUMP in job.artifacts)
        if page.next is None:
            return
        cursor = page.next


def _source(lab: LabApi, job: Job, url: str, dump: Artifact, etrecord: str | None) -> Source:
    environment = dict(job.environment)
    about: dict[str, Any] = {
        "job": job.id,
        "device": job.device,
        "model": job.spec.name or PurePath(job.spec.title).stem,
        "recorded_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "labels": dict(job.spec.labels),
        "marks": list(job.marks),
        "calls": [{"warmup": job.spec.warmup}],
        "environment": {**environment, "conditions": _conditions(lab, job)},
    }
    for name in ("program_sha256", "runner", "executorch", "threads"):
        about[name] = environment.get(name)
    return Source(url, dump.size, None, about, etrecord, dump.sha256)


def _conditions(lab: LabApi, job: Job) -> Mapping[str, Any]:
    """What the device showed first and last; nothing when the job has not kept it."""
    if _CONDITIONS not in job.artifacts:
        return {}
    try:
        readings = json.loads(b"".join(lab.read(job.id, _CONDITIONS)))
    except (EtscopeError, ValueError):
        return {}
    seen = [reading for reading in readings if isinstance(reading, dict)]
    return {"before": seen[0], "after": seen[-1]} if seen else {}


def _record(lab: Lab, job: Job) -> str | None:
    """The ETRecord that was submitted, as the job's record or as its model."""
    from etscope.formats.identify import ETRECORD, identify

    files = [ref for ref in (job.spec.etrecord, job.spec.model) if ref is not None]
    for ref in files:
        if ref.sha256 is None or not lab.store.has(ref.sha256):
            continue
        place = _place(lab, ref.sha256)
        with contextlib.suppress(EtscopeError):
            if identify(place) == ETRECORD:
                return place
    return None


def _place(lab: Lab, sha256: str) -> str:
    """Where the store has a file: see the layout in `etscope.lab.store.store`."""
    return f"{os.fspath(lab.store.url).rstrip('/')}/sha256/{sha256[:2]}/{sha256}"


def _known(dataset: str) -> set[str]:
    try:
        return Dataset.open(dataset).dump_ids()
    except EtscopeError:
        return set()
