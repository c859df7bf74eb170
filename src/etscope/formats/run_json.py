"""run.json: what ran and for how long, as `etscope run --save` and the lab keep it beside a dump.

    {"program": "model.pte", "program_sha256": "…", "runner": "native", "executorch": "1.5.1",
     "threads": 4, "recorded_at": "2026-05-01T12:00:00.000+00:00", "debug_level": null,
     "calls": [{"method": "forward", "case": null, "iterations": 10, "warmup": 2,
                "inputs_from": "seed 0", "inputs_sha256": "…"}],
     "inputs": "inputs.npz",
     "latencies": [{"traced": null, "method": "forward", "case": null, "load_ns": 5200000,
                    "first_ns": 910000, "samples_ns": [880000, …]}],
     "model": "mobilenet", "device": "pixel-8", "job": "…", "labels": {"commit": "1f2e3d"},
     "environment": {"os": "Android 15", …}, "marks": ["…"]}

`inputs` is the file beside it with the inputs of the calls; they are "given", or from the "record",
a "case" of a bundle, or a seed. Every key may be missing, and other keys are ignored. The last two
lines are written by other tools only. Times are in ns; `recorded_at` is ISO 8601, in UTC when it
has no zone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import PathLike
from etscope.formats.exported_program.exported_json import integer, mapping, parse_json, sequence
from etscope.formats.torch_files.tensor_files import read_tensor_file

RUN_JSON = "run.json"


def encode_run_json(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a run.json."""
    return json.dumps(content, indent=1).encode() + b"\n"


def read_run_json(path: Path) -> SavedRun:
    """Read a run.json; `FormatError` when it is damaged."""
    with reading(RUN_JSON, path):
        return parse_run_json(path.read_bytes(), str(path))


def parse_run_json(data: bytes, path: str | None = None) -> SavedRun:
    """Parse the bytes of a run.json from `path`; `FormatError` when it is damaged."""
    with reading(RUN_JSON, path):
        return SavedRun(mapping(parse_json(data), RUN_JSON), path)


@dataclass(frozen=True, slots=True)
class SavedInputs:
    """The inputs of the runs of a method.

    source: "given", "record", "case" or "seed N". values: flat, None if they were not saved.
    """

    source: str
    values: tuple[Any, ...] | None


def saved_inputs(dump: PathLike | None, method: str) -> SavedInputs | None:
    """Return the inputs of the runs in a dump that `etscope run --save` wrote; None where they are
    not known: without a run.json beside the dump, or when the method was called several times.

    Raises `FormatError` for damaged files, `MissingFileError` when the inputs are gone.
    """
    path = _beside(dump)
    if path is None:
        return None
    saved = read_run_json(path)
    with reading(RUN_JSON, path):
        calls = [call for call in saved.calls if call.get("method") == method]
        source = text_or_none(calls[0].get("inputs_from"), "inputs_from") if calls else None
        if len(calls) != 1 or source is None:
            return None
        name = saved.text("inputs")
    if name is None:
        return SavedInputs(source, None)
    file = read_tensor_file(path.with_name(Path(name).name))
    number = saved.calls.index(calls[0])
    prefix = f"{number}/input_" if len(saved.calls) > 1 else "input_"
    mine = [
        value
        for key, value in zip(file.names, file.values, strict=True)
        if key is not None and key.startswith(prefix)
    ]
    return SavedInputs(source, tuple(mine))


def saved_methods(dump: PathLike | None) -> tuple[str, ...]:
    """Return the methods that ran in a dump that `etscope run --save` wrote; () if not known.

    Raises `FormatError` for a damaged run.json.
    """
    path = _beside(dump)
    calls = [] if path is None else read_run_json(path).calls
    return tuple(dict.fromkeys(str(call["method"]) for call in calls if "method" in call))


def _beside(dump: PathLike | None) -> Path | None:
    """The run.json of a dump that `etscope run --save` wrote."""
    if dump is None or Path(dump).name not in ("run.etdp", "values.etdp"):
        return None
    path = Path(dump).with_name(RUN_JSON)
    return path if path.is_file() else None


def dump_with_values(dump: str) -> str:
    """Return the dump with the values of a run that `etscope run --save` kept: values.etdp beside
    run.etdp, which has the times of a run without them. Any other dump itself."""
    values = Path(dump).with_name("values.etdp")
    is_saved = Path(dump).name == "run.etdp" and Path(dump).with_name(RUN_JSON).is_file()
    return str(values) if is_saved and values.is_file() else dump


@dataclass(frozen=True, slots=True)
class SavedLatency:
    """The times of one call.

    traced: what was recorded meanwhile ("times", "values"), None for nothing. samples_ns: int64
    [iterations], the executions after the warm-up. first_ns: the first execution, warm-up included.
    """

    traced: str | None
    method: str | None
    load_ns: int | None
    first_ns: int | None
    samples_ns: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SavedRun:
    """The content of a run.json. A value is checked when it is asked for: each property raises
    `FormatError` when its part of the file is damaged."""

    content: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None

    def text(self, key: str) -> str | None:
        """Return a text, or a number as text; None when it is missing or empty."""
        return text_or_none(self.content.get(key), key)

    def count(self, key: str) -> int | None:
        """Return a whole number, None when it is missing."""
        return _count(self.content.get(key), key)

    @property
    def recorded_at(self) -> datetime | None:
        """The time of the run in UTC, without a zone."""
        value = self.content.get("recorded_at")
        if value is None:
            return None
        try:
            # Before Python 3.11 a "Z" is not understood.
            text = value[:-1] + "+00:00" if value[-1:] == "Z" else value
            time = datetime.fromisoformat(text)
        except (TypeError, ValueError) as error:
            raise FormatError(f"recorded_at is not an ISO 8601 text: {value!r:.80}") from error
        if time.tzinfo is not None:
            time = time.astimezone(timezone.utc)
        return time.replace(tzinfo=None)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls, each an object with "iterations" and "warmup"."""
        calls = sequence(self.content.get("calls") or [], "the calls")
        return [mapping(call, "a call") for call in calls]

    @property
    def warmup(self) -> int | None:
        """The executions before those that were measured; None when the calls differ."""
        found = {_count(call.get("warmup"), "warmup") for call in self.calls}
        return found.pop() if len(found) == 1 else None

    @property
    def latencies(self) -> list[SavedLatency]:
        """The times of each call and kind of run."""
        found = []
        for entry in sequence(self.content.get("latencies") or [], "the latencies"):
            latency = mapping(entry, "a latency")
            samples = sequence(latency["samples_ns"], "samples")
            found.append(
                SavedLatency(
                    traced=text_or_none(latency.get("traced"), "traced"),
                    method=text_or_none(latency.get("method"), "a method"),
                    load_ns=_count(latency.get("load_ns"), "load_ns"),
                    first_ns=_count(latency.get("first_ns"), "first_ns"),
                    samples_ns=np.array([integer(one, "a sample") for one in samples], np.int64),
                )
            )
        return found

    @property
    def marks(self) -> tuple[str, ...]:
        """The conditions that could not be held or observed."""
        return tuple(str(mark) for mark in sequence(self.content.get("marks") or [], "the marks"))


def text_or_none(value: Any, what: str) -> str | None:
    """Return a text, or a number as text; None for one that is missing or empty."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, (int, float)):
        return str(value)
    raise FormatError(f"{what} must be text, found {value!r:.80}")


def _count(value: Any, what: str) -> int | None:
    return None if value is None else integer(value, what)
