"""Logs and benchmarks of apps, in the shapes that ExecuTorch's sources write them in.

The lines are those of `extension/llm/runner/stats.h` (of today, of 2025 and of 2024), the JSON that
of `extension/benchmark/android/…/LlmBenchmark.kt` and `ModelRunner.kt`, and of `transform()` in
`.github/scripts/extract_benchmark_results.py`; the tests that of
`extension/benchmark/apple/Benchmark/Tests/LLM/LLMTests.mm`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import EtscopeError, FormatError, MismatchError, MissingDataError, UsageError
from etscope.formats.app_report import (
    AppReport,
    check_tokens,
    parse_app_report,
    parse_app_reports,
    read_app_report,
)

START = 1795674120053
MS = 1_000_000


def stats(**changes: Any) -> dict[str, Any]:
    """The keys of July 2026 in their order; a change to None leaves one out."""
    found = {
        "prefill_token_per_sec": 85.3659,
        "decode_token_per_sec": 52.6829,
        "prompt_tokens": 14,
        "generated_tokens": 54,
        "model_load_start_ms": START,
        "model_load_end_ms": START + 2277,
        "inference_start_ms": START + 2277,
        "inference_end_ms": START + 3466,
        "model_execution_start_ms": START + 3440,
        "model_execution_end_ms": START + 3460,
        "prompt_eval_end_ms": START + 2441,
        "first_token_ms": START + 2441,
        "aggregate_sampling_time_ms": 19,
        "aggregate_model_execution_time_ms": 1100,
        "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
    }
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


def line(**changes: Any) -> str:
    return "PyTorchObserver " + json.dumps(stats(**changes), separators=(",", ":"))


RATES = ("prefill_token_per_sec", "decode_token_per_sec")
EXECUTION = ("model_execution_start_ms", "model_execution_end_ms")
OLD = dict.fromkeys((*RATES, *EXECUTION, "aggregate_model_execution_time_ms"))
LATER = {  # another generation of the same runner
    "inference_start_ms": START + 5000,
    "prompt_eval_end_ms": START + 5100,
    "first_token_ms": START + 5100,
    "inference_end_ms": START + 6100,
}


def the_report(data: bytes | str) -> AppReport:
    (report,) = parse_app_reports(data)
    return report


def test_times_are_those_between_the_stamps() -> None:
    report = the_report(f"I 00:00:00.001 executorch:main.cpp:81] hello\n{line()}\n")
    (one,) = report.generations
    assert (one.prompt_tokens, one.generated_tokens) == (14, 54)
    assert one.load_ns == 2277 * MS
    assert one.inference_ns == 1189 * MS
    assert one.prefill_ns == one.first_token_ns == 164 * MS
    assert one.decode_ns == 1025 * MS
    assert (one.sampling_ns, one.execution_ns) == (19 * MS, 1100 * MS)
    assert report.prefill_rate == pytest.approx(85.3659, abs=1e-4)  # as the runner computes it
    assert report.decode_rate == pytest.approx(52.6829, abs=1e-4)
    assert report.overall_rate == pytest.approx(54 / 1.189)
    assert report.first_token_ns == 164 * MS


LOGCAT = {
    "brief": "I/stdout  ( 4411): {}",
    "process": "I( 4411) {}  (stdout)",
    "tag": "I/stdout  : {}",
    "raw": "{}",
    "time": "11-26 06:00:00.123 I/stdout  ( 4411): {}",
    "threadtime": "11-26 06:00:00.123  4411  4433 I stdout  : {}",
    "thread": "I( 4411: 4433) {}",
    "long": "[ 11-26 06:00:00.123  4411: 4433 I/stdout   ]\n{}\n",
    "color": "\x1b[38;5;40m11-26 06:00:00.123  4411  4433 I stdout  : {}\x1b[0m",
    "uid": "2026-11-26 06:00:00.123 +0000 u0_a1  4411  4433 I stdout  : {}",
    "ios": "Nov 26 06:00:00.123456 iPhone Benchmark(ExecuTorchLLM)[4411] <Notice>: {}",
}


@pytest.mark.parametrize("name", LOGCAT)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_is_found_in_every_kind_of_log(name: str, end: str) -> None:
    text = LOGCAT[name].format("--------- beginning of main")
    text += "\n" + LOGCAT[name].format("PyTorchObserver is a word here") + "\n"
    text += LOGCAT[name].format(line()) + "\n" + LOGCAT[name].format("bye") + "\n"
    report = the_report(text.replace("\n", end))
    assert report == the_report(line())


def test_powershell_writes_utf_16() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le"):
        data = f"Grüße\n{line()}\n".encode(encoding)
        data = b"\xff\xfe" + data if encoding == "utf-16-le" else data
        assert the_report(data).generated_tokens == 54


def test_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "app.log"  # bytes that are no text are passed over
    path.write_bytes(b"\x00\xff\xfe\x80" * 3000 + b"\n" + line().encode())
    assert read_app_report(path).generated_tokens == 54
    path.write_text("x\n" + line()[:-9])
    with pytest.raises(FormatError, match=r"app\.log.*line 2"):
        read_app_report(path)
    given = io.TextIOWrapper(io.BufferedReader(io.BytesIO(line().encode())))  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdin", given)
    assert read_app_report("-").prompt_tokens == 14
    assert not given.buffer.closed


def test_what_is_not_known() -> None:
    # A runner that loaded before, as the multimodal one: both stamps are 0.
    report = the_report(line(model_load_start_ms=0, model_load_end_ms=0, **OLD))
    assert report.load_ns is None
    assert report.generations[0].inference_ns == 1189 * MS
    # `aggregate_sampling_time_ms` was not initialised before November 2025.
    for garbage in (8433599048, -94384762104):
        (one,) = the_report(line(**OLD, aggregate_sampling_time_ms=garbage)).generations
        assert (one.sampling_ns, one.inference_ns) == (None, 1189 * MS)


def test_gpu_memory() -> None:
    names = ("total", "free_before_load", "free_after_load", "free_after_generate")
    memory = {f"gpu_{name}_bytes": (25 - at) << 30 for at, name in enumerate(names)}
    (one,) = the_report(line(**memory, gpu_peak_usage_mb=5120.5)).generations
    assert {name: getattr(one, name) for name in memory} == memory
    assert one.gpu_peak_bytes == int(5120.5 * 2**20)


def test_each_line_is_a_generation_and_rates_are_of_all() -> None:
    second = line(**LATER, prompt_tokens=6, generated_tokens=20, **OLD)
    report = the_report(f"{line(**OLD)}\nother\n{second}\n")
    assert [one.generated_tokens for one in report.generations] == [54, 20]
    assert report.prefill_rate == pytest.approx(20 / 0.264)
    assert report.decode_rate == pytest.approx(74 / 2.025)
    assert report.first_token_ns == 132 * MS
    assert report.token_counts == ((14, 54), (6, 20))


def test_sums_of_a_runner_that_was_not_reset_are_taken_apart() -> None:
    added = line(
        **LATER, aggregate_sampling_time_ms=19 + 15, aggregate_model_execution_time_ms=1100 + 1000
    )
    first, second = the_report(f"{line()}\n{added}\n").generations
    assert (first.sampling_ns, first.execution_ns) == (19 * MS, 1100 * MS)
    assert (second.sampling_ns, second.execution_ns) == (15 * MS, 1000 * MS)
    reset = line(**LATER, aggregate_sampling_time_ms=15, aggregate_model_execution_time_ms=1000)
    assert the_report(f"{line()}\n{reset}\n").generations[1] == second


WORDS = """\
\tPrompt Tokens: 14    Generated Tokens: 54
\tModel Load Time:\t\t2.277000 (seconds)
\tTotal inference time:\t\t1.189000 (seconds)\t\t Rate: \t45.416316 (tokens/second)
\t\tPrompt evaluation:\t0.164000 (seconds)\t\t Rate: \t85.365854 (tokens/second)
\t\tGenerated 54 tokens:\t1.025000 (seconds)\t\t Rate: \t52.682927 (tokens/second)
\tTime to first generated token:\t0.164000 (seconds)
\tSampling time over 68 tokens:\t0.019000 (seconds)"""


def in_logcat(words: str) -> str:
    """As Android's runtime logs it, with lines of others between."""
    lines = [f"I/ExecuTorch( 4411): {one}" for one in words.splitlines()]
    return "D/Other( 1): a line\n".join(f"{one}\n" for one in lines)


def test_a_log_without_the_line_has_it_in_words() -> None:
    report = the_report(in_logcat(WORDS))
    (one,) = the_report(line(**OLD)).generations  # an older version's line tells less, too
    assert (one.prefill_ns, one.sampling_ns, one.execution_ns) == (164 * MS, 19 * MS, None)
    assert report == AppReport("runner's log", (one,))
    assert the_report(f"{line()}\n{in_logcat(WORDS)}") == the_report(line())


def test_words_of_several_generations_and_of_one_that_was_cut_off() -> None:
    other = WORDS.replace("Generated Tokens: 54", "Generated Tokens: 7").replace("0.019", "0.003")
    cut = WORDS.splitlines()[0]
    report = the_report(in_logcat(WORDS) + in_logcat(other) + in_logcat(cut))
    assert [one.generated_tokens for one in report.generations] == [54, 7]
    assert [one.sampling_ns for one in report.generations] == [19 * MS, 3 * MS]
    with pytest.raises(MissingDataError):
        parse_app_reports(in_logcat(cut))


def test_words_of_a_stamp_that_was_not_taken() -> None:
    words = WORDS.replace("token:\t0.164000", "token:\t-1795674120.053000")
    (one,) = the_report(in_logcat(words)).generations
    assert (one.first_token_ns, one.prefill_ns) == (None, 164 * MS)
    with pytest.raises(FormatError, match="generation 1: inference_end_ms is before"):
        parse_app_reports(in_logcat(WORDS.replace("1.189000", "-1.189000")))


# -- JSON of benchmarks.


def android(status: int = 0, rate: float = 31.5) -> list[dict[str, Any]]:
    model = {"name": "llama", "backend": "xnnpack+custom", "quantization": "8da4w"}
    device = {"device": "samsung", "arch": "SM-S918B", "os": "Android 15", "totalMem": 0}
    metrics = [
        ("avg_inference_latency(ms)", 21.25),
        ("model_load_time(ms)", 800.0),
        ("load_status", 0.0),
        ("ram_pss_usage(mb)", 1024.5),
        ("load_status", float(status)),
        ("llm_model_load_time(ms)", 912.345678),
        ("generate_time(ms)", 4321.5),
        ("token_per_sec", rate),
    ]
    return [
        {
            "benchmarkModel": model,
            "metric": name,
            "actualValue": value,
            "targetValue": 0.0,
            "deviceInfo": dict(device),
        }
        for name, value in metrics
    ]


def database(app: str, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`transform()` of extract_benchmark_results.py."""
    return [
        {
            "benchmark": {
                "name": "ExecuTorch",
                "mode": "inference",
                "extra_info": {"app_type": app, "job_conclusion": "SUCCESS"},
            },
            "model": {"name": r["benchmarkModel"]["name"], "type": "OSS model", "backend": "x"},
            "metric": {
                "name": r["metric"],
                "benchmark_values": [r["actualValue"]],
                "target_value": r["targetValue"],
                "extra_info": {"method": ""},
            },
            "runners": [{"name": r["deviceInfo"]["device"], "type": r["deviceInfo"]["os"]}],
        }
        for r in results
    ]


TEST = "test_generate_llm_xnnpack+custom_fp32_pte_tokenizer_bin_iOS_17_2_1_iPhone15_4"


def xctest() -> str:
    tail = (
        "relative standard deviation: 2.5%, values: [1.0, 1.1], "
        'performanceMetricID:com.apple.dt.XCTMetric_Clock.time.monotonic, baselineName: ""'
    )
    case = f"Test Case '-[LLMTests {TEST}]'"
    measured = {
        "Tokens Per Second, t/s": "45.125",
        "Clock Monotonic Time, s": "1.050",
        "Memory Peak Physical, kB": "2048.000",
    }
    lines = [
        f"/src/DynamicTestCase.m:60: {case} measured [{metric}] average: {value}, {tail}"
        for metric, value in measured.items()
    ]
    return "\n".join([f"{case} started.", *lines, f"{case} passed (9.1 seconds).", ""])


def test_the_benchmark_of_android() -> None:
    report = the_report(json.dumps(android()))

    model = (report.model, report.backend, report.quantization)
    assert model == ("llama", "xnnpack+custom", "8da4w")
    assert (report.device, report.os) == ("samsung SM-S918B", "Android 15")
    (one,) = report.generations
    assert (one.load_ns, one.inference_ns) == (912_345_678, 4_321_500_000)
    assert report.decode_rate == 31.5  # generated over the time after the prompt
    assert report.overall_rate is None
    assert report.metrics["avg_inference_latency(ms)"] == 21.25
    assert report.token_counts is None

    report = the_report(json.dumps(android()[:4]))  # of a model that generates nothing
    assert report.generations == ()
    assert report.metrics["ram_pss_usage(mb)"] == 1024.5


def test_the_benchmark_of_ios() -> None:
    report = the_report(xctest())
    assert (report.model, report.backend, report.quantization) == ("llm", "xnnpack+custom", "fp32")
    assert (report.device, report.os) == ("iPhone 15.4", "iOS 17.2.1")
    (one,) = report.generations
    assert one.inference_ns == 1_050 * MS
    assert (report.decode_rate, report.overall_rate) == (None, 45.125)  # of the whole generation
    assert report.metrics["peak_generate_mem_usage(mb)"] == 2.0
    # It prints the runner's lines too.
    report = the_report(f"{line()}\n{xctest()}")
    assert report.generated_tokens == 54
    assert (report.device, report.metrics["token_per_sec"]) == ("iPhone 15.4", 45.125)


def test_the_benchmark_database() -> None:
    report = the_report(json.dumps(database("ANDROID_APP", android())))
    assert (report.model, report.device, report.os) == ("llama", "samsung", "Android 15")
    assert report.decode_rate == 31.5
    results = android()[-2:]
    for one in results:
        one["deviceInfo"] = {"device": "iPhone 15.4", "os": "iOS 17.2.1"}
    report = the_report(json.dumps(database("IOS_APP", results)))
    assert (report.decode_rate, report.overall_rate) == (None, 31.5)


def test_results_of_several_devices_are_several_reports(tmp_path: Path) -> None:
    others = android()
    for one in others:
        one["deviceInfo"] = {**one["deviceInfo"], "device": "google", "arch": "Pixel 9"}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(android() + others))
    reports = parse_app_reports(path.read_bytes())
    assert [report.device for report in reports] == ["samsung SM-S918B", "google Pixel 9"]
    with pytest.raises(UsageError, match=r"has the results of 2 runs.*Pixel 9"):
        read_app_report(path)


def test_the_json_of_the_callback_is_read_too() -> None:
    """`LlmCallback.onStats` of Android gets the JSON without the word before it."""
    assert the_report(json.dumps(stats())) == the_report(line())
    assert the_report(json.dumps([stats(), stats()])).token_counts == ((14, 54), (14, 54))


# -- Bad input.


def bad_inputs() -> Iterator[tuple[str, str, type[EtscopeError], str]]:
    yield "no line", "hello\nworld\n", MissingDataError, "no line PyTorchObserver"
    yield "empty", "", MissingDataError, "no line PyTorchObserver"
    yield "cut off", "a\nb\n" + line()[:-40], FormatError, "line 3: the JSON after PyTorchObserver"
    mixed = line().replace(',"model_load_end', 'I/other: hello\n,"model_load_end')
    yield "mixed", mixed, FormatError, "line 1: the JSON after PyTorchObserver is damaged"
    yield "negative", line(inference_end_ms=START), FormatError, "inference_end_ms is before"
    late = line(first_token_ms=START + 9999)
    yield "first token after the end", late, FormatError, "first_token_ms is after inference_end"
    early = line(prompt_eval_end_ms=START + 1)
    yield "prompt before the start", "x\n" + early, FormatError, "line 2: prompt_eval_end_ms is bef"
    yield "load", line(model_load_end_ms=START - 1), FormatError, "model_load_end_ms is before"
    yield "count", line(generated_tokens=-1), FormatError, "generated_tokens cannot be -1"
    yield "huge", line(generated_tokens=1 << 70), FormatError, "generated_tokens cannot be"
    yield "text", line(prompt_tokens="14"), FormatError, "prompt_tokens must be a whole number"
    yield "missing", line(inference_end_ms=None), FormatError, "inference_end_ms is missing"
    yield "no stamp", line(inference_end_ms=0), FormatError, "without inference_start_ms or"
    unit = line(SCALING_FACTOR_UNITS_PER_SECOND=7)
    yield "unit", unit, FormatError, "SCALING_FACTOR_UNITS_PER_SECOND cannot be 7"
    yield "no object", "PyTorchObserver {}", FormatError, "prompt_tokens is missing"
    yield "deep", 'PyTorchObserver {"a":' + "[" * 100_000, FormatError, "is damaged"
    digits = "PyTorchObserver {" + f'"prompt_tokens":{"9" * 5000}' + "}"
    yield "digits", digits, FormatError, "line 1"
    yield "status", json.dumps(android(32)), MissingDataError, "could not load the model .status 32"
    yield "nothing generated", json.dumps(android(rate=0)), MissingDataError, "generated no token"
    yield "no results", "[]", MissingDataError, "the benchmark has no results"
    yield "other JSON", '[{"a": 1}]', FormatError, "result 1: neither a BenchmarkMetric"
    yield "other value", json.dumps(android()).replace("21.25", '"x"'), FormatError, "actualValue"
    yield "cut JSON", json.dumps(android())[:-9], FormatError, "line 1: broken JSON"
    negative = json.dumps(android(rate=-1.0))
    yield "negative rate", negative, FormatError, "token_per_sec cannot be -1"
    failed = database("ANDROID_APP", android())[:1]
    failed[0]["metric"] = {"name": "FAILURE_REPORT", "benchmark_values": [0], "target_value": 0}
    failed[0]["benchmark"]["extra_info"]["job_conclusion"] = "FAILURE"
    yield "failed", json.dumps(failed), MissingDataError, "the job failed .FAILURE"
    average = xctest().replace("1.050", "soon")
    yield "average", average, FormatError, "line 3: 'soon' is not an average"


BAD = {name: rest for name, *rest in bad_inputs()}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told(name: str) -> None:
    data, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        parse_app_reports(data)


def test_whether_a_log_is_of_this_run() -> None:
    report = the_report(line())
    check_tokens(report, 14, 55)  # the first token is not counted
    check_tokens(report, 14, 54)  # by some runners it is
    check_tokens(report, None, None)
    with pytest.raises(MismatchError, match="14 prompt tokens, the run 13"):
        check_tokens(report, 13, None)
    with pytest.raises(MismatchError, match="54 generated tokens, the run 56"):
        check_tokens(report, 14, 54 + 2)
    with pytest.raises(FormatError, match="inference_ns of the app's report is below 0"):
        parse_app_report({"source": "x", "generations": [{"inference_ns": -1}]})


def test_mutated_logs_are_read_or_refused() -> None:
    """Never an error of Python's own, and never a time below 0."""
    random = np.random.default_rng(0)
    results = json.dumps(android()), json.dumps(database("A", android()))
    sources = [line(), in_logcat(WORDS), *results, xctest()]
    for source in sources:
        report = the_report(source)
        assert parse_app_report(json.loads(json.dumps(report.to_json()))) == report
    outcomes = set()
    for number in range(1200):
        data = bytearray(sources[number % len(sources)].encode())
        for _ in range(int(random.integers(1, 4))):
            place = int(random.integers(len(data)))
            if random.random() < 0.3:
                del data[place : place + int(random.integers(1, 30))]
            else:
                data[place] = int(random.choice(list(b'0123456789-{}[]",:eE. \nx\xff')))
        try:
            reports = parse_app_reports(bytes(data))
        except EtscopeError as error:
            outcomes.add(type(error).__name__)
            continue
        outcomes.add("read")
        for report in reports:
            assert parse_app_report(json.loads(json.dumps(report.to_json()))) == report
    assert {"read", "FormatError", "MissingDataError"} <= outcomes
