"""Read the times of a language model that its app measured.

There are three sources:

- The line ``PyTorchObserver {"prompt_tokens":14,"generated_tokens":54,…}``, which ExecuTorch's
  runners print after each generation (`extension/llm/runner/stats.h`). It may be anywhere in a log:
  standard output, an Android logcat of any ``-v`` format, the log of an iOS device. Stamps are
  milliseconds of the wall clock; 0 means not taken. `generated_tokens` does not count the first
  token, which comes from the prompt's evaluation. The lines around it may have the process's memory
  ("RSS after loading model: 1223.152344 MiB") and the size of the vocabulary ("Prefill token result
  numel(): 128256"); a script's heading ("=== 1B-8da4w rep1 ===") names the generations below it.
- The report in words that follows the line, in another stream (ET_LOG): "Prompt Tokens: 14
  Generated Tokens: 54", "Total inference time: 1.250000 (seconds)", … It is read if the log has no
  such line.
- The JSON of PyTorch's benchmark database, schema v3, which
  `.github/scripts/extract_benchmark_results.py` makes from the phone benchmarks; or
  `benchmark_results.json`, which the Android app (`extension/benchmark/android`) itself writes:
  `[{"benchmarkModel": {"name", "backend", …}, "metric", "actualValue", "deviceInfo"}, …]`.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from etscope.errors import FormatError, MismatchError, MissingDataError, UsageError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, open_source
from etscope.formats.exported_program.exported_json import (
    integer,
    mapping,
    parse_json,
    sequence,
    text,
)
from etscope.support.shown import Shown

__all__ = [
    "AppReport",
    "BenchmarkRun",
    "check_runtime",
    "check_tokens",
    "read_app_report",
    "read_benchmark_runs",
]

_LONGEST_LINE = 1 << 20  # characters; logcat cuts a message at 4,068 bytes
_LARGEST_JSON = 64 << 20  # bytes
_MOST_TOKENS = 1 << 40  # so that a sum of them is within 64 bits
# Sampling and tokenizing take up to a third; the calls of an untraced warm-up are in the dump, too.
_LEAST_IN_RUNTIME = 0.1
_MOST_MIB = 1 << 40
_MOST = 100_000  # generations of one log, results of one file

_HINT = (
    "a runner of ExecuTorch prints the line after a generation; an Android app's standard output "
    "is in logcat after `setprop log.redirect-stdio true`"
)


@dataclass(frozen=True, slots=True)
class AppGeneration:
    """A generation with the app's times; None for an unknown one.

    Times are in ns, measured in whole milliseconds. generated_tokens: without the first one, which
    comes with the prompt. load_ns: reading the program and its methods. inference_ns: from the
    prompt's text to the last token. prefill_ns: from the prompt's text to the end of its
    evaluation, tokenizer included. first_token_ns: from the prompt's text to the first token.
    decode_rate: tokens per second after the prompt, from a benchmark. sampling_ns: choosing all
    tokens. model_ns: executing the program. loaded_at: the stamp of the load, the same for all
    generations of a loaded model. heading: of the log above it. vocabulary: the number of tokens to
    choose from. memory: bytes of the process after each stage, and of the GPU. claimed: the
    rates in the line, by name.
    """

    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    load_ns: int | None = None
    inference_ns: int | None = None
    prefill_ns: int | None = None
    first_token_ns: int | None = None
    decode_rate: float | None = None
    sampling_ns: int | None = None
    model_ns: int | None = None
    loaded_at: int | None = None
    heading: str | None = None
    vocabulary: int | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    claimed: Mapping[str, float] = field(default_factory=dict)

    @property
    def decode_ns(self) -> int | None:
        """The time after the evaluation of the prompt."""
        if self.inference_ns is None or self.prefill_ns is None:
            return None
        return self.inference_ns - self.prefill_ns


@dataclass(frozen=True, slots=True)
class AppReport(Shown):
    """The report of an app.

    generations: in order; () without a language model. metrics: a benchmark's metrics; the name
    includes the unit: "avg_inference_latency(ms)".
    """

    generations: tuple[AppGeneration, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    model: str | None = None
    backend: str | None = None
    device: str | None = None
    os: str | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """The number of the prompts' tokens in all generations."""
        return self._sum("prompt_tokens")

    @property
    def generated_tokens(self) -> int | None:
        """The number of tokens after the first one, in all generations."""
        return self._sum("generated_tokens")

    @property
    def first_token_ns(self) -> float | None:
        """The time to the first token, the mean of the generations."""
        return self._mean("first_token_ns")

    @property
    def load_ns(self) -> float | None:
        """The load time, the mean of the generations that have it."""
        return self._mean("load_ns")

    @property
    def inference_ns(self) -> float | None:
        """The time of a generation, the mean of all."""
        return self._mean("inference_ns")

    @property
    def prefill_rate(self) -> float | None:
        """Prompt tokens per second of prefill."""
        return _rate(self.prompt_tokens, self._sum("prefill_ns"))

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second of decode."""
        rate = _rate(self.generated_tokens, self._sum("decode_ns"))
        return self._mean("decode_rate") if rate is None else rate

    def _values(self, name: str) -> list[Any]:
        return [getattr(one, name) for one in self.generations]

    def _sum(self, name: str) -> int | None:
        values = self._values(name)
        return None if not values or None in values else sum(values)

    def _mean(self, name: str) -> float | None:
        values = [value for value in self._values(name) if value is not None]
        return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class BenchmarkRun(Shown):
    """Records of the benchmark database that differ in their metric only: one run of a benchmark.

    metrics: the mean of the values of each; {} of a failed run. failure: its conclusion; "" of a
    run that measured. record: the first of its records. sha256: of all of them.
    """

    report: AppReport
    failure: str
    record: Mapping[str, Any]
    sha256: str

    @property
    def metrics(self) -> Mapping[str, float]:
        return self.report.metrics

    @property
    def extra(self) -> Mapping[str, Any]:
        """Further facts of the benchmark."""
        return _object(self.record["benchmark"].get("extra_info"))

    @property
    def mode(self) -> str | None:
        """The kind of benchmark: "inference"."""
        return str(self.record["benchmark"].get("mode") or "") or None

    @property
    def runner(self) -> Mapping[str, Any]:
        """Facts of the device."""
        return _object(next(iter(self.record.get("runners") or ()), None))

    @property
    def uploaded_at(self) -> float | None:
        """The time of the upload, seconds since 1970; None if it is not recorded."""
        stamp = self.record.get("timestamp")
        if not isinstance(stamp, (int, float)) or not 0 < stamp < 1000 * _MOST_SECONDS:
            return None
        return stamp / 1000 if stamp > _MOST_SECONDS else stamp

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the benchmark, which is JSON in a text."""
        with suppress(KeyError, ValueError, TypeError, RecursionError):
            return dict(_object(json.loads(self.extra["benchmark_config"])))
        return {}

    @property
    def labels(self) -> dict[str, Any]:
        """Commit, branch and the rest of the workflow, the method, and the configuration."""
        method = _object(self.record["metric"].get("extra_info")).get("method")
        return {
            **({"method": method} if method else {}),
            **{key: value for key, value in self.config.items() if key not in _NAMES},
            **{_OF_UPLOAD[key]: self.record[key] for key in _OF_UPLOAD if key in self.record},
        }


_MOST_SECONDS = 1e11  # since 1970: larger stamps are in ms
_NAMES = ("model", "device")  # which the record has elsewhere
# Fields that the upload of the results adds, and the labels that they become.
_OF_UPLOAD = {
    "head_sha": "commit",
    "head_branch": "branch",
    **{name: name for name in ("repo", "workflow_id", "run_attempt", "job_id")},
}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def read_app_report(path: PathLike) -> AppReport:
    """Read the report of one run of an app from a log or a JSON of the benchmark database.

    Raises `FormatError` with the line for a damaged line or result and for impossible times;
    `MissingDataError` for a file without a report and for a failed benchmark; `UsageError` for the
    results of several models or devices; `MissingFileError`.
    """
    with reading("app's log", path), open(path, "rb") as stream:  # noqa: PTH123 - a path of any kind
        head = stream.peek(4)
        # PowerShell's `adb logcat > file` writes UTF-16.
        is_wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = "utf-16" if is_wide else "utf-8-sig"
        if not _JSON.match(head.decode(encoding, "replace")):
            return _of_log(io.TextIOWrapper(stream, encoding=encoding, errors="replace"))
        return _of_results(_records(stream.read(_LARGEST_JSON + 1), encoding))


def read_benchmark_runs(data_or_path: BytesLike | PathLike) -> list[BenchmarkRun]:
    """Read the runs in records of PyTorch's benchmark database, schema v3, failed ones too: a JSON
    list, or an object a line, as the database exports them.

    Raises `FormatError` with the record for a damaged one, `MissingDataError` for a file without
    records, `MissingFileError`.
    """
    source = open_source(data_or_path, _RECORDS)
    with reading(_RECORDS, source.path):
        groups: dict[str, list[tuple[_Result, Mapping[str, Any]]]] = {}
        for number, one in enumerate(_records(bytes(source.buffer), "utf-8-sig"), 1):
            result = _result(one, f"record {number:,}: ")
            key = {**one, "metric": (one["metric"].get("extra_info"), result.value is None)}
            groups.setdefault(json.dumps(key, sort_keys=True), []).append((result, one))
        return [_run_of(group) for group in groups.values()]


_RECORDS = "file of benchmark records"


# The start of an object or of a list, but not of "[ 11-26 06:00:00.000 …" (logcat -v long).
_JSON = re.compile(r'\s*(\{\s*["}]|\[\s*[{\]])')


# -- Logs.

# The brace excludes sentences that mention the word.
_LINE = re.compile(r"PyTorchObserver\s*(\{)")
_HEADING = re.compile(r"={3,}\s*(\S.{0,80}?)\s*={3,}\s*$")
_RSS = re.compile(r"RSS after ([\w ]{1,40}): (\d{1,9}(?:\.\d{1,9})?) MiB")
_VOCABULARY = re.compile(r"Prefill token result numel\(\): (\d{1,9})\b")
_RATES = ("prefill_token_per_sec", "decode_token_per_sec")


# The report in words, and the field of each of its times.
_PRINTED = re.compile(r"Prompt Tokens: (\d{1,12})\s+Generated Tokens: (\d{1,12})\b")
_PRINTED_TIME = re.compile(r"(\w[A-Za-z ]+?)(?: \d+ tokens)?:\s*(-?\d{1,12}\.\d{1,9}) \(seconds\)")
_PRINTED_FIELDS = {
    "Model Load Time": "load_ns",
    "Total inference time": "inference_ns",
    "Prompt evaluation": "prefill_ns",
    "Time to first generated token": "first_token_ns",
    "Sampling time over": "sampling_ns",
}


def _of_log(lines: io.TextIOWrapper) -> AppReport:
    found: list[AppGeneration] = []
    printed: list[tuple[int, dict[str, Any]]] = []  # with their lines
    number, heading, vocabulary = 1, None, None
    memory: dict[str, int] = {}
    while line := lines.readline(_LONGEST_LINE):  # one that is too long comes in pieces
        if match := _HEADING.search(line):
            heading, vocabulary = match[1], None
        if match := _VOCABULARY.search(line):
            vocabulary = int(match[1])
        if (match := _RSS.search(line)) and float(match[2]):  # 0: not measured there
            memory[f"process after {match[1]}"] = round(float(match[2]) * (1 << 20))
        for match in _LINE.finditer(line):
            where = f"line {number:,}: "
            one = _generation(_stats_of_line(line, match.start(1), where), where)
            memory |= one.memory
            found.append(replace(one, heading=heading, vocabulary=vocabulary, memory=memory))
            memory = {}
            if len(found) > _MOST:
                raise FormatError(f"{where}a log of more than {_MOST:,} generations is too large")
        if match := _PRINTED.search(line):
            tokens = {"prompt_tokens": int(match[1]), "generated_tokens": int(match[2])}
            printed.append((number, {"heading": heading, "vocabulary": vocabulary, **tokens}))
        if printed and (match := _PRINTED_TIME.search(line)) and match[1] in _PRINTED_FIELDS:
            printed[-1][1][_PRINTED_FIELDS[match[1]]] = round(float(match[2]) * 1e9)
        number += line.endswith("\n")
    found = found or [_printed_generation(line, values) for line, values in printed[:_MOST]]
    if not found:
        raise MissingDataError("this log does not have a line PyTorchObserver {…}", hint=_HINT)
    return AppReport(tuple(found))


def _printed_generation(line: int, values: dict[str, Any]) -> AppGeneration:
    """Return a generation of the report in words; a time of 0 or less was not taken."""
    taken = {key: value for key, value in values.items() if not key.endswith("_ns") or value > 0}
    if "inference_ns" not in taken:
        raise FormatError(
            f"line {line:,}: the report does not have a total inference time",
            hint="the log is cut off; record it again",
        )
    return AppGeneration(**taken)


def _stats_of_line(line: str, start: int, where: str) -> Mapping[str, Any]:
    try:
        # The log may continue after the JSON: the tag of `logcat -v process`, the end of a colour.
        value, _ = json.JSONDecoder().raw_decode(line, start)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{where}the JSON after PyTorchObserver is damaged: {line[start:].strip():.60}",
            hint="the log cut off the line or mixed it with another one; record it again",
        ) from error
    return mapping(value, f"{where}the value after PyTorchObserver")


def _generation(stats: Mapping[str, Any], where: str) -> AppGeneration:
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
                f"{where}{end} is {other}, which is impossible",
                hint="the line is damaged, or the device's clock changed during the run",
            )
        return taken

    prompt, generated = (_whole(stats, f"{of}_tokens", where) for of in ("prompt", "generated"))
    for count in (prompt, generated):
        if count is not None and count >= _MOST_TOKENS:
            raise FormatError(f"{where}a generation of {count:,} tokens is impossible")
    inference = span("inference_start_ms", "inference_end_ms")
    if inference is None:
        raise FormatError(f"{where}a generation without inference_start_ms or inference_end_ms")
    sampling = _whole(stats, "aggregate_sampling_time_ms", where)
    sampling = None if sampling is None else min(sampling * unit, inference)
    executing = _whole(stats, "aggregate_model_execution_time_ms", where)
    peak = stats.get("gpu_peak_usage_mb")
    memory = {}
    if isinstance(peak, (int, float)) and 0 < peak < _MOST_MIB:
        memory["GPU at its peak"] = round(peak * (1 << 20))
    return AppGeneration(
        prompt_tokens=prompt,
        generated_tokens=generated,
        load_ns=span("model_load_start_ms", "model_load_end_ms"),
        inference_ns=inference,
        prefill_ns=span("inference_start_ms", "prompt_eval_end_ms", within=inference),
        first_token_ns=span("inference_start_ms", "first_token_ms", within=inference),
        sampling_ns=sampling,
        model_ns=None if not executing else min(executing * unit, inference),
        memory=memory,
        claimed={name: stats[name] for name in _RATES if isinstance(stats.get(name), (int, float))},
        loaded_at=_whole(stats, "model_load_start_ms", where) or None,
    )


def _whole(given: Mapping[str, Any], name: str, where: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    number = integer(value, f"{where}{name}")
    if number < 0:
        raise FormatError(f"{where}{name} cannot be {number}")
    return number


# -- The benchmark database.


@dataclass(frozen=True, slots=True)
class _Result:
    """A record. value: the mean of its values; None for a FAILURE_REPORT."""

    run: AppReport
    metric: str
    value: float | None
    failure: str = ""


def _records(content: bytes, encoding: str) -> list[Mapping[str, Any]]:
    if len(content) > _LARGEST_JSON:
        raise FormatError(f"this JSON is too large: the limit is {_LARGEST_JSON >> 20} MiB")
    given = content.decode(encoding, "replace")
    try:
        try:
            document = parse_json(given)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):
                raise
            lines = (line for line in given.split("\n") if line.strip())
            document = parse_json("[" + ",\n".join(lines) + "]")
    except json.JSONDecodeError as error:
        raise FormatError(f"line {error.lineno}: broken JSON ({error.msg})") from error
    records: list[Mapping[str, Any]] = [
        mapping(one, "a result")
        for one in sequence([document] if isinstance(document, dict) else document, "the results")
    ]
    if not records:
        raise MissingDataError("the benchmark does not have results: it failed, or still runs")
    if len(records) > _MOST:
        raise FormatError(f"{len(records):,} results are too many")
    return [
        _as_v3(one, f"result {number:,}: ") if "benchmarkModel" in one else one
        for number, one in enumerate(records, 1)
    ]


def _of_results(records: Sequence[Mapping[str, Any]]) -> AppReport:
    runs: dict[tuple[str | None, ...], tuple[AppReport, list[tuple[str, float]]]] = {}
    for number, one in enumerate(records, 1):
        found = _result(one, f"result {number:,}: ")
        if found.value is None:
            raise MissingDataError(
                f"result {number:,}: the job failed ({found.failure:.40}): "
                "it did not measure anything"
            )
        run = found.run
        key = (run.model, run.backend, run.device, run.os)
        runs.setdefault(key, (run, []))[1].append((found.metric, found.value))
    if len(runs) > 1:
        ran = ["/".join(filter(None, key[:3])) for key in runs]
        raise UsageError(
            f"the benchmark has results of {len(runs):,} runs: {', '.join(ran[:4])}",
            hint="give a file with the results of one model on one device",
        )
    ((run, metrics),) = runs.values()
    return _with_metrics(run, metrics)


def _run_of(group: Sequence[tuple[_Result, Mapping[str, Any]]]) -> BenchmarkRun:
    first, record = group[0]
    metrics = {one.metric: one.value for one, _ in group if one.value is not None}
    content = json.dumps([one for _, one in group], sort_keys=True)
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    return BenchmarkRun(replace(first.run, metrics=metrics), first.failure, record, sha256)


def _result(one: Mapping[str, Any], where: str) -> _Result:
    benchmark = one.get("benchmark")
    if not isinstance(benchmark, dict):
        raise FormatError(f"{where}is not a result of the benchmark database, schema v3")
    model = mapping(one.get("model") or {}, f"{where}model")
    metric = mapping(one.get("metric"), f"{where}metric")
    name = text(metric.get("name"), f"{where}the name of the metric")
    runners = sequence(one.get("runners") or [{}], f"{where}runners")
    runner = mapping(runners[0], f"{where}a runner")
    run = AppReport(
        model=_named(model, "name", where),
        backend=_named(model, "backend", where),
        device=_named(runner, "name", where),
        os=_named(runner, "type", where),
    )
    if name == "FAILURE_REPORT":
        extra = mapping(benchmark.get("extra_info") or {}, f"{where}extra_info")
        return _Result(run, name, None, str(extra.get("job_conclusion") or "no conclusion"))
    values = sequence(metric.get("benchmark_values"), f"{where}benchmark_values")
    for value in values:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise FormatError(f"{where}benchmark_values must be a number, found {value!r:.60}")
    if not values:
        raise FormatError(f"{where}{name:.60} does not have a value")
    return _Result(run, name, sum(values) / len(values))


def _as_v3(one: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a result of the Android app as a record of the benchmark database."""
    device = mapping(one.get("deviceInfo") or {}, f"{where}deviceInfo")
    return {
        "benchmark": {},
        "model": one["benchmarkModel"],
        "metric": {"name": one.get("metric"), "benchmark_values": [one.get("actualValue")]},
        "runners": [{"name": device.get("arch"), "type": device.get("os")}],
    }


def _with_metrics(run: AppReport, metrics: Sequence[tuple[str, float]]) -> AppReport:
    """Return the report of a run with its metrics, in the order of the file, and the generation
    that they describe, if any."""
    for name, value in metrics:
        if value < 0:
            raise FormatError(f"{name:.60} cannot be {value:g}")
        # The app continues after a failed load, and writes meaningless times.
        if name == "load_status" and value:
            raise MissingDataError(
                f"the app could not load the model (status {value:g}) and did not measure anything",
                hint="the status is a number of runtime/core/error.h; the app's log says more",
            )
    report = replace(run, metrics=dict(metrics))
    rate = report.metrics.get("token_per_sec")
    if rate is None and "generate_time(ms)" not in report.metrics:
        return report
    if rate == 0:
        raise MissingDataError(
            "the app did not generate tokens: token_per_sec is 0", hint="the app's log says why"
        )

    def ns(name: str) -> int | None:
        taken = report.metrics.get(name)
        return None if taken is None else round(taken * 1e6)

    # The rate covers the whole generation on iOS, and only the time after the prompt on Android.
    is_ios = (run.os or "").startswith("iOS")
    generation = AppGeneration(
        load_ns=ns("llm_model_load_time(ms)"),
        inference_ns=ns("generate_time(ms)"),
        decode_rate=None if is_ios else rate,
    )
    return replace(report, generations=(generation,))


def check_tokens(report: AppReport, prompt: int | None, generated: int | None) -> None:
    """Raise `MismatchError` if the app's log has other numbers of tokens than the run; None is
    unknown. generated: with the first token, which the app does not count."""
    for one in report.generations:
        for what, app, run, same in (
            ("prompt", one.prompt_tokens, prompt, (prompt,)),
            ("generated", one.generated_tokens, generated, (generated, (generated or 0) - 1)),
        ):
            if run is not None and app is not None and app not in same:
                raise MismatchError(
                    f"the app's log is of another run: it has {app:,} {what} tokens, "
                    f"the run has {run:,}",
                    hint="give the log of the same run as this dump",
                )


def check_runtime(report: AppReport, execute_ns: int | None) -> None:
    """Raise `MismatchError` if an app's log cannot be of one run in which the runtime executed for
    this time; None is unknown."""
    loads = len({one.loaded_at for one in report.generations} - {None})
    if loads > 1:
        raise MismatchError(
            f"the app's log has {loads:,} loads of a model, maybe of several models, and a dump is "
            "of one",
            hint="keep only the lines of this dump's run in the log",
        )
    taken = [one.inference_ns for one in report.generations if one.prompt_tokens is not None]
    app = sum(one or 0 for one in taken)
    if execute_ns is not None and execute_ns < _LEAST_IN_RUNTIME * app:
        raise MismatchError(
            f"the app's log is of another run: its generations take {app / 1e6:,.0f} ms, and all "
            f"calls in the dump {execute_ns / 1e6:,.1f} ms",
            hint="give the log of the same run as this dump",
        )


def _named(given: Mapping[str, Any], key: str, where: str) -> str | None:
    value = given.get(key)
    return None if value is None else text(value, f"{where}{key}") or None


def _rate(tokens: int | None, ns: int | None) -> float | None:
    return tokens / ns * 1e9 if tokens is not None and ns else None
