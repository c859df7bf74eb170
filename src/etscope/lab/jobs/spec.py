"""The specification of a job, with a JSON Schema (`etscope lab schema`)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema

from etscope.errors import UsageError

SHA256 = r"^[0-9a-f]{64}$"
# Without control characters: PostgreSQL takes no NUL, and a terminal none of them.
TEXT = r"^[^\x00-\x1f\x7f]*$"
BASE_NAME = r"^[^/\\\x00-\x1f\x7f]*$"  # not a path: it becomes part of file names
_Text = Annotated[str, StringConstraints(max_length=200, pattern=TEXT)]
_Value = Annotated[str, StringConstraints(max_length=500, pattern=TEXT)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=TEXT)]
# "50" and true are not numbers.
_Int = Annotated[int, Strict()]
_Float = Annotated[float, Strict()]
_Bool = Annotated[bool, Strict()]
_LONGEST_SHORT = 4096
_NO_OTHERS: dict[str, Any] = {"additionalProperties": False}  # only keys of the pattern


class _Strict(BaseModel):
    """A model that rejects unknown fields, so that a misspelt one is an error."""

    # Defaults are validated, so that their type and hash are those of the same values from JSON.
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        """50.0 is an integer, as it is in JSON."""
        if not isinstance(value, Mapping):
            return value
        return {
            key: int(one) if isinstance(one, float) and one.is_integer() else one
            for key, one in value.items()
        }


class _WithShortForm(_Strict):
    """A mapping that may also be written as a text."""

    _short_form: ClassVar[str]  # a pattern of such a text
    _short_words: ClassVar[str]  # describes such a text in messages

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = handler(schema)
        full = handler.resolve_ref_schema(found)
        mapping = dict(full)
        text = {"type": "string", "maxLength": _LONGEST_SHORT, "pattern": cls._short_form}
        full.clear()
        full.update(title=mapping.pop("title", cls.__name__), anyOf=[mapping, text])
        return found

    @classmethod
    def _is_short(cls, value: Any) -> bool:
        """True for a text. Raises `ValueError` for a text that is not a short form."""
        if not isinstance(value, str):
            return False
        if len(value) > _LONGEST_SHORT or not re.fullmatch(cls._short_form[1:-1], value):
            raise ValueError(f"{value[:200]!r} is not {cls._short_words}")
        return True


_ONE_OF: dict[str, Any] = {
    "anyOf": [
        {
            "required": [given],
            "properties": {given: {"type": "string"}, other: {"type": "null"}},
        }
        for given, other in (("path", "sha256"), ("sha256", "path"))
    ]
}


class FileRef(_WithShortForm):
    """A file: by path where it is submitted, by content everywhere else.

    Give `path`, or `sha256` of what the lab has already. A submitted job has `sha256` and the
    file's name. A text is short for the path, or, as `sha256:…`, for the content.
    """

    model_config = ConfigDict(json_schema_extra=_ONE_OF)
    _short_form = r"^[^\x00-\x1f\x7f]+$"
    _short_words = "a path or sha256:…"

    path: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        pattern=TEXT,
        description="On the machine that submits.",
    )
    sha256: str | None = Field(None, pattern=SHA256, description="Of the content.")
    name: str = Field(
        "", max_length=255, pattern=BASE_NAME, description="To display; the base name of path."
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not cls._is_short(value):
            return value
        if value.startswith("sha256:"):
            return {"sha256": value.removeprefix("sha256:")}
        return {"path": value}

    @model_validator(mode="after")
    def _one_of(self) -> FileRef:
        if (self.path is None) == (self.sha256 is None):
            raise ValueError("a file is named by path or by sha256, not by both")
        return self


_KEY = r" *[^=, \x00-\x1f\x7f][^=,\x00-\x1f\x7f]*"
_PAIR = rf"{_KEY}= *[^, \x00-\x1f\x7f][^,\x00-\x1f\x7f]*"


class DeviceSelector(_WithShortForm):
    """A selector of devices for a job; all given fields must match. Values are shell patterns.

    A text is short for the name, or, as `arch=aarch64,driver=ssh`, for the attributes.
    """

    _short_form = rf"^([^=\x00-\x1f\x7f]+|{_PAIR}(,{_PAIR})*)$"
    _short_words = "a name or key=value,…"

    name: str | None = Field(
        None, min_length=1, max_length=4096, pattern=TEXT, description="Of the device: pixel-*."
    )
    attributes: Mapping[_Name, _Value] = Field(
        default_factory=dict,
        description="Of the device: {arch: aarch64, driver: ssh}.",
        json_schema_extra=_NO_OTHERS,
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not cls._is_short(value):
            return value
        if "=" not in value:
            return {"name": value}
        pairs = [part.partition("=") for part in value.split(",")]
        found = {key.strip(" "): text.strip(" ") for key, _, text in pairs}
        name = found.pop("name", None)
        return {"name": name, "attributes": found}

    def takes(self, name: str, attributes: Mapping[str, str]) -> bool:
        """True when a device of this name and these attributes may run the job."""
        if self.name is not None and not fnmatchcase(name, self.name):
            return False
        return all(
            key in attributes and fnmatchcase(attributes[key], wanted)
            for key, wanted in self.attributes.items()
        )


class Limits(_Strict):
    """Limits for the conditions of a measurement; beyond one the job is `invalid`.

    A limit on a condition that the device does not show cannot be checked. That is a mark on the
    result, or makes the job invalid when `strict` is true.
    """

    max_temperature_c: _Float | None = Field(None, gt=0, le=150, description="Hottest sensor, °C.")
    min_battery_percent: _Float | None = Field(None, ge=0, le=100)
    governor: _Name | None = Field(None, description="Of all cores: performance.")
    max_load: _Float | None = Field(
        None, gt=0, description="Load average of 1 min, per core, without the job's own."
    )
    max_cv: _Float | None = Field(None, gt=0, description="stdev / mean of the steady runs.")
    strict: _Bool = Field(False, description="A limit that cannot be checked does not hold.")


_BASELINE: dict[str, Any] = {
    "if": {"properties": {"kind": {"const": "ab"}}, "required": ["kind"]},
    "then": {"required": ["baseline"], "properties": {"baseline": {"not": {"type": "null"}}}},
    "else": {"properties": {"baseline": {"type": "null"}}},
}


class JobSpec(_Strict):
    """One benchmark, accuracy or A/B job."""

    model_config = ConfigDict(json_schema_extra=_BASELINE)

    version: Literal[1] = 1
    kind: Literal["benchmark", "accuracy", "ab"] = "benchmark"
    name: _Text = Field("", description="To display; the model's name if empty.")
    labels: Mapping[_Name, _Value] = Field(
        default_factory=dict,
        description="For history: {commit: 1f2e3d, branch: main}.",
        json_schema_extra=_NO_OTHERS,
    )
    model: FileRef = Field(description="An ETRecord that holds its program, a .pte or a .bpte.")
    etrecord: FileRef | None = Field(None, description="Of the export, when model is a program.")
    data: FileRef | None = Field(None, description="The program's external weights (.ptd).")
    baseline: FileRef | None = Field(
        None, description="Of an A/B job: the program that model is compared with."
    )
    method: _Name | None = Field(None, description="forward, or the only one.")
    inputs: FileRef | None = Field(
        None, description=".npz, .npy, .safetensors or .pt; else a bundle's cases, else of seed."
    )
    seed: _Int = Field(0, ge=0, lt=2**53, description="Of generated inputs.")
    iterations: _Int = Field(50, ge=1, le=1_000_000, description="Timed executions.")
    warmup: _Int = Field(5, ge=0, le=1_000_000, description="Executions before, not counted.")
    traced_iterations: _Int = Field(
        20, ge=0, le=100_000, description="In a run of their own that writes the ETDump; 0: none."
    )
    debug_level: Literal["none", "program_outputs", "intermediate_outputs"] = Field(
        "none", description="Values to record, in a third run. Accuracy jobs: intermediate_outputs."
    )
    runner: Literal["auto", "python", "native"] = "auto"
    threads: _Int | None = Field(None, ge=1, le=1024)
    rounds: _Int = Field(20, ge=4, le=10_000, description="Of an A/B job: processes a side.")
    min_effect: _Float = Field(0.03, gt=0, lt=1, description="Of an A/B job: the smallest change.")
    confidence: _Float = Field(0.99, ge=0.5, lt=1, description="Of an A/B job.")
    cool_down_seconds: _Float = Field(0, ge=0, le=3600, description="Rest of the device before.")
    timeout_seconds: _Float = Field(600, gt=0, le=86_400, description="Of the whole job.")
    metrics: tuple[Literal["latency", "memory", "numerics"], ...] = ("latency", "memory")
    device: DeviceSelector = Field(default_factory=lambda: DeviceSelector(name="host"))
    limits: Limits = Field(default_factory=Limits)
    attempts: _Int = Field(3, ge=1, le=100, description="Devices that may be lost before it fails.")
    priority: _Int = Field(0, ge=-1000, le=1000, description="Larger goes first.")

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
        """SHA-256 of the work: of the canonical JSON without names and priority.

        Raises `UsageError` when a file is not named by its SHA-256 yet.
        """
        paths = [field for field, ref in self.files.items() if ref.sha256 is None]
        if paths:
            raise UsageError(f"files of this job are not in the lab yet: {', '.join(paths)}")
        plain = self.model_dump(mode="json", exclude={"name", "priority"})
        for field in self.files:
            plain[field] = self.files[field].sha256
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def base_name(path: str) -> str:
    """The base name of a path as `FileRef.name` takes it: backslashes and control characters
    become "_"."""
    name = re.sub(r"[\\\x00-\x1f\x7f]", "_", path.rstrip("/").rpartition("/")[2])
    return name.encode("utf-8", "replace").decode()[:255]


def spec_of(value: Mapping[str, Any]) -> JobSpec:
    """Parse a specification from plain values. Raises `UsageError` that names each wrong field."""
    try:
        return JobSpec.model_validate(value)
    except ValidationError as error:
        faults = []
        for fault in error.errors(include_url=False, include_input=False):
            text = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
            text = text[:1].lower() + text[1:]
            if fault["type"] == "extra_forbidden":
                text = "there is no such field"
            elif fault["type"] == "string_type":
                text = "should be a text: in YAML, quote numbers, dates, yes and no"
            faults.append(f"{'.'.join(map(str, fault['loc'])) or 'job'}: {text}")
        raise UsageError(
            "not a job specification: " + "; ".join(faults),
            hint="etscope lab schema prints the schema",
        ) from error
