"""The page of histories: how long a model took, job after job, on a device and backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import QueryParams

from etscope.lab.comparison.history import JudgedPoint, changes_of, judge_series
from etscope.lab.jobs.records import Point, Series
from etscope.lab.lab import Lab

_MOST_SERIES = 24  # drawn on one page
_MOST_POINTS = 200  # of a series; of each of many, fewer
_FEW_POINTS = 40
_MOST_TOLD = 3  # changes of a series, the last ones


def context(lab: Lab, query: QueryParams) -> dict[str, Any]:
    """What the template shows."""
    model, device = query.get("model") or None, query.get("device") or None
    found = sorted(
        lab.history(model, device, limit=_MOST_POINTS if model else _FEW_POINTS),
        key=lambda series: series.points[-1].at if series.points else None,  # type: ignore[arg-type, return-value]
        reverse=True,
    )
    shown = [one for one in found if one.points][:_MOST_SERIES]
    return {
        "model": model or "",
        "device": device or "",
        "devices": [one.config.name for one in lab.devices()],
        "series": [_shown(one) for one in shown],
        "few": _FEW_POINTS,
        "left_out": [one for one in found if one.points][_MOST_SERIES:],
    }


def _shown(series: Series) -> Mapping[str, Any]:
    points = series.points
    judged = judge_series(series)
    return {
        "model": series.model,
        "method": series.method,
        "device": series.device,
        "backend": series.backend,
        "count": len(points),
        "last": points[-1],
        "change": _change(points),
        "marked": sum(point.marked for point in points),
        "findings": [{**one.plain(), "at": one.point.at} for one in changes_of(judged)][
            -_MOST_TOLD:
        ],
        "chart": _chart(points, judged),
    }


def _chart(points: Sequence[Point], judged: Sequence[JudgedPoint]) -> Mapping[str, Any]:
    return {
        "at": [point.at.timestamp() for point in points],
        "p50": [point.p50_ms for point in points],
        "p90": [point.p90_ms for point in points],
        "marked": [point.marked for point in points],
        "standing": [str(one.standing) for one in judged],
        "jobs": [point.job_id for point in points],
        "labels": [
            ", ".join(f"{key}={value}" for key, value in point.labels.items()) for point in points
        ],
    }


def _change(points: Sequence[Point]) -> float | None:
    """How the last p50 differs from the one before it, as a fraction."""
    if len(points) < 2 or not points[-2].p50_ms:
        return None
    return points[-1].p50_ms / points[-2].p50_ms - 1
