"""The page of two jobs side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import QueryParams

from etscope.errors import EtscopeError, UsageError
from etscope.lab.jobs.records import LATENCY, Filter, Job, State
from etscope.lab.lab import Lab
from etscope.lab.pages._site import Site
from etscope.lab.server.errors import status_of
from etscope.model.table import Kind

_EXTREMES = ("min_ms", "max_ms")  # depend on how many executions there were
_STATISTICS = tuple(
    one for one in LATENCY if one.kind is Kind.DURATION and one.name not in _EXTREMES
)
_MOST_CHOICES = 40


def context(lab: Lab, query: QueryParams) -> dict[str, Any]:
    """What the template shows: a choice of jobs until two are named."""
    names = [(query.get(side) or "").strip() for side in ("first", "second")]
    jobs = [lab.job(name) if name else None for name in names]
    first, second = jobs
    found: dict[str, Any] = {
        "first": first,
        "second": second,
        "choices": _choices(lab, first or second),
        "rows": [],
    }
    if first is not None and second is not None:
        found["rows"] = _rows(first, second)
    return found


def verdict(site: Site, request: Request, lab: Lab) -> Response:
    """What `Lab.compare` says of them, as a piece of a page."""
    first, second = (request.query_params.get(side) or "" for side in ("first", "second"))
    if not first or not second:
        raise UsageError("two jobs are compared", hint="first=ID&second=ID")
    jobs = lab.job(first), lab.job(second)
    try:
        found = _compared(lab, jobs[0].id, jobs[1].id, int(time.monotonic() // 60))
    except EtscopeError as error:
        return site.page(request, "verdict.html", status_of(error), failure=str(error))
    return site.page(request, "verdict.html", found=found)


@lru_cache(maxsize=64)
def _compared(lab: Lab, first: str, second: str, minute: int) -> Mapping[str, Any]:
    """What is done does not change, but what is known of the noise does: good for a minute."""
    return lab.compare(first, second)


def _choices(lab: Lab, like: Job | None) -> list[Job]:
    """Jobs that one may want to compare: done ones, those of the same model's name first."""
    done = Filter(states=(State.DONE,))
    found = list(lab.jobs(done, limit=_MOST_CHOICES).jobs)
    if like is not None:
        found.sort(key=lambda job: job.spec.title != like.spec.title)
    return found


def _rows(first: Job, second: Job) -> list[Mapping[str, Any]]:
    """The statistics of both, and how the second differs."""
    latencies = [job.summary.get("latency") or {} for job in (first, second)]
    rows: list[Mapping[str, Any]] = []
    for one in _STATISTICS:
        before, after = (latency.get(one.name) for latency in latencies)
        both = before is not None and after is not None
        relative = after / before - 1 if both and before else None
        rows.append({"name": one.title, "first": before, "second": after, "relative": relative})
    return rows
