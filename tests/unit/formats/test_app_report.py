"""Logs of apps and the benchmark database, in the shapes that ExecuTorch's sources write them in.

The lines are those of `extension/llm/runner/stats.h` (of today, of 2025 and of 2024), the JSON that
of `transform()` in `.github/scripts/extract_benchmark_results.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from etscope.analysis.info import file_info
from etscope.errors import EtscopeError, FormatError, MismatchError, MissingDataError, UsageError
from etscope.formats.app_report import (
    AppReport,
    check_runtime,
    check_tokens,
    read_app_report,
    read_benchmark_runs,
)
from etscope.formats.identify import identify

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


class Reader(Protocol):
    def __call__(self, data: bytes | str) -> AppReport: ...


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    def written_and_read(data: bytes | str) -> AppReport:
        path = tmp_path / "app.log"
        path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
        return read_app_report(path)

    return written_and_read


def test_times_are_those_between_the_stamps(read: Reader) -> None:
    report = read(f"I 00:00:00.001 executorch:main.cpp:81] hello\n{line()}\n")
    (one,) = report.generations
    assert (one.prompt_tokens, one.generated_tokens) == (14, 54)
    assert one.load_ns == 2277 * MS
    assert one.inference_ns == 1189 * MS
    assert one.prefill_ns == one.first_token_ns == 164 * MS
    assert one.decode_ns == 1025 * MS
    assert report.prefill_rate == pytest.approx(85.3659, abs=1e-4)  # as the runner computes it
    assert report.decode_rate == pytest.approx(52.6829, abs=1e-4)
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
def test_the_line_is_found_in_every_kind_of_log(read: Reader, name: str, end: str) -> None:
    text = LOGCAT[name].format("--------- beginning of main")
    text += "\n" + LOGCAT[name].format("PyTorchObserver is a word here") + "\n"
    text += LOGCAT[name].format(line()) + "\n" + LOGCAT[name].format("bye") + "\n"
    assert read(text.replace("\n", end)) == read(line())


def test_powershell_writes_utf_16(read: Reader) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le"):
        data = f"Grüße\n{line()}\n".encode(encoding)
        data = b"\xff\xfe" + data if encoding == "utf-16-le" else data
        assert read(data).generated_tokens == 54


def test_bytes_that_are_no_text_are_passed_over(read: Reader) -> None:
    assert read(b"\x00\xff\xfe\x80" * 3000 + b"\n" + line().encode()).generated_tokens == 54


def test_what_is_not_known(read: Reader) -> None:
    # A runner that loaded before, as the multimodal one: both stamps are 0.
    report = read(line(model_load_start_ms=0, model_load_end_ms=0, **OLD))
    assert report.load_ns is None
    assert report.generations[0].inference_ns == 1189 * MS


def test_each_line_is_a_generation_and_rates_are_of_all(read: Reader) -> None:
    second = line(**LATER, prompt_tokens=6, generated_tokens=20, **OLD)
    report = read(f"{line(**OLD)}\nother\n{second}\n")
    assert [one.generated_tokens for one in report.generations] == [54, 20]
    assert report.prefill_rate == pytest.approx(20 / 0.264)
    assert report.decode_rate == pytest.approx(74 / 2.025)
    assert report.first_token_ns == 132 * MS


# -- The benchmark database.

ANDROID = {"name": "samsung", "type": "Android 15"}
METRICS = {
    "avg_inference_latency(ms)": 21.25,
    "model_load_time(ms)": 800.0,
    "load_status": 0.0,
    "llm_model_load_time(ms)": 912.345678,
    "generate_time(ms)": 4321.5,
    "token_per_sec": 31.5,
}


def database(runner: dict[str, str] = ANDROID, **changes: float) -> list[dict[str, Any]]:
    """`transform()` of extract_benchmark_results.py."""
    return [
        {
            "benchmark": {
                "name": "ExecuTorch",
                "mode": "inference",
                "extra_info": {"app_type": "ANDROID_APP", "job_conclusion": "SUCCESS"},
            },
            "model": {"name": "llama", "type": "OSS model", "backend": "xnnpack+custom"},
            "metric": {
                "name": name,
                "benchmark_values": [value],
                "target_value": 0.0,
                "extra_info": {"method": ""},
            },
            "runners": [runner],
        }
        for name, value in {**METRICS, **changes}.items()
    ]


def test_the_benchmark_database(read: Reader) -> None:
    report = read(json.dumps(database()))
    assert (report.model, report.backend) == ("llama", "xnnpack+custom")
    assert (report.device, report.os) == ("samsung", "Android 15")
    (one,) = report.generations
    assert (one.load_ns, one.inference_ns) == (912_345_678, 4_321_500_000)
    assert report.decode_rate == 31.5  # of the time after the prompt
    assert report.metrics == METRICS

    report = read(json.dumps(database({"name": "iPhone 15.4", "type": "iOS 17.2.1"})))
    assert (report.device, report.decode_rate) == ("iPhone 15.4", None)  # of the whole generation

    report = read(json.dumps(database()[:3]))  # of a model that generates nothing
    assert report.generations == ()
    assert report.metrics["avg_inference_latency(ms)"] == 21.25


def test_what_the_android_app_itself_writes(read: Reader) -> None:
    metrics = {"avg_inference_latency(ms)": 2.5, "model_load_time(ms)": 7.0, "load_status": 0.0}
    model = {"name": "mv3", "backend": "xnnpack", "quantization": "q8"}
    device = {"device": "google", "arch": "Pixel 8", "os": "Android 14", "totalMem": 0}
    results = [
        {"benchmarkModel": model, "metric": name, "actualValue": value, "deviceInfo": device}
        for name, value in metrics.items()
    ]
    found = read(json.dumps(results))
    assert (found.model, found.backend, found.device) == ("mv3", "xnnpack", "Pixel 8")
    assert found.metrics == metrics
    results[2]["actualValue"] = 32.0
    with pytest.raises(MissingDataError, match="could not load the model"):
        read(json.dumps(results))


def test_results_of_several_devices_are_refused(read: Reader) -> None:
    others = database({"name": "Pixel 9", "type": "Android 15"})
    with pytest.raises(UsageError, match=r"of 2 runs: .*samsung, .*Pixel 9"):
        read(json.dumps(database() + others))


# -- Bad input.


def bad_inputs() -> Iterator[tuple[str, str, type[EtscopeError], str]]:
    yield "no line", "hello\nworld\n", MissingDataError, "not have a line PyTorchObserver"
    yield "empty", "", MissingDataError, "not have a line PyTorchObserver"
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
    yield (
        "huge",
        line(generated_tokens=1 << 70),
        FormatError,
        "generated_tokens must be a whole number",
    )
    yield "text", line(prompt_tokens="14"), FormatError, "prompt_tokens must be a whole number"
    yield "missing", line(inference_end_ms=None), FormatError, "inference_end_ms is missing"
    yield "no stamp", line(inference_end_ms=0), FormatError, "without inference_start_ms or"
    unit = line(SCALING_FACTOR_UNITS_PER_SECOND=7)
    yield "unit", unit, FormatError, "SCALING_FACTOR_UNITS_PER_SECOND cannot be 7"
    yield "no object", "PyTorchObserver {}", FormatError, "prompt_tokens is missing"
    yield "deep", 'PyTorchObserver {"a":' + "[" * 100_000, FormatError, "is damaged"
    digits = "PyTorchObserver {" + f'"prompt_tokens":{"9" * 5000}' + "}"
    yield "digits", digits, FormatError, "line 1"
    unloaded = json.dumps(database(load_status=32))
    yield "status", unloaded, MissingDataError, "could not load the model .status 32"
    nothing = json.dumps(database(token_per_sec=0))
    yield "nothing generated", nothing, MissingDataError, "did not generate tokens"
    yield "no results", "[]", MissingDataError, "the benchmark does not have results"
    yield "other JSON", '[{"a": 1}]', FormatError, "result 1: is not a result of the benchmark"
    other = json.dumps(database()).replace("21.25", '"x"')
    yield "other value", other, FormatError, "benchmark_values"
    yield "cut JSON", json.dumps(database())[:-9], FormatError, "line 1: broken JSON"
    negative = json.dumps(database(token_per_sec=-1.0))
    yield "negative rate", negative, FormatError, "token_per_sec cannot be -1"
    failed = database()[:1]
    failed[0]["metric"] = {"name": "FAILURE_REPORT", "benchmark_values": [0], "target_value": 0}
    failed[0]["benchmark"]["extra_info"]["job_conclusion"] = "FAILURE"
    yield "failed", json.dumps(failed), MissingDataError, "the job failed .FAILURE"


BAD = {name: rest for name, *rest in bad_inputs()}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told(read: Reader, name: str) -> None:
    data, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        read(data)


def test_whether_a_log_is_of_this_run(read: Reader) -> None:
    report = read(line())
    check_tokens(report, 14, 55)  # the first token is not counted
    check_tokens(report, 14, 54)  # by some runners it is
    check_tokens(report, None, None)
    with pytest.raises(MismatchError, match="14 prompt tokens, the run has 13"):
        check_tokens(report, 13, None)
    with pytest.raises(MismatchError, match="54 generated tokens, the run has 56"):
        check_tokens(report, 14, 54 + 2)


def test_whether_a_log_is_of_what_the_runtime_ran(read: Reader) -> None:
    """Two loads of a model are two runs; and a program that took 1 ms did not generate for 1 s."""
    check_runtime(read(line() + line(**LATER)), 800 * MS)
    check_runtime(read(line()), None)
    with pytest.raises(MismatchError, match="2 loads of a model"):
        check_runtime(read(line() + line(model_load_start_ms=START + 1)), 800 * MS)
    with pytest.raises(MismatchError, match=r"generations take 1,189 ms, .* the dump 1\.0 ms"):
        check_runtime(read(line()), MS)


def test_a_log_in_place_of_a_dump_is_named() -> None:
    with pytest.raises(FormatError, match="the log of an app that ran a language model"):
        identify(f"=== rep 1 ===\n{line()}".encode())


def test_the_summary_of_a_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text(line(aggregate_sampling_time_ms=300, generated_tokens=40))
    report = file_info(path)
    (section,) = report.sections
    (cells,) = section.table.rows()
    row = dict(zip(section.table.names, cells, strict=True))
    assert report.about["kind"] == "app-log"
    assert row["generated_tokens"] == 40 and row["sampling"] == 300
    assert row["decode_rate"] == pytest.approx(40 / row["decode"] * 1e3)
    notes = " ".join(section.table.notes)
    assert "Choosing tokens takes" in notes and "loads of a model" not in notes
    path.write_text(
        line(generated_tokens=0) + line(model_load_start_ms=START + 1, generated_tokens=0)
    )
    (section,) = file_info(path).sections
    notes = " ".join(section.table.notes)
    assert "2 loads of a model" in notes and "no decode to time" in notes
    assert "Choosing tokens" not in notes


PRINTED = """\
I 00:00:03.501 executorch:stats.h:175] \tPrompt Tokens: 14    Generated Tokens: 54
I 00:00:03.501 executorch:stats.h:181] \tModel Load Time:\t\t2.277000 (seconds)
I 00:00:03.501 executorch:stats.h:188] \tTotal inference time:\t\t1.189000 (seconds)\t\t Rate: \t45.41 (tokens/second)
I 00:00:03.501 executorch:stats.h:198] \t\tPrompt evaluation:\t0.164000 (seconds)\t\t Rate: \t85.36 (tokens/second)
I 00:00:03.501 executorch:stats.h:209] \t\tGenerated 54 tokens:\t1.025000 (seconds)\t\t Rate: \t52.68 (tokens/second)
I 00:00:03.501 executorch:stats.h:219] \tTime to first generated token:\t0.164000 (seconds)
I 00:00:03.501 executorch:stats.h:226] \tSampling time over 68 tokens:\t0.019000 (seconds)
"""  # noqa: E501


def test_the_report_in_words_says_the_same(read: Reader, tmp_path: Path) -> None:
    """In logcat it is alone, as the line goes to standard output."""
    (told,) = read(line()).generations
    (found,) = read(f"RSS after loading model: 12.5 MiB\n=== mine rep1 ===\n{PRINTED}").generations
    assert found.heading == "mine rep1"
    for name in (*FIELDS, "decode_ns"):
        assert getattr(found, name) == getattr(told, name), name
    assert read(PRINTED).decode_rate == pytest.approx(54 / 1.025)
    assert len(read(PRINTED + PRINTED).generations) == 2
    assert read(line() + "\n" + PRINTED).generations == (told,)  # once, not twice
    assert file_info(tmp_path / "app.log").about["kind"] == "app-log"
    (found,) = read(PRINTED.replace("2.277000", "-1795674120.053000")).generations
    assert found.load_ns is None  # its stamps were not taken
    with pytest.raises(FormatError, match="line 2: the report does not have a total inference"):
        read("boot\n" + PRINTED[:200])


FIELDS = (
    *("prompt_tokens", "generated_tokens", "load_ns"),
    *("inference_ns", "prefill_ns", "first_token_ns", "sampling_ns"),
)


def test_models_and_memory_in_a_log_are_told_apart(tmp_path: Path) -> None:
    """Headings of a script, and the runner's lines around PyTorchObserver's."""
    path = tmp_path / "bench.log"
    lines = [
        "=== 1B rep1 ===",
        "I runner.cpp:180] RSS after loading model: 1223.5 MiB (0 if unsupported)",
        "I text_prefiller.cpp:53] Prefill token result numel(): 128256",
        "I runner.cpp:249] RSS after prompt prefill: 0.000000 MiB (0 if unsupported)",
        line(aggregate_sampling_time_ms=900, gpu_total_bytes=1 << 33, gpu_peak_usage_mb=12.5),
        "=== 1B rep2 ===",
        line(model_load_start_ms=START + 1),
        "=== 8B rep1 ===",
        line(model_load_start_ms=START + 2, generated_tokens=0, decode_token_per_sec=0),
    ]
    path.write_bytes("\n".join(lines).encode("utf-16"))  # as PowerShell's `> file`
    generations, memory = file_info(path).sections
    values = generations.table.values
    assert list(values["heading"]) == ["1B rep1", "1B rep2", "8B rep1"]
    assert list(values["model_load"]) == [1, 2, 3]
    assert list(memory.table.rows()) == [
        (1, "process after loading model", int(1223.5 * (1 << 20))),
        (1, "GPU at its peak", int(12.5 * (1 << 20))),
    ]
    notes = " ".join(generations.table.notes)
    assert "3 loads, and headings of 2 models (1B, 8B)" in notes
    assert "decode_token_per_sec is not a rate" in notes
    assert "a vocabulary of 128,256 tokens" in notes


def test_a_rate_that_the_times_contradict_is_told(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text(line(prefill_token_per_sec=1e6, decode_token_per_sec=None))
    (section,) = file_info(path).sections
    assert "prefill_token_per_sec is 1e+06" in " ".join(section.table.notes)


def test_mutated_logs_are_read_or_refused(read: Reader) -> None:
    """Never an error of Python's own, and never a time below 0."""
    random = np.random.default_rng(0)
    sources = [line(), json.dumps(database())]
    outcomes = set()
    for number in range(600):
        data = bytearray(sources[number % len(sources)].encode())
        for _ in range(int(random.integers(1, 4))):
            place = int(random.integers(len(data)))
            if random.random() < 0.3:
                del data[place : place + int(random.integers(1, 30))]
            else:
                data[place] = int(random.choice(list(b'0123456789-{}[]",:eE. \nx\xff')))
        try:
            report = read(bytes(data))
        except EtscopeError as error:
            outcomes.add(type(error).__name__)
            continue
        outcomes.add("read")
        for one in report.generations:
            assert min(filter(None, (one.load_ns, one.inference_ns, one.decode_ns)), default=0) >= 0
    assert {"read", "FormatError", "MissingDataError"} <= outcomes


def test_runs_of_the_database_with_failed_ones(tmp_path: Path) -> None:
    one, failed = database(), database(token_per_sec=1.0)[:1]
    failed[0]["metric"] = {"name": "FAILURE_REPORT", "benchmark_values": 0, "target_value": 0}
    failed[0]["benchmark"]["extra_info"] = {"job_conclusion": "FAILED"}
    path = tmp_path / "records.json"
    path.write_text(json.dumps([*one, *failed]))
    measured, broken = read_benchmark_runs(path)
    assert (measured.report.model, measured.failure) == ("llama", "")
    assert measured.metrics["token_per_sec"] == 31.5
    assert (broken.metrics, broken.failure) == ({}, "FAILED")
    again = read_benchmark_runs("\n".join(map(json.dumps, [*one, *failed])).encode())
    assert [run.sha256 for run in again] == [measured.sha256, broken.sha256]
    with pytest.raises(FormatError, match="record 1: is not a result of the benchmark database"):
        read_benchmark_runs(b'{"a": 1}')
