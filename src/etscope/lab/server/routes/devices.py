"""Devices, and what was measured on them over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from etscope.lab.jobs.records import Device, Series
from etscope.lab.server.errors import answers
from etscope.lab.server.routes._common import ID, Reader, Text, lab_of

router = APIRouter(tags=["devices and history"])

_Id = Annotated[str, Query(pattern=ID, max_length=64, description="Of a job.")]


@router.get("/devices", response_model=list[Device], responses=answers())
def list_devices(request: Request, who: Reader) -> list[Device]:
    """The devices and their state. Options of their drivers (addresses, users, keys) are only for
    the scope "admin"."""
    found = list(lab_of(request).devices())
    return found if who.may("admin") else [_without_options(device) for device in found]


@router.get("/history", response_model=list[Series], responses=answers(422))
def get_history(
    request: Request,
    _: Reader,
    model: Text = None,
    device: Text = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="Points of each, the newest.")] = 200,
) -> list[Series]:
    """The results of done jobs: a series for each model, method, device and backend."""
    return list(lab_of(request).history(model, device, limit=limit))


@router.get("/compare", response_model=dict[str, Any], responses=answers(404, 409, 422))
def compare_jobs(request: Request, _: Reader, first: _Id, second: _Id) -> dict[str, Any]:
    """Two done jobs: the verdict on their times, and what differs."""
    return dict(lab_of(request).compare(first, second))


def _without_options(device: Device) -> Device:
    return replace(device, config=replace(device.config, options={}))
