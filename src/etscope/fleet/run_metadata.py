"""What is known of a dump's run beside the dump: device, model, time, environment, labels.

It is in a run.json beside it, as `etscope run --save` and the lab write it:

    {"program": "model.pte", "program_sha256": "…", "runner": "native", "executorch": "1.5.1",
     "threads": 4, "calls": [{"warmup": 2, …}],
     "model": "mobilenet", "device": "pixel-8", "recorded_at": "2026-05-01T12:00:00Z",
     "environment": {"os": "Android 15", …}, "labels": {"commit": "1f2e3d"}, "marks": ["…"]}

All of it may be left out; other keys are left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from etscope.errors import FormatError, UsageError, reading
from etscope.fleet._sources import Source, is_url, open_url
from etscope.formats.exported_program.exported_json import mapping, parse_json, sequence

UNKNOWN = "unknown"
RUN = "run.json"
_LONGEST = 180  # bytes of a name in a path; file systems take 255


@dataclass(frozen=True, slots=True)
class About:
    """device, model: UNKNOWN where nothing tells. recorded_at: UTC, without a zone."""

    device: str
    model: str
    recorded_at: datetime
    program_sha256: str | None = None
    runner: str | None = None
    executorch: str | None = None
    threads: int | None = None
    warmup: int | None = None
    job: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()


def about(source: Source, labels: Mapping[str, str], etrecord: str | None = None) -> About:
    """What is known of a dump's run; `labels` go before what the run itself says, and those called
    "device" and "model" are the names of these. Raises `FormatError` for a damaged run.json."""
    told = source.about
    place = None
    if told is None:
        place, told = _beside(source.url)
    with reading(RUN, place):
        return _about(told, source, labels, etrecord)


def _about(
    told: Mapping[str, Any], source: Source, labels: Mapping[str, str], etrecord: str | None
) -> About:
    environment = dict(flattened(told.get("environment") or {}))
    device = told.get("device")
    if isinstance(device, Mapping):
        environment |= {f"device.{key}": value for key, value in flattened(device).items()}
        device = device.get("name")
    given = {**flattened(told.get("labels") or {}), **labels}
    model = given.get("model") or _text(told.get("model")) or _stem(told.get("program"))
    calls = [mapping(call, "a call") for call in sequence(told.get("calls") or [], "the calls")]
    warmups = {_count(call.get("warmup")) for call in calls}
    return About(
        device=name_of(given.get("device") or _text(device)),
        model=name_of(model or _stem(etrecord)),
        recorded_at=_time(told.get("recorded_at"), source.modified),
        program_sha256=_text(told.get("program_sha256")),
        runner=_text(told.get("runner")),
        executorch=_text(told.get("executorch")),
        threads=_count(told.get("threads")),
        warmup=warmups.pop() if len(warmups) == 1 else None,
        job=_text(told.get("job")),
        labels=given,
        environment=environment,
        marks=tuple(str(mark) for mark in sequence(told.get("marks") or [], "the marks")),
    )


def name_of(text: str | None) -> str:
    """The name of a device or model as the dataset has it: without what cannot be seen, and, since
    it is the name of a folder, cut where it is too long (with a hash, so that it stays its own)."""
    shown = "".join(c for c in (text or "").strip() if c.isprintable())
    if not shown:
        return UNKNOWN
    if len(quote(shown, safe=" ")) <= _LONGEST:
        return shown
    end = "~" + hashlib.sha256(shown.encode()).hexdigest()[:8]
    while len(quote(shown, safe=" ")) > _LONGEST - len(end):
        shown = shown[:-1]
    return shown + end


def labels_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Labels from "k=v"; `UsageError` for what is not of that form."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"{pair!r} is no label", hint="labels are KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def flattened(value: Any, above: str = "") -> dict[str, str]:
    """A JSON object as texts by dotted path; what is null or empty is left out."""
    found: dict[str, str] = {}
    for key, item in mapping(value, "an object").items():
        name = f"{above}{key}"
        if isinstance(item, Mapping):
            found |= flattened(item, name + ".")
        elif isinstance(item, (list, tuple)):
            found[name] = ", ".join(map(str, item))
        elif item is not None:
            found[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return {name: text for name, text in found.items() if text}


def _beside(url: str) -> tuple[str | None, Mapping[str, Any]]:
    """The run.json in the folder of a dump, and where it is; empty when there is none."""
    if is_url(url):
        place = url.rpartition("/")[0] + "/" + RUN
        if not _remote_exists(place):
            return None, {}
        content = open_url(place)
    else:
        path = Path(url).parent / RUN
        place = str(path)
        if not path.is_file():
            return None, {}
        with reading(RUN, place):
            content = path.read_bytes()
    with reading(RUN, place):
        return place, mapping(parse_json(content.decode("utf-8")), RUN)


def _remote_exists(url: str) -> bool:
    from etscope.optional import require

    fsspec = require("fsspec", wanted_by="reading URLs")
    files, path = fsspec.core.url_to_fs(url)
    return bool(files.exists(path))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, (int, float)):
        return str(value)
    raise FormatError(f"expected a text, found {value!r:.80}")


def _count(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise FormatError(f"expected a whole number, found {value!r:.80}")


def _stem(path: Any) -> str | None:
    return PurePosixPath(path).stem if isinstance(path, str) and path else None


def _time(value: Any, modified: float | None) -> datetime:
    """The time that is told, else the file's, else now."""
    if value is None:
        if modified is None:
            return _plain(datetime.now(timezone.utc))
        return _plain(datetime.fromtimestamp(modified, timezone.utc))
    if not isinstance(value, str):
        raise FormatError(f"recorded_at is not an ISO 8601 text: {value!r:.80}")
    try:
        # Before Python 3.11 a "Z" is not understood.
        return _plain(datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] == "Z" else value))
    except ValueError as error:
        raise FormatError(f"recorded_at is not an ISO 8601 text: {value!r:.80}") from error


def _plain(time: datetime) -> datetime:
    """In UTC, without the zone; a time without one is taken to be UTC."""
    if time.tzinfo is not None:
        time = time.astimezone(timezone.utc)
    return time.replace(tzinfo=None)
