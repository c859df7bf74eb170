"""Answers with what the workshop makes: a page that waits while it is made."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from etscope.errors import MissingDataError
from etscope.lab.lab import Lab
from etscope.lab.pages import _artifact_cache as _recipes
from etscope.lab.pages._artifact_cache import Made, Recipe, Workshop
from etscope.lab.pages._site import Site, headers
from etscope.lab.pages._tensorboards import Boards

# The report is made of what was uploaded: whatever acted in it would be of no origin.
_REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; "
    "script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; worker-src blob: data:; connect-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
_WORKING = 202  # the status of a page that asks to be asked again


def tables(workshop: Workshop, recipe: Recipe) -> Any | None:
    """Tables that are made already; None while they are not."""
    made = workshop.look(recipe)
    return None if made is None or made.folder is None else _tables(made.folder / "tables.json")


def operators(site: Site, request: Request, workshop: Workshop, lab: Lab, job_id: str) -> Response:
    """The tables of operators, as a piece of a page."""
    return _piece(site, request, workshop, _recipes.operators(lab.job(job_id)))


def sides(site: Site, request: Request, workshop: Workshop, lab: Lab, job_id: str) -> Response:
    """The operators of an A/B job's sides against each other, as a piece of a page."""
    recipe = _recipes.sides(lab.job(job_id))
    if recipe is None:
        raise MissingDataError(f"job {job_id} has not two dumps to compare")
    return _piece(site, request, workshop, recipe)


def report(site: Site, request: Request, workshop: Workshop, lab: Lab, job_id: str) -> Response:
    """The one-file report."""
    made = workshop.ask(_recipes.report(lab.job(job_id)))
    if made.folder is None:
        return _waiting(site, request, made, "the report", embedded=True)
    kept = headers(
        **{
            "Content-Security-Policy": _REPORT_POLICY,
            "Cache-Control": "private, max-age=600",
            # A page in a sandbox cannot be opened with another one.
            "Cross-Origin-Opener-Policy": "unsafe-none",
        }
    )
    return FileResponse(made.folder / "report.html", media_type="text/html", headers=kept)


def tensorboard(
    site: Site, request: Request, workshop: Workshop, lab: Lab, job_id: str
) -> Response:
    """To the job's TensorBoard, when there is something for it to show."""
    job = lab.job(job_id)
    made = workshop.ask(_recipes.tensorboard(job))
    if made.folder is None:
        return _waiting(site, request, made, "the graphs for TensorBoard")
    base = str(request.scope.get("root_path", "")).rstrip("/")
    return RedirectResponse(f"{base}/jobs/{job.id}/tensorboard/", 303)


def in_tensorboard(
    site: Site, request: Request, workshop: Workshop, boards: Boards, lab: Lab, job_id: str
) -> Response:
    """What TensorBoard answers."""
    job = lab.job(job_id)
    made = workshop.ask(_recipes.tensorboard(job))
    if made.folder is None:
        return tensorboard(site, request, workshop, lab, job_id)
    return boards.answer(job.id, made.folder / "runs")


def _piece(site: Site, request: Request, workshop: Workshop, recipe: Recipe) -> Response:
    made = workshop.ask(recipe)
    found = [] if made.folder is None else _tables(made.folder / "tables.json")
    status = 500 if made.failure else 200 if found else _WORKING
    return site.page(request, "tables.html", status, tables=found, failure=made.failure)


def _waiting(
    site: Site, request: Request, made: Made, what: str, *, embedded: bool = False
) -> Response:
    """A page that asks again until it is made, or says why it cannot be."""
    status = _WORKING if made.failure is None else 500
    return site.page(
        request, "waiting.html", status, framed=embedded, what=what, failure=made.failure
    )


@lru_cache(maxsize=64)
def _tables(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
