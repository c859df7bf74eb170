"""Pages made from a job's files: reports, tables of operators, graphs in TensorBoard.

An artifact that is not in the cache yet is answered with a page that asks again.

TensorBoards, one for each job, run in this process through WSGI: a TensorBoard process would listen
on a port that all users of this machine could read, without the lab's tokens. TensorBoard reads
only files that `_artifact_builders` wrote. It loads them once: a finished job does not change.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from a2wsgi import WSGIMiddleware
from fastapi import Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from etscope.errors import MissingDataError
from etscope.formats.calibration import CALIBRATION_JSON
from etscope.formats.run_json import DEBUG_BIN, RUN_ETDP, RUN_JSON, VALUES_ETDP
from etscope_lab.jobs.records import Job
from etscope_lab.lab import Lab
from etscope_lab.pages._artifact_builders import INPUTS, MODEL, RECORD
from etscope_lab.pages._artifact_cache import ArtifactCache, ArtifactState, Recipe
from etscope_lab.pages._site import Site

_MEASURED = (RUN_ETDP, VALUES_ETDP, DEBUG_BIN, RUN_JSON, CALIBRATION_JSON)
_BASELINE_DUMP = f"baseline.{RUN_ETDP}"  # of the other side of an A/B job
# A report is made from uploads: in a sandbox, code in it would have no origin.
_REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; "
    "script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; worker-src blob: data:; connect-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
_THREADS = 4  # of one board
_NOT_READY = 202  # the status of a page that asks again


def has_dump(job: Job) -> bool:
    return RUN_ETDP in job.artifacts or VALUES_ETDP in job.artifacts


def operators_recipe(job: Job) -> Recipe:
    """Return the recipe of the table of operators. Raises `MissingDataError` without a dump."""
    if not has_dump(job):
        raise MissingDataError("the job has no ETDump", hint="traced_iterations: 1 or more")
    files = {name: sha for name, sha in _files(job).items() if not name.startswith(INPUTS)}
    return Recipe("operators", files)


def report_recipe(job: Job) -> Recipe:
    """Return the recipe of the one-file report; without measurements, of the model's graphs."""
    return Recipe("report", _files(job), {"title": job.spec.title, "method": job.spec.method})


def tensorboard_recipe(job: Job) -> Recipe:
    """Return the recipe of the log directory for TensorBoard."""
    return Recipe("tensorboard", _files(job), {"method": job.spec.method})


def sides_recipe(job: Job) -> Recipe | None:
    """Return the recipe that compares the operators of an A/B job's sides; None unless both were
    traced."""
    artifacts, baseline = job.artifacts, job.spec.baseline
    if RUN_ETDP not in artifacts or _BASELINE_DUMP not in artifacts or baseline is None:
        return None
    files = _files(job)
    found: dict[str, Any] = {f"second/{name}": files[name] for name in (RUN_ETDP, MODEL)}
    found[f"first/{RUN_ETDP}"] = artifacts[_BASELINE_DUMP].sha256
    found[f"first/{MODEL}"] = baseline.sha256
    for side, name in (("second", RUN_JSON), ("first", f"baseline.{RUN_JSON}")):
        if job.spec.generation is not None and name in artifacts:  # the phases of the calls
            found[f"{side}/{RUN_JSON}"] = artifacts[name].sha256
    policy = {"min_effect": job.spec.min_effect, "confidence": job.spec.confidence}
    return Recipe("differences", found, policy)


def _files(job: Job) -> Mapping[str, str]:
    spec = job.spec
    found = {name: job.artifacts[name].sha256 for name in _MEASURED if name in job.artifacts}
    for name, ref in ((MODEL, spec.model), (RECORD, spec.etrecord)):
        if ref is not None and ref.sha256 is not None:
            found[name] = ref.sha256
    inputs = spec.inputs
    if inputs is not None and inputs.sha256 is not None:
        suffix = PurePosixPath(inputs.name).suffix
        known = suffix if suffix in (".npz", ".npy", ".safetensors", ".pt") else ".npz"
        found[f"{INPUTS}{known}"] = inputs.sha256
    return found


def cached_tables(cache: ArtifactCache, recipe: Recipe) -> Any | None:
    """Return tables that are in the cache; None if they are not."""
    state = cache.lookup(recipe)
    return None if state is None or state.folder is None else _read_tables(state.folder)


@lru_cache(maxsize=64)
def _read_tables(folder: Path) -> Any:
    return json.loads((folder / "tables.json").read_text(encoding="utf-8"))


class TensorBoards:
    """The open boards: `most` at a time; then the least recently used one is closed."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._alive: OrderedDict[str, WSGIMiddleware] = OrderedDict()

    def __len__(self) -> int:
        return len(self._alive)

    def respond(self, job_id: str, logdir: Path) -> Response:
        """Return the board's response to the current request."""
        with self._lock:
            board = self._alive.get(job_id)
            if board is None:
                board = self._alive[job_id] = WSGIMiddleware(_wsgi(job_id, logdir), _THREADS)
            self._alive.move_to_end(job_id)
            self._sweep()
        return _Delegated(board)

    def close(self) -> None:
        with self._lock:
            self._most = 0
            self._sweep()

    def _sweep(self) -> None:
        while len(self._alive) > self._most:
            _, board = self._alive.popitem(last=False)
            board.executor.shutdown(wait=False)


class _Delegated(Response):
    """A response that another application gives."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _wsgi(job_id: str, logdir: Path) -> Any:
    """Return TensorBoard as a WSGI application: its graphs, its texts, and the report in a tab."""
    from tensorboard import program
    from tensorboard.plugins.core import core_plugin
    from tensorboard.plugins.graph import graphs_plugin
    from tensorboard.plugins.text import text_plugin

    from etscope.reporting.tensorboard_plugin import Loader

    made: list[Any] = []
    board = program.TensorBoard(
        plugins=[
            core_plugin.CorePluginLoader,
            graphs_plugin.GraphsPlugin,
            text_plugin.TextPlugin,
            Loader,
        ],
        server_class=lambda app, flags: _NoServer(app, made),
    )
    board.configure(
        ["tensorboard", "--logdir", str(logdir)],
        path_prefix=f"/jobs/{job_id}/tensorboard",
        load_fast="false",
        reload_interval=0,
        reload_task="blocking",
        window_title=f"etscope lab: {job_id}",
    )
    board.launch()
    return made[0]


class _NoServer:
    """Stands in for TensorBoard's server: keeps the application, and serves nothing."""

    def __init__(self, app: Any, made: list[Any]) -> None:
        made.append(app)

    def serve_forever(self) -> None:
        pass

    def get_url(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class ArtifactPages:
    """The pages that show artifacts of a lab's jobs."""

    site: Site
    cache: ArtifactCache
    boards: TensorBoards
    lab: Lab

    def operators(self, request: Request, job_id: str) -> Response:
        """Return the tables of operators, as a part of a page."""
        job = self.lab.job(job_id)
        return self.tables(request, operators_recipe(job), job.id)

    def sides(self, request: Request, job_id: str) -> Response:
        """Return the comparison of the operators of an A/B job's sides, as a part of a page."""
        recipe = sides_recipe(self.lab.job(job_id))
        if recipe is None:
            raise MissingDataError(f"job {job_id} does not have two dumps to compare")
        return self.tables(request, recipe)

    def tables(self, request: Request, recipe: Recipe, job_id: str | None = None) -> Response:
        """Return tables and charts, as a part of a page."""
        state = self.cache.request(recipe)
        tables = [] if state.folder is None else _read_tables(state.folder)
        status = 500 if state.failure else 200 if tables else _NOT_READY
        return self.site.page(
            request, "tables.html", status, tables=tables, failure=state.failure, job_id=job_id
        )

    def report(self, request: Request, job_id: str) -> Response:
        """Return the one-file report."""
        state = self.cache.request(report_recipe(self.lab.job(job_id)))
        if state.folder is None:
            return self._waiting(request, state, "the report", framed=True)
        own = {
            "Content-Security-Policy": _REPORT_POLICY,
            "Cache-Control": "private, max-age=600",
            # Browsers do not open a page in a sandbox with another policy.
            "Cross-Origin-Opener-Policy": "unsafe-none",
        }
        return FileResponse(state.folder / "report.html", media_type="text/html", headers=own)

    def tensorboard(self, request: Request, job_id: str) -> Response:
        """Redirect to the job's TensorBoard when its log directory is there."""
        job = self.lab.job(job_id)
        state = self.cache.request(tensorboard_recipe(job))
        if state.folder is None:
            return self._waiting(request, state, "the graphs for TensorBoard")
        base = str(request.scope.get("root_path", "")).rstrip("/")
        return RedirectResponse(f"{base}/jobs/{job.id}/tensorboard/", 303)

    def inside_tensorboard(self, request: Request, job_id: str) -> Response:
        """Return the response of TensorBoard itself."""
        job = self.lab.job(job_id)
        state = self.cache.request(tensorboard_recipe(job))
        if state.folder is None:
            return self.tensorboard(request, job_id)
        return self.boards.respond(job.id, state.folder / "runs")

    def _waiting(
        self, request: Request, state: ArtifactState, what: str, *, framed: bool = False
    ) -> Response:
        """Return a page that asks again until the artifact is there, or shows why it cannot be
        made."""
        status = _NOT_READY if state.failure is None else 500
        return self.site.page(
            request, "waiting.html", status, framed=framed, what=what, failure=state.failure
        )
