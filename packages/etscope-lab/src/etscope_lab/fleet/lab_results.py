"""The results of a lab's jobs as sources of a dataset, and the dataset that a lab keeps of them.

Each job that ended is a result, also a failed one: of a job with dumps a row for each, else one row
without a dump. A/B jobs have no dump of their own, so they are of the latter.

The lab's dataset is in its folder. It is brought up to date when somebody asks (`lab_dataset`): the
jobs that ended since then are collected in the order in which they ended, some at a time.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any

from etscope.errors import EtscopeError, MissingDataError, MissingFileError, UsageError
from etscope.formats.bytes.files import atomic_write
from etscope.formats.identify import ETRECORD, identify
from etscope.formats.run_json import RUN_ETDP, RUN_JSON
from etscope_lab.fleet._collect import collect
from etscope_lab.fleet._dataset import Dataset
from etscope_lab.fleet._sources import Source
from etscope_lab.jobs.generations import ENERGY, prompt_file
from etscope_lab.jobs.records import FINAL, Artifact, Filter, Job, LabApi, Series

if TYPE_CHECKING:
    from etscope_lab.lab import Lab

_CONDITIONS = "conditions.json"
_VERDICTS = ("ab", "sustained", "numerics")  # parts of a summary that have one
_PAGE = 200
_logger = logging.getLogger("etscope_lab")


@contextmanager
def lab_results(lab: str, dataset: str | os.PathLike[str]) -> Iterator[list[Source]]:
    """The results of all jobs of a lab that ended: of a lab's folder, or of the URL of a server.

    A folder's dumps are read from its store, with the ETRecord that was submitted. A server's are
    fetched into a temporary folder, except dumps that the dataset has already; a server
    gives no ETRecords. Raises `MissingDataError` when no job has ended.
    """
    from etscope_lab.client import Client
    from etscope_lab.lab import Lab

    known: set[str] = set()
    with suppress(EtscopeError):  # the dataset does not exist yet
        known = Dataset.open(dataset).dump_ids()
    with ExitStack() as stack:
        opened: Lab | Client
        if lab.startswith(("http://", "https://")):
            opened = stack.enter_context(Client(lab))
        elif Path(lab).is_dir():  # `Lab.open` would create it
            opened = stack.enter_context(Lab.open(lab))
        else:
            raise MissingFileError(f"{lab} is not a lab's folder")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etscope-lab-")))
        standings = _standings(opened.history())
        found = list(_sources(opened, _ended(opened), known, folder, standings))
        if not found:
            raise MissingDataError(f"no job of {lab} has ended")
        yield found


def _ended(lab: LabApi) -> Iterator[Job]:
    cursor: str | None = None
    while True:
        page = lab.jobs(Filter(states=tuple(FINAL)), limit=_PAGE, cursor=cursor)
        yield from page.jobs
        if page.next is None:
            return
        cursor = page.next


def _sources(
    lab: LabApi,
    jobs: Iterable[Job],
    known: Collection[str],
    folder: Path,
    standings: Mapping[str, str],
) -> Iterator[Source]:
    """Yield the results of jobs. folder: for dumps that are not in a store of this machine."""
    store = getattr(lab, "store", None)
    for job in jobs:
        record = None if store is None else _record_of(job, store)
        columns = {**_columns(job), "standing": standings.get(job.id)}
        dumps = list(_dumps_of(job))
        for number, dump in dumps:
            url = os.fspath(folder / f"{dump.sha256}.etdp")
            is_new = dump.sha256 not in known
            if store is not None:
                url = _path_in(store, dump.sha256)
            elif is_new and not os.path.exists(url):  # noqa: PTH110
                with open(url, "wb") as out:  # noqa: PTH123
                    out.writelines(lab.read(job.id, dump.name))
            about = _facts(lab, job, number) if is_new else {}
            yield Source(url, dump.size, None, about, record, dump.sha256, columns)
        if not dumps:
            name = f"job:{job.id}"
            about = _facts(lab, job, 0) if name not in known else {}
            yield Source(name, 0, None, about, None, name, columns, has_dump=False)


def _path_in(store: Any, sha256: str) -> str:
    """The path of a file; see the layout in `etscope_lab.store`."""
    return f"{os.fspath(store.url).rstrip('/')}/sha256/{sha256[:2]}/{sha256}"


def _record_of(job: Job, store: Any) -> str | None:
    """The path of the ETRecord that was submitted, which may be the model; None without one."""
    for submitted in (job.spec.etrecord, job.spec.model):
        sha256 = None if submitted is None else submitted.sha256
        if sha256 is not None and store.has(sha256):
            with suppress(EtscopeError):
                if identify(_path_in(store, sha256)) == ETRECORD:
                    return _path_in(store, sha256)
    return None


def _dumps_of(job: Job) -> Iterator[tuple[int, Artifact]]:
    """The dumps of a job: one, or one for each prompt of a generate job, with its number."""
    number = 0
    while (found := job.artifacts.get(prompt_file(number, RUN_ETDP))) is not None:
        yield number, found
        number += 1


def _read_json(lab: LabApi, job: Job, name: str) -> Any:
    """A JSON file of a job; None if there is none, or it is damaged."""
    if name in job.artifacts:
        with suppress(EtscopeError, ValueError):
            return json.loads(b"".join(lab.read(job.id, name)))
    return None


def _facts(lab: LabApi, job: Job, number: int) -> dict[str, Any]:
    """The content of a run.json for a result of a job. number: of its prompt."""
    readings = _read_json(lab, job, _CONDITIONS) or []
    readings = [reading for reading in readings if isinstance(reading, dict)]
    conditions = {"before": readings[0], "after": readings[-1]} if readings else {}
    environment = dict(job.environment)
    run = _read_json(lab, job, prompt_file(number, RUN_JSON))
    kept = run if isinstance(run, dict) else {}
    ended = job.finished_at or job.created_at
    return {
        **{key: kept.get(key) for key in ("latencies", "memory", "conditions", "generation")},
        "job": job.id,
        "device": job.device,
        "model": job.spec.name or PurePath(job.spec.title).stem,
        "recorded_at": ended.isoformat(),
        "labels": dict(job.spec.labels),
        "marks": list(job.marks),
        "calls": [{"warmup": job.spec.warmup}] if job.spec.generation is None else [],
        "environment": {**environment, "conditions": conditions},
        **{n: environment.get(n) for n in ("program_sha256", "runner", "executorch", "threads")},
    }


def _standings(every: Iterable[Series]) -> dict[str, str]:
    """The verdicts on the times of jobs, by id."""
    times = (series for series in every if series.metric != ENERGY)
    return {point.job_id: str(point.standing) for series in times for point in series.points}


def _columns(job: Job) -> dict[str, Any]:
    """The columns of `DUMP_FIELDS` that only a job has."""
    verdicts = (_object(job.summary.get(name)).get("verdict") for name in _VERDICTS)
    return {
        "mode": job.spec.kind,
        "state": str(job.state),
        "failure": job.error or None,
        "backend": str(job.summary.get("backend") or "") or None,
        "energy_j": _object(job.summary.get("energy")).get("per_inference_j"),
        "verdict": next((str(one) for one in verdicts if one), None),
        "metrics": list(_numbers(job.summary, "")),
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """Yield all numbers of a summary by their path: "latency.p50_ms", "generation.0.load_ms"."""
    if isinstance(value, (int, float)):
        yield name, float(value)
    elif isinstance(value, (Mapping, list)):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in pairs:
            yield from _numbers(one, f"{name}.{key}" if name else str(key))


# -- The dataset of a lab.

_DATASET, _RECORDS = "dataset", "records"  # in the lab's folder; the latter has v3 records to add
_UNTIL = "until.json"
_AT_ONCE = 500  # jobs
_MOST_SECONDS = 60.0  # of one call; the next one goes on
_OVERLAP = timedelta(minutes=5)  # jobs may be committed in another order than they end


def lab_dataset(lab: Lab) -> Dataset:
    """The dataset of a lab with a folder, with the jobs that ended until now; while another process
    adds them, or if there are too many for a minute, those until some time before.

    Files of benchmark records in the folder `records` of the lab are added, too.
    """
    dataset = Dataset.make(lab.home.folder / _DATASET)
    with suppress(UsageError):  # another process adds them at this moment
        _add_new(lab, dataset)
    return dataset


def _add_new(lab: Lab, dataset: Dataset) -> None:
    until_path, begin = dataset.folder / _UNTIL, monotonic()
    until = datetime.fromtimestamp(0, timezone.utc)
    with suppress(OSError, ValueError, KeyError):
        until = datetime.fromisoformat(json.loads(until_path.read_text())["until"])
    changed = lab.database.measured_since(until - _OVERLAP)
    place = (until - _OVERLAP, 0)
    while monotonic() - begin < _MOST_SECONDS:
        jobs, place = lab.database.ended_after(*place, _AT_ONCE)
        with tempfile.TemporaryDirectory(prefix="etscope-lab-") as folder:
            found = list(_sources(lab, jobs, dataset.dump_ids(), Path(folder), {}))
        if found:
            _collect_of(found, dataset)
            with atomic_write(until_path) as file:
                file.write(json.dumps({"until": place[0].isoformat()}).encode())
        if len(jobs) < _AT_ONCE:
            break
    records = lab.home.folder / _RECORDS
    if records.is_dir():
        with suppress(MissingDataError):  # nothing is in it
            _collect_of([records], dataset)
    for key in changed:
        dataset.add_standings(_standings(lab.history(*key)))


def _collect_of(found: Sequence[Source | Path], dataset: Dataset) -> None:
    for bad in collect(found, dataset.folder).bad:
        _logger.warning("%s is not in the lab's dataset: %s", bad.url, bad.error)
