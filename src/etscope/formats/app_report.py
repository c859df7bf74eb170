"""The report of the app that ran a language model: times of its own clock around the runtime.

Three sources are read, each as the app leaves it:

- The line ``PyTorchObserver {"prompt_tokens":14,"generated_tokens":54,…}`` that ExecuTorch's
  runners print after each generation (`extension/llm/runner/stats.h`), anywhere in a text: standard
  output, an Android logcat of any ``-v`` format, the log of an iOS device. Or that JSON alone, as
  `LlmCallback.onStats` gets it. Stamps are milliseconds of the wall clock, 0 for one that was not
  taken. `generated_tokens` does not count the first token, which the prompt's evaluation gives.
  `aggregate_sampling_time_ms` is of the tokens after it; it and
  `aggregate_model_execution_time_ms` (in `Module::execute`) go on adding up in a later generation
  of a runner that was not reset. Rates and the time of execution are missing in older versions.
- In a log without such a line, as logcat is of an app whose standard output goes nowhere: the lines
  that the same function logs after it, from ``Prompt Tokens: 14    Generated Tokens: 54`` to
  ``Sampling time over 68 tokens: 0.019000 (seconds)``.
- The JSON of the Android benchmark (`benchmark_results.json`: a list of `BenchmarkMetric`, see
  `extension/benchmark/android`), and the lines that XCTest writes for the one of iOS
  (``Test Case '-[LLMTests test_generate_…]' measured [Tokens Per Second, t/s] average: …``).
- The JSON of PyTorch's benchmark database, schema v3, which
  `.github/scripts/extract_benchmark_results.py` makes of both.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from etscope.errors import FormatError, MismatchError, MissingDataError, UsageError, reading
from etscope.formats.bytes.files import PathLike
from etscope.formats.exported_program.exported_json import (
    integer,
    mapping,
    parse_json,
    sequence,
    text,
)

OBSERVER, RUNNER, ANDROID, XCTEST, DATABASE = (
    "PyTorchObserver",
    "runner's log",
    "BenchmarkMetric",
    "XCTest",
    "benchmark database",
)

_LONGEST_LINE = 1 << 20  # characters; logcat cuts a message at 4,068 bytes
_LARGEST_JSON = 64 << 20  # bytes
_MOST_TOKENS = 1 << 40  # so that a sum of them is within 64 bits
_MOST = 100_000  # generations of one log, results of one file

_HINT = (
    "a runner of ExecuTorch prints the line after a generation; an Android app's standard output "
    "is in logcat after `setprop log.redirect-stdio true`"
)


@dataclass(frozen=True, slots=True)
class AppGeneration:
    """A generation, as the app timed it; None for what it does not tell.

    Times are in ns, measured in whole milliseconds. generated_tokens: without the first one, which
    comes with the prompt. load_ns: reading the program and its methods. inference_ns: from the
    prompt's text to the last token. prefill_ns: from the prompt's text to the end of its
    evaluation, the tokenizer included. first_token_ns: from the prompt's text to the first token.
    execution_ns: in `Module::execute`. sampling_ns: the choice of the tokens after the first.
    decode_rate, overall_rate: tokens a second after the prompt, and over the whole generation, as
    given by a benchmark that gives no more.
    """

    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    load_ns: int | None = None
    inference_ns: int | None = None
    prefill_ns: int | None = None
    first_token_ns: int | None = None
    execution_ns: int | None = None
    sampling_ns: int | None = None
    decode_rate: float | None = None
    overall_rate: float | None = None
    gpu_total_bytes: int | None = None
    gpu_free_before_load_bytes: int | None = None
    gpu_free_after_load_bytes: int | None = None
    gpu_free_after_generate_bytes: int | None = None
    gpu_peak_bytes: int | None = None

    @property
    def decode_ns(self) -> int | None:
        """The time after the evaluation of the prompt."""
        if self.inference_ns is None or self.prefill_ns is None:
            return None
        return self.inference_ns - self.prefill_ns


@dataclass(frozen=True, slots=True)
class AppReport:
    """The report of an app. source: one of "PyTorchObserver", "runner's log", "BenchmarkMetric",
    "XCTest" and "benchmark database".

    generations: in order; () if it ran no language model. metrics: those of a benchmark by name,
    the unit in it as in "avg_inference_latency(ms)". device: "samsung SM-S918B".
    """

    source: str
    generations: tuple[AppGeneration, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    model: str | None = None
    backend: str | None = None
    quantization: str | None = None
    device: str | None = None
    os: str | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """The prompts' tokens, of all generations."""
        return self._sum("prompt_tokens")

    @property
    def generated_tokens(self) -> int | None:
        """The tokens after the first, of all generations."""
        return self._sum("generated_tokens")

    @property
    def token_counts(self) -> tuple[tuple[int, int], ...] | None:
        """The prompt's tokens and those generated after the first, of each generation; None where
        they are not told."""
        counts = tuple(
            (one.prompt_tokens, one.generated_tokens)
            for one in self.generations
            if one.prompt_tokens is not None and one.generated_tokens is not None
        )
        return counts if counts and len(counts) == len(self.generations) else None

    @property
    def first_token_ns(self) -> float | None:
        """The time to the first token, the mean of the generations."""
        return self._mean("first_token_ns")

    @property
    def load_ns(self) -> float | None:
        """The time of loading, the mean of the generations that tell it."""
        return self._mean("load_ns")

    @property
    def inference_ns(self) -> float | None:
        """The time of a generation, the mean of all."""
        return self._mean("inference_ns")

    @property
    def prefill_rate(self) -> float | None:
        """The tokens of the prompts a second of their evaluation."""
        return _rate(self.prompt_tokens, self._sum("prefill_ns"))

    @property
    def decode_rate(self) -> float | None:
        """The tokens a second after the evaluation of the prompts."""
        rate = _rate(self.generated_tokens, self._sum("decode_ns"))
        return self._mean("decode_rate") if rate is None else rate

    @property
    def overall_rate(self) -> float | None:
        """The generated tokens a second of the whole generations."""
        rate = _rate(self.generated_tokens, self._sum("inference_ns"))
        return self._mean("overall_rate") if rate is None else rate

    def to_json(self) -> dict[str, Any]:
        """Return the value of run.json's `generation.app`; what is not known is left out."""
        given = {
            **asdict(self),
            "metrics": dict(self.metrics),
            "generations": [_without_none(asdict(one)) for one in self.generations],
        }
        return _without_none(given)

    def _values(self, name: str) -> list[Any]:
        return [getattr(one, name) for one in self.generations]

    def _sum(self, name: str) -> int | None:
        values = self._values(name)
        return None if not values or None in values else sum(values)

    def _mean(self, name: str) -> float | None:
        values = [value for value in self._values(name) if value is not None]
        return sum(values) / len(values) if values else None


def parse_app_report(value: Any) -> AppReport:
    """Read the value of run.json's `generation.app`; `FormatError` when it is damaged."""
    given = mapping(value, "the app's report")
    texts = ("model", "backend", "quantization", "device", "os")
    metrics = mapping(given.get("metrics") or {}, "the metrics")
    return AppReport(
        source=text(given.get("source"), "the source of the app's report"),
        generations=tuple(
            _parse_generation(mapping(one, "a generation"))
            for one in sequence(given.get("generations") or [], "the generations")
        ),
        metrics={name: _number(number, name) for name, number in metrics.items()},
        **{name: None if given.get(name) is None else text(given[name], name) for name in texts},
    )


def _parse_generation(given: Mapping[str, Any]) -> AppGeneration:
    values: dict[str, Any] = {}
    for one in fields(AppGeneration):
        value = given.get(one.name)
        if value is not None:
            is_rate = one.name.endswith("_rate")
            values[one.name] = _number(value, one.name) if is_rate else integer(value, one.name)
            if values[one.name] < 0:
                raise FormatError(f"{one.name} of the app's report is below 0")
    found = AppGeneration(**values)
    _check_counts(found.prompt_tokens, found.generated_tokens)
    return found


def _check_counts(*counts: int | None, where: str = "") -> None:
    for count in counts:
        if count is not None and count >= _MOST_TOKENS:
            raise FormatError(f"{where}a generation of {count:,} tokens is not possible")


def read_app_report(path: PathLike) -> AppReport:
    """Read the report of one run of an app; "-" is standard input.

    Raises as `read_app_reports`, and `UsageError` for a file with the results of several models or
    devices.
    """
    reports = read_app_reports(path)
    if len(reports) > 1:
        ran = "; ".join(
            " on ".join(filter(None, (" ".join(filter(None, (r.model, r.backend))), r.device)))
            for r in reports[:4]
        )
        name = "standard input" if str(path) == "-" else str(path)
        raise UsageError(
            f"{name} has the results of {len(reports):,} runs: {ran}"
            + (", …" if len(reports) > 4 else ""),
            hint="give a file with the results of one model on one device",
        )
    return reports[0]


def read_app_reports(path: PathLike) -> tuple[AppReport, ...]:
    """Read the reports of apps from a log or a JSON of benchmarks; "-" is standard input.

    Raises `FormatError` for a damaged line or result and for times that cannot be, with the line;
    `MissingDataError` for a text without one, and for a benchmark that failed; `MissingFileError`.
    """
    with reading("app's log", None if str(path) == "-" else path):
        if str(path) == "-":
            return _read(sys.stdin.buffer)
        with open(path, "rb") as file:  # noqa: PTH123 - a path of any kind
            return _read(file)


def parse_app_reports(data: bytes | str) -> tuple[AppReport, ...]:
    """Read the reports from the content of a log or a JSON; raises as `read_app_reports`."""
    content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    with reading("app's log"):
        return _read(io.BufferedReader(io.BytesIO(content)))


def _read(stream: Any) -> tuple[AppReport, ...]:
    head: bytes = stream.peek(4)
    # PowerShell's `adb logcat > file` writes UTF-16.
    is_wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_wide else "utf-8-sig"
    if _JSON.match(head.decode(encoding, "replace")):
        content = stream.read(_LARGEST_JSON + 1)
        if len(content) > _LARGEST_JSON:
            raise FormatError(f"a JSON of more than {_LARGEST_JSON >> 20} MiB is too large")
        decoded = content.decode(encoding, "replace")
        try:
            document = parse_json(decoded)
        except json.JSONDecodeError as error:
            is_log = _LINE.search(decoded) is not None or _MEASURED.search(decoded) is not None
            if not is_log and any(key in decoded for key in _RESULT_KEYS):
                raise FormatError(f"line {error.lineno}: broken JSON ({error.msg})") from error
            stream = io.BytesIO(content)  # a log that only begins like JSON
        else:
            return _of_document(document)
    lines = io.TextIOWrapper(stream, encoding=encoding, errors="replace")
    try:
        return (_of_log(lines),)
    finally:
        lines.detach()  # the stream is the caller's to close


# The beginning of an object or of a list; not "[ 11-26 06:00:00.000 …" of logcat -v long.
_JSON = re.compile(r'\s*(\{\s*["}]|\[\s*[{\]])')
_RESULT_KEYS = ('"metric"', '"benchmarkModel"', '"benchmark"', '"inference_end_ms"')


# -- Logs.

# With the brace: a sentence about the word is not taken for a line.
_LINE = re.compile(r"PyTorchObserver\s*(\{)")
_MEASURED = re.compile(
    r"Test Case\s+'-\[(?:\w+\.)?\w+\s+(?P<test>[\w+]{1,400})\]'\s+measured\s+"
    r"\[(?P<metric>[^\]]+)\]\s+average:\s+(?P<value>[^\s,]+)"
)
_TEST = re.compile(r"test_(?P<method>forward|load|generate)_(?P<model>[\w+]+?)_pte(?P<rest>\w*)$")
_SYSTEM = re.compile(r"iOS_(?P<os>\w+?)_iPhone(?P<phone>\w+)$")
_PARTS = re.compile(r"(?P<model>[^_]+)_(?P<backend>[\w+]+)_(?P<quantization>\w+)$")


def _of_log(lines: io.TextIOWrapper) -> AppReport:
    found: list[AppGeneration] = []
    measured: dict[str, list[tuple[str, float]]] = {}
    told: list[dict[str, int]] = []
    previous: Mapping[str, Any] = {}
    number = 1
    while line := lines.readline(_LONGEST_LINE):  # one that is too long comes in pieces
        for match in _LINE.finditer(line):
            where = f"line {number:,}: "
            stats = _stats_of_line(line, match.start(1), where)
            found.append(_generation(stats, previous, where))
            previous = stats
            if len(found) > _MOST:
                raise FormatError(f"{where}a log of more than {_MOST:,} generations is too large")
        _add_told(line, told)
        metric = _MEASURED.search(line)
        if metric is not None and len(measured) < _MOST:
            given = metric["value"]
            try:
                value = float(given)
            except ValueError as error:
                raise FormatError(f"line {number:,}: {given!r:.40} is not an average") from error
            if not math.isfinite(value) or value < 0:
                raise FormatError(f"line {number:,}: an average cannot be {given}")
            measured.setdefault(metric["test"], []).append((metric["metric"], value))
        number += line.endswith("\n")
    benchmark = _of_tests(measured)
    if not found and any("inference" in one for one in told):
        return AppReport(RUNNER, tuple(_told_generations(told)))
    if not found and benchmark is None:
        raise MissingDataError("this log has no line PyTorchObserver {…}", hint=_HINT)
    if benchmark is None:
        return AppReport(OBSERVER, tuple(found))
    if not found:
        return benchmark
    return replace(benchmark, source=OBSERVER, generations=tuple(found))


def _stats_of_line(line: str, start: int, where: str) -> Mapping[str, Any]:
    try:
        # What follows is of the log: the tag of `logcat -v process`, the end of a colour.
        value, _ = json.JSONDecoder().raw_decode(line, start)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{where}the JSON after PyTorchObserver is damaged: {line[start:].strip():.60}",
            hint="the log cut the line off or mixed it with another; record it again",
        ) from error
    return mapping(value, f"{where}what follows PyTorchObserver")


def _of_tests(measured: Mapping[str, Sequence[tuple[str, float]]]) -> AppReport | None:
    """The report of the tests of the benchmark of iOS; None without one of its tests."""
    metrics: dict[str, float] = {}
    known: dict[str, str | None] = {}
    for test, values in measured.items():
        match = _TEST.match(test)
        if match is None:
            continue
        parts = _PARTS.match(match["model"])
        known["model"] = match["model"] if parts is None else parts["model"]
        if parts is not None:
            known |= {name: parts[name] for name in ("backend", "quantization")}
        system = _SYSTEM.search(match["rest"])
        if system is not None:
            known["os"] = "iOS " + system["os"].replace("_", ".")
            known["device"] = "iPhone " + system["phone"].replace("_", ".")
        for metric, value in values:
            renamed = _XCTEST_METRICS.get((match["method"], metric))
            if renamed is not None:
                metrics[renamed[0]] = value * renamed[1]
    if not metrics:
        return None
    return _with_generation(AppReport(XCTEST, (), metrics, **known), is_overall=True)


# XCTest's metrics by method, under the names that the database has for them.
_XCTEST_METRICS = {
    ("load", "Clock Monotonic Time, s"): ("model_load_time(ms)", 1e3),
    ("load", "Memory Peak Physical, kB"): ("peak_load_mem_usage(mb)", 1 / 1024),
    ("forward", "Clock Monotonic Time, s"): ("avg_inference_latency(ms)", 1e3),
    ("forward", "Memory Peak Physical, kB"): ("peak_inference_mem_usage(mb)", 1 / 1024),
    ("generate", "Clock Monotonic Time, s"): ("generate_time(ms)", 1e3),
    ("generate", "Memory Peak Physical, kB"): ("peak_generate_mem_usage(mb)", 1 / 1024),
    ("generate", "Tokens Per Second, t/s"): ("token_per_sec", 1.0),
}


# -- The runner's lines in words.

_TOKENS = re.compile(r"Prompt Tokens: (\d{1,12})\s+Generated Tokens: (\d{1,12})")
_SECONDS = re.compile(
    r"(Model Load Time|Total inference time|Prompt evaluation|Time to first generated token"
    r"|Sampling time over \d+ tokens):\s*(-?\d{1,12}\.\d{1,9}) \(seconds\)"
)
_NAMES = {"Model": "load", "Total": "inference", "Prompt": "prefill", "Time": "first_token"}


def _add_told(line: str, told: list[dict[str, int]]) -> None:
    """Add what a line says to the last generation, or a new one with the line of its tokens."""
    tokens = _TOKENS.search(line)
    if tokens is not None and len(told) < _MOST:
        told.append({"prompt_tokens": int(tokens[1]), "generated_tokens": int(tokens[2])})
    seconds = _SECONDS.search(line) if told else None
    if seconds is not None:
        name = _NAMES.get(seconds[1].split()[0], "sampling")
        told[-1].setdefault(name, round(float(seconds[2]) * 1000))


def _told_generations(told: Sequence[Mapping[str, int]]) -> Iterator[AppGeneration]:
    """The generations, of which each was logged to the end of its inference at least."""
    previous: Mapping[str, Any] = {}
    for number, one in enumerate(told, 1):
        if "inference" not in one:
            continue
        load = max(0, one.get("load", 0))
        start = 1 + load  # stamps whose differences are the times; 0 is one that was not taken
        stats = {
            **{name: one[name] for name in ("prompt_tokens", "generated_tokens")},
            "model_load_start_ms": 1 if load else 0,
            "model_load_end_ms": start if load else 0,
            "inference_start_ms": start,
            "inference_end_ms": start + one["inference"],
            # Below 0 where the runner took no such stamp.
            "prompt_eval_end_ms": start + one["prefill"] if one.get("prefill", -1) >= 0 else 0,
            "first_token_ms": start + one["first_token"] if one.get("first_token", -1) >= 0 else 0,
            "aggregate_sampling_time_ms": one.get("sampling"),
        }
        yield _generation(stats, previous, f"generation {number:,}: ")
        previous = stats


# -- The runner's JSON.


def _generation(
    stats: Mapping[str, Any], previous: Mapping[str, Any], where: str = ""
) -> AppGeneration:
    """The generation of a runner's statistics; previous: those of the generation before it."""
    per_second = _whole(stats, "SCALING_FACTOR_UNITS_PER_SECOND", where) or 1000
    if 10**9 % per_second:
        raise FormatError(f"{where}SCALING_FACTOR_UNITS_PER_SECOND cannot be {per_second}")
    unit = 10**9 // per_second
    for name in ("prompt_tokens", "generated_tokens", "inference_start_ms", "inference_end_ms"):
        if _whole(stats, name, where) is None:
            raise FormatError(f"{where}{name} is missing")

    def span(start: str, end: str, *, within: int | None = None) -> int | None:
        first, last = _whole(stats, start, where), _whole(stats, end, where)
        if not first or not last:  # 0: that stamp was not taken
            return None
        taken = (last - first) * unit
        if taken < 0 or (within is not None and taken > within):
            other = f"before {start}" if taken < 0 else "after inference_end_ms"
            raise FormatError(
                f"{where}{end} is {other}: these times cannot be",
                hint="the line is damaged, or the device's clock was set meanwhile",
            )
        return taken

    prompt, generated = (_whole(stats, f"{of}_tokens", where) for of in ("prompt", "generated"))
    _check_counts(prompt, generated, where=where)
    inference = span("inference_start_ms", "inference_end_ms")
    if inference is None:
        raise FormatError(f"{where}a generation without inference_start_ms or inference_end_ms")
    sampling, execution = _aggregates(stats, previous, inference // unit, where)
    memory = {
        name: _whole(stats, name, where)
        for name in AppGeneration.__dataclass_fields__
        if name.startswith("gpu_") and name != "gpu_peak_bytes"
    }
    peak = stats.get("gpu_peak_usage_mb")
    return AppGeneration(
        prompt_tokens=prompt,
        generated_tokens=generated,
        load_ns=span("model_load_start_ms", "model_load_end_ms"),
        inference_ns=inference,
        prefill_ns=span("inference_start_ms", "prompt_eval_end_ms", within=inference),
        first_token_ns=span("inference_start_ms", "first_token_ms", within=inference),
        execution_ns=None if execution is None else execution * unit,
        sampling_ns=None if sampling is None else sampling * unit,
        **memory,
        gpu_peak_bytes=None if peak is None else round(_number(peak, "gpu_peak_usage_mb") * 2**20),
    )


def _aggregates(
    stats: Mapping[str, Any], previous: Mapping[str, Any], inference: int, where: str
) -> tuple[int | None, int | None]:
    """The times of sampling and of execution of this generation alone, in the line's unit; None
    where they cannot be told.

    A runner that was not reset adds to those of the generation before. Before November 2025 the
    sum of sampling began with whatever was in memory (pull request 15820 of ExecuTorch).
    """
    sampling = _whole(stats, "aggregate_sampling_time_ms", where, least=None)
    execution = _whole(stats, "aggregate_model_execution_time_ms", where) or None
    same = previous.get("model_load_start_ms") == stats.get("model_load_start_ms")
    before = previous.get("aggregate_sampling_time_ms") or 0
    if execution is not None and execution > inference:
        # Of earlier generations, too; without a line of these, of an evaluation of the prompt that
        # the app asked for by itself.
        execution -= (previous.get("aggregate_model_execution_time_ms") or 0) if same else 0
        execution = execution if 0 <= execution <= inference else None
        sampling = None if sampling is None or execution is None else sampling - before
    elif execution is None and same and sampling is not None and sampling >= before > 0:
        sampling = None
    known = sampling is not None and 0 <= sampling <= inference
    return (sampling if known else None), execution


def _whole(given: Mapping[str, Any], name: str, where: str, least: int | None = 0) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    number = integer(value, f"{where}{name}")
    if (least is not None and number < least) or abs(number) >= 2**63:
        raise FormatError(f"{where}{name} cannot be {number}")
    return number


# -- The JSON of benchmarks.


def _of_document(document: Any) -> tuple[AppReport, ...]:
    if isinstance(document, dict):
        if "inference_end_ms" in document:
            return (AppReport(OBSERVER, (_generation(document, {}),)),)
        document = [document]
    results = [mapping(one, "a result") for one in sequence(document, "the results")]
    if not results:
        raise MissingDataError("the benchmark has no results: it failed, or has not ended")
    if len(results) > _MOST:
        raise FormatError(f"{len(results):,} results are too many")
    if all("inference_end_ms" in one for one in results):
        found: list[AppGeneration] = []
        for number, stats in enumerate(results):
            before = results[number - 1] if number else {}
            found.append(_generation(stats, before, f"generation {number + 1:,}: "))
        return (AppReport(OBSERVER, tuple(found)),)
    runs: dict[tuple[str | None, ...], tuple[AppReport, list[tuple[str, float]]]] = {}
    for number, one in enumerate(results, 1):
        where = f"result {number:,}: "
        if "benchmarkModel" in one:
            run, metric = _android_result(one, where)
        elif isinstance(one.get("benchmark"), dict):
            run, metric = _database_result(one, where)
        else:
            raise FormatError(
                f"{where}neither a BenchmarkMetric nor a result of the benchmark database"
            )
        key = (run.source, run.model, run.backend, run.quantization, run.device, run.os)
        runs.setdefault(key, (run, []))[1].append(metric)
    return tuple(_of_metrics(run, metrics) for run, metrics in runs.values())


def _android_result(one: Mapping[str, Any], where: str) -> tuple[AppReport, tuple[str, float]]:
    model = mapping(one["benchmarkModel"], f"{where}benchmarkModel")
    device = mapping(one.get("deviceInfo") or {}, f"{where}deviceInfo")
    name = text(one.get("metric"), f"{where}metric")
    brand = [text(device.get(key) or "", f"{where}{key}") for key in ("device", "arch")]
    run = AppReport(
        ANDROID,
        model=_named(model, "name", where),
        backend=_named(model, "backend", where),
        quantization=_named(model, "quantization", where),
        device=" ".join(dict.fromkeys(filter(None, brand))) or None,
        os=_named(device, "os", where),
    )
    return run, (name, _number(one.get("actualValue"), f"{where}actualValue"))


def _database_result(one: Mapping[str, Any], where: str) -> tuple[AppReport, tuple[str, float]]:
    model = mapping(one.get("model") or {}, f"{where}model")
    metric = mapping(one.get("metric"), f"{where}metric")
    name = text(metric.get("name"), f"{where}the name of the metric")
    if name == "FAILURE_REPORT":
        extra = mapping(one["benchmark"].get("extra_info") or {}, f"{where}extra_info")
        raise MissingDataError(
            f"{where}the job failed ({extra.get('job_conclusion', 'no conclusion')!s:.40}): "
            "nothing was measured"
        )
    values = [
        _number(value, f"{where}benchmark_values")
        for value in sequence(metric.get("benchmark_values"), f"{where}benchmark_values")
    ]
    if not values:
        raise FormatError(f"{where}{name:.60} has no value")
    runners = sequence(one.get("runners") or [{}], f"{where}runners")
    runner = mapping(runners[0], f"{where}a runner")
    run = AppReport(
        DATABASE,
        model=_named(model, "name", where),
        backend=_named(model, "backend", where),
        device=_named(runner, "name", where),
        os=_named(runner, "type", where),
    )
    return run, (name, sum(values) / len(values))


def _of_metrics(run: AppReport, metrics: Sequence[tuple[str, float]]) -> AppReport:
    """The report of a run with its metrics, in the order in which they were written."""
    for name, value in metrics:
        if value < 0:
            raise FormatError(f"{name:.60} cannot be {value:g}")
        # The app goes on to write times of what it did not do.
        if name == "load_status" and value:
            raise MissingDataError(
                f"the app could not load the model (status {value:g}): nothing was measured",
                hint="the status is a number of runtime/core/error.h; the app's log says more",
            )
    report = replace(run, metrics=dict(metrics))
    return _with_generation(report, is_overall=(run.os or "").startswith("iOS"))


def _with_generation(report: AppReport, *, is_overall: bool) -> AppReport:
    """Add the generation that a benchmark's metrics are of, if they are of one. is_overall: its
    tokens a second are of the whole generation, as on iOS; on Android of the time after the
    prompt."""
    metrics = report.metrics
    rate, taken = metrics.get("token_per_sec"), metrics.get("generate_time(ms)")
    if rate is None and taken is None:
        return report
    if rate == 0:
        raise MissingDataError(
            "the app generated no token: token_per_sec is 0", hint="the app's log says why"
        )
    load = metrics.get("llm_model_load_time(ms)")
    generation = AppGeneration(
        load_ns=None if load is None else round(load * 1e6),
        inference_ns=None if taken is None else round(taken * 1e6),
        decode_rate=None if is_overall else rate,
        overall_rate=rate if is_overall else None,
    )
    return replace(report, generations=(generation,))


def check_tokens(report: AppReport, prompt: int | None, generated: int | None) -> None:
    """Raise `MismatchError` unless the app's log is of a run with these numbers of tokens; None:
    not known. generated: with the first token, which the app does not count."""
    for one in report.generations:
        for what, app, run, same in (
            ("prompt", one.prompt_tokens, prompt, (prompt,)),
            ("generated", one.generated_tokens, generated, (generated, (generated or 0) - 1)),
        ):
            if run is not None and app is not None and app not in same:
                raise MismatchError(
                    f"the app's log is of another run: it has {app:,} {what} tokens, "
                    f"the run {run:,}",
                    hint="give the log that was written when this dump was",
                )


def _named(given: Mapping[str, Any], key: str, where: str) -> str | None:
    value = given.get(key)
    return None if value is None else text(value, f"{where}{key}") or None


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FormatError(f"{what} must be a number, found {value!r:.60}")
    return float(value)


def _rate(tokens: int | None, ns: int | None) -> float | None:
    return tokens / ns * 1e9 if tokens is not None and ns else None


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, {}, [])}
