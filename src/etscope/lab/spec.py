"""What a job is: a declarative specification, with a JSON Schema (`etscope lab schema`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from etscope.errors import UsageError

SHA256 = r"^[0-9a-f]{64}$"
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Strict(BaseModel):
    """A typing error in a specification is an error, not something that is left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class FileRef(_Strict):
    """A file: by path where it is submitted, by content everywhere else.

    Give `path`, or `sha256` of what the lab has already. A submitted job has `sha256` and the
    file's name.
    """

    path: str | None = Field(None, max_length=4096, description="On the machine that submits.")
    sha256: str | None = Field(None, pattern=SHA256, description="Of the content.")
    name: str = Field("", max_length=255, description="For people; the base name of path.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """`model: a.etrecord` and `model: sha256:…` are short for the mappings."""
        if not isinstance(value, str):
            return value
        if value.startswith("sha256:"):
            return {"sha256": value.removeprefix("sha256:")}
        return {"path": value}

    @model_validator(mode="after")
    def _one_of(self) -> FileRef:
        if (self.path is None) == (self.sha256 is None):
            raise ValueError("a file is named by path or by sha256, and not by both")
        return self


class DeviceSelector(_Strict):
    """Which devices may run a job: all that are given must hold. Values are shell patterns."""

    name: str | None = Field(None, max_length=200, description="Of the device: pixel-*.")
    attributes: Mapping[str, str] = Field(
        default_factory=dict, description="Of the device: {arch: aarch64, driver: ssh}."
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """`device: host` is its name; `device: arch=aarch64,driver=ssh` its attributes."""
        if not isinstance(value, str):
            return value
        if "=" not in value:
            return {"name": value}
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not sign or not key.strip() for key, sign, _ in pairs):
            raise ValueError(f"{value!r} is neither a name nor key=value,…")
        found = {key.strip(): text.strip() for key, _, text in pairs}
        name = found.pop("name", None)
        return {"name": name, "attributes": found}

    def takes(self, name: str, attributes: Mapping[str, str]) -> bool:
        """Whether a device of this name and these attributes may run the job."""
        if self.name is not None and not fnmatchcase(name, self.name):
            return False
        return all(
            key in attributes and fnmatchcase(attributes[key], wanted)
            for key, wanted in self.attributes.items()
        )


class Limits(_Strict):
    """Conditions beyond which what was measured is no result: the job is then `invalid`.

    A limit on something that the device does not show cannot be checked: that is a mark on the
    result, or with `strict` makes the job invalid.
    """

    max_temperature_c: float | None = Field(None, gt=0, le=150, description="Hottest sensor, °C.")
    min_battery_percent: float | None = Field(None, ge=0, le=100)
    governor: str | None = Field(None, max_length=50, description="Of all cores: performance.")
    max_load: float | None = Field(None, gt=0, description="Load average of 1 min, per core.")
    max_cv: float | None = Field(None, gt=0, description="stdev / mean of the steady runs.")
    strict: bool = Field(False, description="What cannot be checked is beyond its limit.")


class JobSpec(_Strict):
    """One benchmark, accuracy or A/B job."""

    version: Literal[1] = 1
    kind: Literal["benchmark", "accuracy", "ab"] = "benchmark"
    name: str = Field("", max_length=200, description="For people; the model's name if empty.")
    labels: Mapping[_Name, Annotated[str, StringConstraints(max_length=500)]] = Field(
        default_factory=dict, description="For history: {commit: 1f2e3d, branch: main}."
    )
    model: FileRef = Field(description="An ETRecord that holds its program, a .pte or a .bpte.")
    etrecord: FileRef | None = Field(None, description="Of the export, when model is a program.")
    data: FileRef | None = Field(None, description="The program's external weights (.ptd).")
    baseline: FileRef | None = Field(None, description="Of an A/B job: what model is held against.")
    method: str | None = Field(None, max_length=200, description="forward, or the only one.")
    inputs: FileRef | None = Field(
        None, description=".npz, .npy, .safetensors or .pt; else a bundle's cases, else of seed."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Of generated inputs.")
    iterations: int = Field(50, ge=1, le=1_000_000, description="Timed executions.")
    warmup: int = Field(5, ge=0, le=1_000_000, description="Executions before, not counted.")
    traced_iterations: int = Field(
        10, ge=0, le=100_000, description="In a run of their own that writes the ETDump; 0: none."
    )
    debug_level: Literal["none", "program_outputs", "intermediate_outputs"] = Field(
        "none", description="Values to record, in a third run. Accuracy jobs: intermediate_outputs."
    )
    runner: Literal["auto", "python", "native"] = "auto"
    threads: int | None = Field(None, ge=1, le=1024)
    rounds: int = Field(20, ge=4, le=10_000, description="Of an A/B job: processes a side.")
    min_effect: float = Field(0.03, gt=0, lt=1, description="Of an A/B job: the smallest change.")
    confidence: float = Field(0.99, ge=0.5, lt=1, description="Of an A/B job.")
    cool_down_seconds: float = Field(0, ge=0, le=3600, description="Rest of the device before.")
    timeout_seconds: float = Field(600, gt=0, le=86_400, description="Of the whole job.")
    metrics: tuple[Literal["latency", "memory", "numerics"], ...] = ("latency", "memory")
    device: DeviceSelector = Field(default_factory=lambda: DeviceSelector(name="host"))
    limits: Limits = Field(default_factory=Limits)
    attempts: int = Field(3, ge=1, le=100, description="Devices that may be lost before it fails.")
    priority: int = Field(0, ge=-1000, le=1000, description="Larger goes first.")

    @model_validator(mode="after")
    def _goes_together(self) -> JobSpec:
        if (self.kind == "ab") != (self.baseline is not None):
            raise ValueError("an A/B job (kind: ab) has a baseline, and no other kind has one")
        return self

    @property
    def files(self) -> dict[str, FileRef]:
        """Its files by field."""
        named = {
            field: getattr(self, field)
            for field in ("model", "etrecord", "data", "baseline", "inputs")
        }
        return {field: ref for field, ref in named.items() if ref is not None}

    @property
    def title(self) -> str:
        return self.name or self.model.name or self.model.path or (self.model.sha256 or "")[:12]

    @property
    def content_hash(self) -> str:
        """SHA-256 of what is to be done: of the canonical JSON without names and priority.

        Only of a job whose files are all known by content; raises `UsageError` otherwise.
        """
        paths = [field for field, ref in self.files.items() if ref.sha256 is None]
        if paths:
            raise UsageError(f"files of this job are not in the lab yet: {', '.join(paths)}")
        plain = self.model_dump(mode="json", exclude={"name", "priority"})
        for field in self.files:
            plain[field] = self.files[field].sha256
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def spec_of(value: Mapping[str, Any]) -> JobSpec:
    """A specification from plain values. Raises `UsageError` that names each field at fault."""
    try:
        return JobSpec.model_validate(value)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'job'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise UsageError(
            "not a job specification: " + "; ".join(faults),
            hint="etscope lab schema prints the schema",
        ) from error
