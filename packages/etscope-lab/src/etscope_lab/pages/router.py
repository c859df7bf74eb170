"""The routes of all pages, with their forms, tables and files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope_lab.jobs.records import AlarmState
from etscope_lab.lab import Lab
from etscope_lab.pages import _job, _overviews
from etscope_lab.pages._artifact_cache import ArtifactCache
from etscope_lab.pages._artifact_pages import ArtifactPages, TensorBoards
from etscope_lab.pages._site import Site, asset
from etscope_lab.server.files import download
from etscope_lab.server.jobs import cancelled
from etscope_lab.server.security import SEEN, csrf_token, needs

Endpoint = Callable[..., Response]


def router(lab: Lab) -> APIRouter:
    """Return the routes of the lab's pages."""
    site = Site(csrf_token)
    cache = ArtifactCache(lab.home.folder / "cache" / "pages", lab.store)
    boards = TensorBoards()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        boards.close()
        await run_in_threadpool(cache.close)

    routes = APIRouter(include_in_schema=False, lifespan=lifespan)

    @routes.get("/assets/{name}", response_model=None)
    def assets(request: Request, name: str) -> Response:
        found = asset(name)
        if found is None:
            return site.failure(request, MissingDataError(f"no file has the name {name!r}"))
        return found

    pages = _PageRoutes(routes, site)
    _add_overviews(pages, lab)
    artifacts = ArtifactPages(site, cache, boards, lab)
    _add_job_pages(pages, lab, cache, artifacts)
    _add_dashboards(pages, lab, artifacts)
    return routes


class _PageRoutes:
    """Decorators that add a page or a form; an `EtscopeError` of it is shown as a page."""

    def __init__(self, routes: APIRouter, site: Site) -> None:
        self._routes, self.site = routes, site
        self._read, self._submit = [Depends(needs("read"))], [Depends(needs("submit"))]

    def page(self, path: str) -> Callable[[Endpoint], Endpoint]:
        add = self._routes.api_route(
            path, methods=[*SEEN], dependencies=self._read, response_model=None
        )
        return lambda endpoint: add(self._with_error_pages(endpoint))

    def show(self, path: str, template: str, context: Callable[[QueryParams], Any]) -> None:
        """Add a page of a template. context: returns its context for a query."""

        def shown(request: Request) -> Response:
            return self.site.page(request, template, **context(request.query_params))

        self.page(path)(shown)

    def form(self, path: str) -> Callable[[Endpoint], Endpoint]:
        add = self._routes.post(path, dependencies=self._submit, response_model=None)
        return lambda endpoint: add(self._with_error_pages(endpoint))

    def _with_error_pages(self, endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        def respond(request: Request, **values: Any) -> Response:
            try:
                return endpoint(request, **values)
            except EtscopeError as error:
                return self.site.failure(request, error)

        return respond


def _add_overviews(routes: _PageRoutes, lab: Lab) -> None:
    """Add the pages about many jobs and about the devices."""
    routes.show("/", "jobs.html", lambda query: _overviews.jobs(lab, query))
    routes.show("/history", "history.html", lambda query: _overviews.history(lab, query))
    routes.show("/alarms", "alarms.html", lambda _: _overviews.alarms(lab))
    routes.show("/compare", "compare.html", lambda query: _overviews.compare(lab, query))
    routes.show("/devices", "devices.html", lambda _: _overviews.devices(lab))

    @routes.page("/sweeps/{name}")
    def sweep(request: Request, name: str) -> Response:
        return routes.site.page(request, "sweep.html", **_overviews.sweep(lab, name))

    @routes.form("/alarms/{alarm_id}/{state}")
    def set_alarm(request: Request, alarm_id: str, state: AlarmState) -> Response:
        alarm = lab.set_alarm(alarm_id, state, request.state.principal.name)
        return _redirect(request, f"/alarms#{alarm.id}")

    @routes.page("/compare/verdict")
    def verdict(request: Request) -> Response:
        status, context = _overviews.verdict(lab, request.query_params)
        return routes.site.page(request, "verdict.html", status, **context)

    @routes.page("/devices/{name}/noise")
    def noise(request: Request, name: str) -> Response:
        return routes.site.page(request, "noise.html", noise=_overviews.noise(lab, name))


def _add_job_pages(
    routes: _PageRoutes, lab: Lab, cache: ArtifactCache, artifacts: ArtifactPages
) -> None:
    """Add the page of a job, its forms, files, tables and graphs."""

    @routes.page("/jobs/{job_id}")
    def job(request: Request, job_id: str) -> Response:
        return routes.site.page(request, "job.html", **_job.context(lab, cache, job_id))

    for path, endpoint in (
        ("operators", artifacts.operators),
        ("sides", artifacts.sides),
        ("report", artifacts.report),
        ("tensorboard", artifacts.tensorboard),
        ("tensorboard/{rest:path}", artifacts.inside_tensorboard),
    ):
        routes.page(f"/jobs/{{job_id}}/{path}")(endpoint)

    @routes.page("/jobs/{job_id}/files/{name}")
    def file(request: Request, job_id: str, name: str) -> Response:
        return download(lab, job_id, name, save_as=_job.download_name(lab.job(job_id), name))

    @routes.form("/jobs/{job_id}/cancel")
    def cancel(request: Request, job_id: str) -> Response:
        job = cancelled(lab, job_id, request.state.principal)
        return _redirect(request, f"/jobs/{job.id}")

    @routes.form("/jobs/{job_id}/again")
    def again(request: Request, job_id: str) -> Response:
        old = lab.job(job_id)
        submitter = request.state.principal.name or old.submitter
        project = request.state.principal.project or old.project
        new = lab.submit(old.spec, again=True, submitter=submitter, project=project)
        return _redirect(request, f"/jobs/{new.id}")


def _add_dashboards(routes: _PageRoutes, lab: Lab, artifacts: ArtifactPages) -> None:
    """Add the pages of saved queries."""
    routes.show("/dashboards", "dashboards.html", lambda _: _overviews.dashboards(lab))

    @routes.page("/dashboards/{name}")
    def dashboard(request: Request, name: str) -> Response:
        context, recipe = _overviews.dashboard(lab, name, request.query_params)
        return routes.site.page(request, "dashboard.html", **context, ready=recipe is not None)

    @routes.page("/dashboards/{name}/result")
    def result(request: Request, name: str) -> Response:
        _, recipe = _overviews.dashboard(lab, name, request.query_params)
        if recipe is None:
            raise UsageError("a parameter of the query has no value")
        return artifacts.tables(request, recipe)


def _redirect(request: Request, path: str) -> Response:
    base = str(request.scope.get("root_path", "")).rstrip("/")
    return RedirectResponse(f"{base}{path}", 303)
