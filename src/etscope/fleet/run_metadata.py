"""What is known of a dump's run beside the dump: device, model, time, environment, labels.

It is in a run.json beside it: see `etscope.formats.run_json`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from etscope.errors import UsageError, reading
from etscope.fleet._sources import Source, is_url, open_url
from etscope.formats.exported_program.exported_json import mapping
from etscope.formats.run_json import (
    RUN_JSON,
    SavedRun,
    parse_run_json,
    read_run_json,
    text_or_none,
)

UNKNOWN = "unknown"
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
    saved = _beside(source.url) if source.about is None else SavedRun(source.about)
    with reading(RUN_JSON, saved.path):
        return _about(saved, source, labels, etrecord)


def _about(
    saved: SavedRun, source: Source, labels: Mapping[str, str], etrecord: str | None
) -> About:
    environment = dict(flattened(saved.content.get("environment") or {}))
    device = saved.content.get("device")
    if isinstance(device, Mapping):
        environment |= {f"device.{key}": value for key, value in flattened(device).items()}
        device = device.get("name")
    given = {**flattened(saved.content.get("labels") or {}), **labels}
    model = given.get("model") or saved.text("model") or _stem(saved.content.get("program"))
    recorded_at = saved.recorded_at
    if recorded_at is None:
        now = datetime.now(timezone.utc)
        file_time = source.modified
        time = now if file_time is None else datetime.fromtimestamp(file_time, timezone.utc)
        recorded_at = time.replace(tzinfo=None)
    return About(
        device=name_of(given.get("device") or text_or_none(device, "device")),
        model=name_of(model or _stem(etrecord)),
        recorded_at=recorded_at,
        program_sha256=saved.text("program_sha256"),
        runner=saved.text("runner"),
        executorch=saved.text("executorch"),
        threads=saved.count("threads"),
        warmup=saved.warmup,
        job=saved.text("job"),
        labels=given,
        environment=environment,
        marks=saved.marks,
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


def _beside(url: str) -> SavedRun:
    """The run.json in the folder of a dump; empty when there is none."""
    if not is_url(url):
        path = Path(url).parent / RUN_JSON
        return read_run_json(path) if path.is_file() else SavedRun()
    place = url.rpartition("/")[0] + "/" + RUN_JSON
    return parse_run_json(open_url(place), place) if _remote_exists(place) else SavedRun()


def _remote_exists(url: str) -> bool:
    from etscope.optional import require

    fsspec = require("fsspec", wanted_by="reading URLs")
    files, path = fsspec.core.url_to_fs(url)
    return bool(files.exists(path))


def _stem(path: Any) -> str | None:
    return PurePosixPath(path).stem if isinstance(path, str) and path else None
