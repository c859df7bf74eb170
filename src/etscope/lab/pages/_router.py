"""All routes of the pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from etscope.errors import EtscopeError, MissingDataError
from etscope.lab.lab import Lab
from etscope.lab.pages import _compare, _devices, _history, _job, _jobs, _site
from etscope.lab.pages import _pending_page as _made
from etscope.lab.pages._artifact_cache import Workshop
from etscope.lab.pages._tensorboards import Boards
from etscope.lab.server.security import csrf_token, needs

Endpoint = Callable[..., Response]


def router_of(lab: Lab) -> APIRouter:
    """See `etscope.lab.pages.router`."""
    site = _site.Site(csrf_token)
    workshop = Workshop(lab.home.folder / "cache" / "pages", lab.store)
    boards = Boards()
    router = APIRouter(include_in_schema=False, lifespan=_closing(workshop, boards))
    read, submit = [Depends(needs("read"))], [Depends(needs("submit"))]

    def page(path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """A GET route whose errors are pages."""

        def add(endpoint: Endpoint) -> Endpoint:
            router.get(path, dependencies=read, response_model=None, **options)(
                _with_failures(site, endpoint)
            )
            return endpoint

        return add

    def form(path: str) -> Callable[[Endpoint], Endpoint]:
        def add(endpoint: Endpoint) -> Endpoint:
            router.post(path, dependencies=submit, response_model=None)(
                _with_failures(site, endpoint)
            )
            return endpoint

        return add

    @router.get("/assets/{name}", response_model=None)
    def assets(request: Request, name: str) -> Response:
        found = _site.asset(name)
        if found is None:
            return site.failure(request, MissingDataError(f"there is no file {name!r}"))
        return found

    @page("/")
    def jobs(request: Request) -> Response:
        return site.page(request, "jobs.html", **_jobs.context(lab, request.query_params))

    @page("/jobs/{job_id}")
    def job(request: Request, job_id: str) -> Response:
        return site.page(request, "job.html", **_job.context(lab, workshop, job_id))

    @page("/jobs/{job_id}/operators")
    def operators(request: Request, job_id: str) -> Response:
        return _made.operators(site, request, workshop, lab, job_id)

    @page("/jobs/{job_id}/sides")
    def sides(request: Request, job_id: str) -> Response:
        return _made.sides(site, request, workshop, lab, job_id)

    @page("/jobs/{job_id}/report")
    def report(request: Request, job_id: str) -> Response:
        return _made.report(site, request, workshop, lab, job_id)

    @page("/jobs/{job_id}/tensorboard")
    def board(request: Request, job_id: str) -> Response:
        return _made.tensorboard(site, request, workshop, lab, job_id)

    @page("/jobs/{job_id}/tensorboard/{rest:path}")
    def inside_board(request: Request, job_id: str, rest: str) -> Response:
        return _made.in_tensorboard(site, request, workshop, boards, lab, job_id)

    @page("/jobs/{job_id}/files/{name}")
    def file(request: Request, job_id: str, name: str) -> Response:
        return _job.download(lab, job_id, name)

    @form("/jobs/{job_id}/cancel")
    def cancel(request: Request, job_id: str) -> Response:
        return _to(request, f"/jobs/{lab.cancel(job_id).id}")

    @form("/jobs/{job_id}/again")
    def again(request: Request, job_id: str) -> Response:
        old = lab.job(job_id)
        who = request.state.principal.name
        new = lab.submit(old.spec, again=True, submitter=who or old.submitter)
        return _to(request, f"/jobs/{new.id}")

    @page("/history")
    def history(request: Request) -> Response:
        return site.page(request, "history.html", **_history.context(lab, request.query_params))

    @page("/compare")
    def compare(request: Request) -> Response:
        found = _compare.context(lab, request.query_params)
        return site.page(request, "compare.html", **found)

    @page("/compare/verdict")
    def verdict(request: Request) -> Response:
        return _compare.verdict(site, request, lab)

    @page("/devices")
    def devices(request: Request) -> Response:
        return site.page(request, "devices.html", **_devices.context(lab))

    @page("/devices/{name}/noise")
    def noise(request: Request, name: str) -> Response:
        return site.page(request, "noise.html", noise=_devices.noise(lab, name))

    return router


def _with_failures(site: _site.Site, endpoint: Endpoint) -> Endpoint:
    """The endpoint, whose errors are answered with a page."""

    @wraps(endpoint)
    def answer(request: Request, **values: Any) -> Response:
        try:
            return endpoint(request, **values)
        except EtscopeError as error:
            return site.failure(request, error)

    return answer


def _closing(workshop: Workshop, boards: Boards) -> Any:
    """What ends what the pages began, with the server."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        boards.close()
        await run_in_threadpool(workshop.close)

    return lifespan


def _to(request: Request, path: str) -> Response:
    base = str(request.scope.get("root_path", "")).rstrip("/")
    return RedirectResponse(f"{base}{path}", 303)
