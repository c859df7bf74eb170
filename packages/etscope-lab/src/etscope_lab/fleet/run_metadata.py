"""Device, model, time, environment and labels of a dump's run, from the run.json next to it.

See `etscope.formats.run_json`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np

from etscope.analysis.generation.pace import Pace
from etscope.errors import MissingDataError, reading
from etscope.formats.app_report import AppReport, check_tokens, read_app_report
from etscope.formats.calibration import Calibration
from etscope.formats.exported_program.exported_json import mapping
from etscope.formats.generation import DECODE, PREFILL, Generation, GenerationCalls
from etscope.formats.run_json import (
    RUN_JSON,
    SavedRun,
    generated_calls,
    parse_run_json,
    read_run_json,
)
from etscope.model.statistics import statistic
from etscope_lab.fleet._derived import calibration_of
from etscope_lab.fleet._sources import APP_RECORDS, Source, is_url, open_url

UNKNOWN = "unknown"
_APP_LOGS = ("app.log", APP_RECORDS)
_LONGEST = 180  # bytes of a name in a path; file systems take 255


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """Metadata of a run.

    saved: its run.json. device, model: UNKNOWN if not recorded. recorded_at: in UTC, without a time
    zone. app: the report of the app that ran a language model, from a log next to the dump. calls:
    the recorded calls that the dump has. calibration: the calibration of the machine, if one is
    kept.
    """

    saved: SavedRun
    device: str
    model: str
    recorded_at: datetime
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    app: AppReport | None
    calls: GenerationCalls | None
    calibration: Calibration | None

    @property
    def program_sha256(self) -> str | None:
        return self.saved.text("program_sha256")

    def columns(self) -> dict[str, Any]:
        """The columns of `DUMP_FIELDS` that come from here. Raises `FormatError`."""
        saved = self.saved
        with reading(RUN_JSON, saved.path):
            conditions, memory = saved.conditions, saved.memory
            return {
                "model": self.model,
                "runner": saved.text("runner"),
                "executorch": saved.text("executorch"),
                "threads": saved.count("threads"),
                "warmup": saved.warmup,
                "job": saved.text("job"),
                "labels": list(self.labels.items()),
                "environment": list(self.environment.items()),
                "marks": list(saved.marks),
                "peak_rss_bytes": None if memory is None else memory.peak_rss,
                "load": None if conditions is None else conditions.load,
                **_untraced(saved),
                **_pace(saved.generation, self.app),
                **_app_columns(self.app),
            }


def run_metadata(
    source: Source, labels: Mapping[str, str], etrecord: str | None = None
) -> RunMetadata:
    """The metadata of a dump's run. `labels` override those of the run; the labels "device" and
    "model" set these names. Raises `FormatError` for a damaged run.json or log of an app, and
    `MismatchError` for the log of another run.
    """
    saved = _saved_beside(source.url) if source.about is None else SavedRun(source.about)
    app = _app_report(source, saved) if source.has_dump else None
    of_app = app or AppReport()
    with reading(RUN_JSON, saved.path):
        environment = flattened(saved.content.get("environment") or {})
        device = saved.top.find("device")
        if device is not None and isinstance(device.value, Mapping):
            facts = flattened(device.value)
            environment |= {f"device.{key}": value for key, value in facts.items()}
            device = device.find("name")
        given = {**flattened(saved.content.get("labels") or {}), **labels}
        model = given.get("model") or saved.text("model") or _stem(saved.content.get("program"))
        recorded_at = saved.recorded_at
        if recorded_at is None:
            now = datetime.now(timezone.utc)
            file_time = source.modified
            time = now if file_time is None else datetime.fromtimestamp(file_time, timezone.utc)
            recorded_at = time.replace(tzinfo=None)
        return RunMetadata(
            saved,
            device=name_of(given.get("device") or (device and device.label()) or of_app.device),
            model=name_of(model or of_app.model or _stem(etrecord)),
            recorded_at=recorded_at,
            labels=given,
            environment=environment,
            app=app,
            calls=generated_calls(saved, source.url.rpartition("/")[2]),
            calibration=calibration_of(saved),
        )


def name_of(text: str | None) -> str:
    """The name of a device or model in the dataset: without unprintable characters, and, as it
    names a folder, shortened if it is too long, with a hash that keeps it unique."""
    shown = "".join(c for c in (text or "").strip() if c.isprintable())
    if not shown:
        return UNKNOWN
    if len(quote(shown, safe=" ")) <= _LONGEST:
        return shown
    end = "~" + hashlib.sha256(shown.encode()).hexdigest()[:8]
    while len(quote(shown, safe=" ")) > _LONGEST - len(end):
        shown = shown[:-1]
    return shown + end


def flattened(value: Any, above: str = "") -> dict[str, str]:
    """Flatten a JSON object into texts by dotted path, without null and empty values."""
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


def _app_report(source: Source, saved: SavedRun) -> AppReport | None:
    """Return the app's report in a log next to the dump; None if the log has no such line."""
    path = app_log_beside(source.url)
    if path is None:
        return None
    try:
        report = read_app_report(path)
    except MissingDataError:
        return None
    with reading(RUN_JSON, saved.path):
        generation = saved.generation
    if generation is not None:
        check_tokens(report, *generation.token_counts)
    return report


def app_log_beside(url: str) -> Path | None:
    """Return the file next to a dump that may have its app's report: the dump's name with the
    suffix .log, else "app.log", else "benchmark_results.json". None without one, and for URLs."""
    if is_url(url):
        return None
    dump = Path(url)
    beside = (dump.with_suffix(".log"), *(dump.with_name(name) for name in _APP_LOGS))
    return next((path for path in beside if path.is_file()), None)


def _saved_beside(url: str) -> SavedRun:
    """The run.json in the folder of a dump; empty when there is none."""
    if not is_url(url):
        path = Path(url).parent / RUN_JSON
        return read_run_json(path) if path.is_file() else SavedRun()
    saved = url.rpartition("/")[0] + "/" + RUN_JSON
    import fsspec

    files, path = fsspec.core.url_to_fs(saved)
    return parse_run_json(open_url(saved), saved) if files.exists(path) else SavedRun()


def _stem(path: Any) -> str | None:
    return PurePosixPath(path).stem if isinstance(path, str) and path else None


def _untraced(saved: SavedRun) -> dict[str, Any]:
    """The times of a run without tracing."""
    latencies = saved.untraced
    samples = [one for latency in latencies for one in latency.samples_ns.tolist()]
    return {
        "samples_ns": samples or None,
        "untraced_p50_ns": statistic(np.array(samples), "p50") if samples else None,
        "mean_ns": float(np.mean(samples)) if samples else None,
        "first_ns": latencies[0].first_ns if latencies else None,
    }


def _pace(generation: Generation | None, app: AppReport | None) -> dict[str, Any]:
    """The tokens of a generation and its rates, of the untraced pass if there is one; else as the
    app reported them; nothing of other runs."""
    if generation is None or not generation.passes:
        if app is None or not app.generations:
            return {}
        return {
            "prompt_tokens": app.prompt_tokens,
            "generated_tokens": app.generated_tokens,
            "first_token_ns": app.first_token_ns,
            "prefill_tokens_per_s": app.prefill_rate,
            "decode_tokens_per_s": app.decode_rate,
        }
    pace = Pace.of(generation.of_pass(None) or generation.passes[0])
    first = pace.first_token_ns
    rates = {one.phase: one.mean_rate for one in pace.phases}
    return {
        "prompt_tokens": len(generation.prompt_tokens),
        "generated_tokens": len(generation.generated_tokens),
        "first_token_ns": float(np.median(first)) if len(first) else None,
        "prefill_tokens_per_s": rates.get(PREFILL),
        "decode_tokens_per_s": rates.get(DECODE),
    }


def _app_columns(app: AppReport | None) -> dict[str, Any]:
    """The columns of the app's report; null without one."""
    if app is None or not app.generations:
        return {}
    return {
        "app_generations": len(app.generations),
        "app_prompt_tokens": app.prompt_tokens,
        "app_generated_tokens": app.generated_tokens,
        "app_load_ns": app.load_ns,
        "app_first_token_ns": app.first_token_ns,
        "app_total_ns": app.inference_ns,
        "app_prefill_tokens_per_s": app.prefill_rate,
        "app_decode_tokens_per_s": app.decode_rate,
    }
