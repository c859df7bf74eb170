"""The specification of a job, with a JSON Schema (`etscope lab schema`)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
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

MOST_PROMPTS = 64  # of a job
MOST_ITERATIONS = 1_000_000
_LENGTH = 128  # of the prompt of a job that says nothing of it
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
# Every list of jobs shows them. Of jobs to come: a lab may hold others.
MOST_LABELS, LONGEST_LABEL = 64, 200
LONGEST_FAILURE = 1000  # characters: it is sent in a URL


class _Strict(BaseModel):
    """A model that rejects unknown fields, so that a misspelt one is an error."""

    # Defaults are validated, so that they have the type and hash of the same values from JSON.
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        """Accept 50.0 as an integer, as JSON Schema does."""
        if not isinstance(value, Mapping):
            return value

        def whole(one: Any) -> Any:
            if isinstance(one, list):
                return [whole(item) for item in one]
            return int(one) if isinstance(one, float) and one.is_integer() else one

        return {key: whole(one) for key, one in value.items()}


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
        "",
        max_length=255,
        pattern=BASE_NAME,
        description="Name to display. Default: the base name of path.",
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
            raise ValueError("name a file by path or by sha256, not by both")
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
        description="Attributes of the device: {arch: aarch64, driver: ssh}.",
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
        None, gt=0, description="Largest load average (1 min) per core, without the job's own load."
    )
    max_cv: _Float | None = Field(
        None, gt=0, description="Largest stdev / mean of the steady runs."
    )
    strict: _Bool = Field(False, description="Treat a limit that cannot be checked as broken.")


_GREEDY: dict[str, Any] = {
    "if": {"properties": {"temperature": {"const": 0}}},  # also without one
    "then": {"properties": {"top_k": {"type": "null"}, "top_p": {"type": "null"}}},
}


class GenerationSpec(_Strict):
    """The generations of a language model that a job measures.

    Each prompt is a row of the result: all of `prompts`, and one drawn from the job's seed for
    each of `lengths`. For each of them `cold` processes load the program and generate once; then
    one process generates `warmup` + `warm` times.
    """

    model_config = ConfigDict(json_schema_extra=_GREEDY)

    lengths: tuple[Annotated[int, Strict(), Field(ge=1, le=1 << 20)], ...] = Field(
        (),
        max_length=MOST_PROMPTS,
        description="Lengths of prompts drawn from seed, in tokens. Default without prompts: 128.",
    )
    new_tokens: _Int = Field(128, ge=1, le=1 << 20, description="Tokens to generate.")
    stop_at_end: _Bool = Field(
        False, description="Stop at the model's end token. Otherwise always generate new_tokens."
    )
    temperature: _Float = Field(0.0, ge=0, le=1000, description="0: the likeliest token.")
    top_k: _Int | None = Field(None, ge=1, le=1 << 31)
    top_p: _Float | None = Field(None, gt=0, le=1)
    cold: _Int = Field(2, ge=0, le=1000, description="Number of new processes that generate once.")
    warm: _Int = Field(
        3, ge=1, le=10_000, description="Number of timed generations in one process."
    )
    warmup: _Int = Field(
        1, ge=0, le=1000, description="Number of untimed generations before the timed ones."
    )

    @model_validator(mode="after")
    def _goes_together(self) -> GenerationSpec:
        if self.temperature == 0 and (self.top_k is not None or self.top_p is not None):
            raise ValueError("top_k and top_p need a temperature above 0")
        return self


_ONE_LIMIT: dict[str, Any] = {
    "anyOf": [
        {"required": [name], "properties": {name: {"type": "number"}}}
        for name in ("max_kl", "min_agreement")
    ]
}


class Quality(_Strict):
    """A gate on the numbers of a language model: how far the logits may be from a reference's for
    the same tokens."""

    model_config = ConfigDict(json_schema_extra=_ONE_LIMIT)

    reference: FileRef = Field(
        description="The program (.pte) or the ETRecord that gives the right logits."
    )
    tokens: FileRef = Field(
        description="Token ids of a text that the model continues, as text or .npy."
    )
    max_kl: _Float | None = Field(
        None, gt=0, description="Largest mean KL divergence from the reference, in nats."
    )
    min_agreement: _Float | None = Field(
        None,
        gt=0,
        le=1,
        description="Smallest share of tokens with the reference's likeliest token.",
    )

    @model_validator(mode="after")
    def _has_a_limit(self) -> Quality:
        if self.max_kl is None and self.min_agreement is None:
            raise ValueError("a quality gate needs a limit: max_kl, min_agreement or both")
        return self


_NULL, _GIVEN = {"type": "null"}, {"not": {"type": "null"}}
_KINDS = ("benchmark", "generate", "accuracy", "ab")
# The kinds of jobs that have a field, and what the schema says of it in other jobs.
_ONLY_FOR: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "baseline": (("ab",), _NULL),
    "generation": (("generate", "ab"), _NULL),
    "quality": (("generate",), _NULL),
    "duration_seconds": (("benchmark",), _NULL),
    "energy": (("benchmark",), {"not": {"contains": {"const": "energy"}}}),
}


def _rules() -> Iterator[dict[str, Any]]:
    """The rules of `JobSpec` in JSON Schema."""

    def of(*kinds: str) -> dict[str, Any]:  # a job without a kind is a benchmark
        required = [] if "benchmark" in kinds else ["kind"]
        return {"properties": {"kind": {"enum": list(kinds)}}, "required": required}

    yield {"if": of("ab"), "then": {"required": ["baseline"], "properties": {"baseline": _GIVEN}}}
    yield {"if": of("generate"), "then": {"properties": {"generation": _GIVEN}}}
    for field, (kinds, rule) in _ONLY_FOR.items():
        name = "metrics" if field == "energy" else field
        others = [kind for kind in _KINDS if kind not in kinds]
        yield {"if": of(*others), "then": {"properties": {name: rule}}}
    generates = {"required": ["generation"], "properties": {"generation": _GIVEN}}
    either = {"anyOf": [of("generate"), generates]}
    yield {"if": either, "else": {"properties": {"prompts": _NULL}}}


class JobSpec(_Strict):
    """One benchmark, generation, accuracy or A/B job."""

    model_config = ConfigDict(json_schema_extra={"allOf": [*_rules()]})

    version: Literal[1] = 1
    kind: Literal["benchmark", "generate", "accuracy", "ab"] = Field(
        "benchmark", description="Kind of the job; generate: tokens of a language model."
    )
    name: _Text = Field("", description="Name to display. Default: the model's name.")
    labels: Mapping[_Name, _Value] = Field(
        default_factory=dict,
        description="Labels for the history: {commit: 1f2e3d, branch: main}.",
        json_schema_extra={**_NO_OTHERS, "maxProperties": MOST_LABELS},
    )
    model: FileRef = Field(description="An ETRecord that holds its program, a .pte or a .bpte.")
    etrecord: FileRef | None = Field(
        None, description="ETRecord of the export, if model is a program."
    )
    data: FileRef | None = Field(None, description="The program's external weights (.ptd).")
    baseline: FileRef | None = Field(
        None, description="For an A/B job: the program to compare model with."
    )
    method: _Name | None = Field(
        None, description="Method to run. Default: forward, or the only one."
    )
    inputs: FileRef | None = Field(
        None,
        description="Inputs (.npz, .npy, .safetensors or .pt). "
        "Default: the cases of a .bpte, else drawn from seed.",
    )
    seed: _Int = Field(0, ge=0, lt=2**53, description="Seed of generated inputs.")
    generation: GenerationSpec | None = Field(
        None, description="What to generate: for generate jobs, and A/B jobs of language models."
    )
    prompts: FileRef | None = Field(
        None, description="Prompts of generations: a line of token ids for each, or .npy."
    )
    quality: Quality | None = Field(None, description="Limits on the logits of a generate job.")
    iterations: _Int = Field(
        50, ge=1, le=MOST_ITERATIONS, description="Number of timed executions."
    )
    duration_seconds: _Float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="Execute about this long in place of iterations, and find throttling.",
    )
    warmup: _Int = Field(
        5, ge=0, le=1_000_000, description="Number of untimed executions before the timed ones."
    )
    traced_iterations: _Int = Field(
        20,
        ge=0,
        le=100_000,
        description="Executions of the separate run that writes the ETDump; 0: none.",
    )
    debug_level: Literal["none", "program_outputs", "intermediate_outputs"] = Field(
        "none", description="Values to record, in a third run. Accuracy jobs: intermediate_outputs."
    )
    runner: Literal["auto", "python", "native", "app"] = "auto"
    threads: _Int | None = Field(None, ge=1, le=1024)
    rounds: _Int = Field(
        20, ge=4, le=10_000, description="For an A/B job: number of processes of each side."
    )
    min_effect: _Float = Field(
        0.03, gt=0, lt=1, description="For an A/B job: the smallest relative change that matters."
    )
    confidence: _Float = Field(
        0.99, ge=0.5, lt=1, description="For an A/B job: confidence of the verdict."
    )
    cool_down_seconds: _Float = Field(
        0, ge=0, le=3600, description="Idle time of the device before the job."
    )
    timeout_seconds: _Float = Field(
        600, gt=0, le=86_400, description="Time limit of the whole job."
    )
    metrics: tuple[Literal["latency", "memory", "numerics", "energy"], ...] = ("latency", "memory")
    device: DeviceSelector = Field(default_factory=lambda: DeviceSelector(name="host"))
    limits: Limits = Field(default_factory=Limits)
    attempts: _Int = Field(
        3, ge=1, le=100, description="How many devices the job may lose before it fails."
    )
    priority: _Int = Field(
        0, ge=-1000, le=1000, description="Jobs with a larger priority run first."
    )

    @model_validator(mode="before")
    @classmethod
    def _generates(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("kind") == "generate":
            return {"generation": {}, **value}
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> JobSpec:
        if self.kind == "ab" and self.baseline is None:
            raise ValueError("an A/B job needs a baseline")
        if self.kind == "generate" and self.generation is None:
            raise ValueError("a generate job needs a generation: generation: {lengths: [128]}")
        for field, (kinds, _) in _ONLY_FOR.items():
            given = field in self.metrics or getattr(self, field, None) is not None
            if given and self.kind not in kinds:
                plural = "kinds" if len(kinds) > 1 else "kind"
                raise ValueError(f"{field} is only for the {plural} {' and '.join(kinds)}")
        if self.generation is None and self.prompts is not None:
            raise ValueError("prompts go with a generation")
        return self

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the prompts that are drawn from the seed."""
        if self.generation is None:
            return ()
        return self.generation.lengths or (() if self.prompts is not None else (_LENGTH,))

    @property
    def files(self) -> dict[str, FileRef]:
        """Return the job's files by field; "quality.tokens" is the field tokens of quality."""
        named = {field: getattr(self, field) for field in FILES}
        if self.quality is not None:
            named |= {
                f"quality.{field}": getattr(self.quality, field) for field in FILES_OF_QUALITY
            }
        return {field: ref for field, ref in named.items() if ref is not None}

    def with_files(self, files: Mapping[str, FileRef]) -> JobSpec:
        """Return the specification with its files replaced by these, by field."""
        own = {field: ref for field, ref in files.items() if "." not in field}
        inner = {field.partition(".")[2]: ref for field, ref in files.items() if "." in field}
        if self.quality is not None:
            own["quality"] = self.quality.model_copy(update=inner)  # type: ignore[assignment]
        return self.model_copy(update=own)

    @property
    def title(self) -> str:
        return self.name or self.model.name or self.model.path or (self.model.sha256 or "")[:12]

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of the work: of the spec's canonical JSON without names and
        priority.

        Raises `UsageError` when a file is not named by its SHA-256 yet.
        """
        paths = [field for field, ref in self.files.items() if ref.sha256 is None]
        if paths:
            raise UsageError(f"files of this job are not in the lab yet: {', '.join(paths)}")
        plain = self.model_dump(mode="json", exclude={"name", "priority"})
        # The hashes of jobs from before there were these fields stay.
        plain = {key: one for key, one in plain.items() if one is not None or key not in _LATER}
        set_files(plain, {field: ref.sha256 for field, ref in self.files.items()})
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


FILES = ("model", "etrecord", "data", "baseline", "inputs", "prompts")
FILES_OF_QUALITY = ("reference", "tokens")
_LATER = frozenset({"generation", "prompts", "quality", "duration_seconds"})


def set_files(plain: dict[str, Any], files: Mapping[str, Any]) -> None:
    """Put a value in the place of each file, by its field, into a specification of plain values."""
    for field, value in files.items():
        name, _, inner = field.partition(".")
        if inner:
            plain[name] = {**plain[name], inner: value}
        else:
            plain[name] = value


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
        raise UsageError(
            f"not a job specification: {faults_of(error, 'job')}",
            hint="etscope lab schema prints the schema",
        ) from error


def faults_of(error: ValidationError, whole: str) -> str:
    """Name each wrong field and its fault. whole: the name for what has the fields."""
    faults = []
    for fault in error.errors(include_url=False, include_input=False):
        text = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
        text = text[:1].lower() + text[1:]
        if fault["type"] == "extra_forbidden":
            text = "unknown field"
        elif fault["type"] == "string_type":
            text = "should be a text: in YAML, quote numbers, dates, yes and no"
        faults.append(f"{'.'.join(map(str, fault['loc'])) or whole}: {text}")
    return "; ".join(faults)
