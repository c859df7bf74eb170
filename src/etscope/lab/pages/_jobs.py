"""The page of all jobs: a filter, and what it finds, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from etscope.errors import UsageError
from etscope.lab.jobs.records import FINAL, Filter, State
from etscope.lab.lab import Lab

PAGE_SIZE = 50
KINDS = ("benchmark", "accuracy", "ab")
_UNFINISHED = tuple(state for state in State if state not in FINAL)


def context(lab: Lab, query: QueryParams) -> dict[str, Any]:
    """What the template shows. Raises `UsageError` for a filter that cannot be one."""
    wanted = filter_of(query)
    page = lab.jobs(wanted, limit=PAGE_SIZE, cursor=query.get("cursor") or None)
    unfinished = lab.jobs(Filter(states=_UNFINISHED), limit=1).total
    asked = [(key, value) for key, value in query.multi_items() if key != "cursor" and value]
    return {
        "page": page,
        "asked": QueryParams(asked),
        "chosen": {str(state) for state in wanted.states},
        "states": [str(state) for state in State],
        "kinds": KINDS,
        "devices": [device.config.name for device in lab.devices()],
        "unfinished": unfinished,
        "is_first": not query.get("cursor"),
        "next_query": urlencode([*asked, ("cursor", page.next)]) if page.next else None,
        "first_query": urlencode(asked),
        # What changes by itself is worth another look.
        "refresh": unfinished > 0 and not query.get("cursor"),
    }


def filter_of(query: QueryParams) -> Filter:
    """The filter of a query: state (several), device, kind, model (a hash), label, text."""
    return Filter(
        states=tuple(_state(text) for text in query.getlist("state") if text),
        device=query.get("device") or None,
        kind=_kind(query.get("kind") or None),
        model_sha256=query.get("model") or None,
        text=(query.get("text") or "").strip() or None,
        labels=_labels(query.get("label") or ""),
    )


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no state", hint=", ".join(map(str, State))) from error


def _kind(text: str | None) -> str | None:
    if text is not None and text not in KINDS:
        raise UsageError(f"{text!r} is no kind of job", hint=", ".join(KINDS))
    return text


def _labels(text: str) -> Mapping[str, str] | None:
    """`commit=1f2e3d, branch=main`."""
    found: dict[str, str] = {}
    for pair in filter(None, (one.strip() for one in text.split(","))):
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"{pair!r} is no label", hint="write key=value, …")
        found[key.strip()] = value.strip()
    return found or None
