"""What apps measured in a dataset: from logs and benchmark records beside dumps."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch")

from etscope.formats.app_report import read_app_report
from etscope_lab.fleet import Dataset, collect, query
from tests.support.artifacts import artifacts

COLUMNS = (
    "app_generations, app_prompt_tokens, app_generated_tokens, app_load_ns, app_first_token_ns, "
    "app_total_ns, app_prefill_tokens_per_s, app_decode_tokens_per_s"
)


@pytest.fixture(scope="module")
def ran() -> tuple[bytes, str]:
    """The dump and the log of a run of the app."""
    made = artifacts("app_runs")
    return made.extra("at_once.etdump").read_bytes(), made.extra("at_once.log").read_text()


def rows(dataset: Path, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    return list(query(Dataset.open(dataset), f"select {columns} from dumps order by path").rows())


@pytest.mark.parametrize("name", ["phone.log", "app.log"])
def test_a_log_beside_a_dump(ran: tuple[bytes, str], tmp_path: Path, name: str) -> None:
    (tmp_path / "runs").mkdir()
    dump = tmp_path / "runs" / "phone.etdump"
    dump.write_bytes(ran[0])
    dump.with_name(name).write_text(ran[1])
    done = collect([tmp_path / "runs"], tmp_path / "ds")
    report = read_app_report(dump.with_name(name))

    assert (done.taken, done.bad) == (1, ())
    (found,) = rows(tmp_path / "ds")
    assert found[:3] == (1, 14, 12)
    assert found[4:6] == (report.first_token_ns, report.inference_ns)
    assert found[6:] == pytest.approx((report.prefill_rate, report.decode_rate))
    assert found[5] > rows(tmp_path / "ds", "execute_ns")[0][0] > 0


def test_a_log_of_another_program_is_refused(ran: tuple[bytes, str], tmp_path: Path) -> None:
    """A language model's log beside the dump of a linear layer."""
    shutil.copy(artifacts("batched_linear").etdump, tmp_path / "small.etdump")
    (tmp_path / "small.log").write_text(ran[1])
    done = collect([tmp_path], tmp_path / "ds")
    (bad,) = done.bad
    assert "the app's log is of another run" in str(bad)


def test_a_run_of_etscope_generate_knows_its_calls(ran: tuple[bytes, str], tmp_path: Path) -> None:
    """Three generations in one dump, and an app that reports one with the same prompt."""
    from etscope.run import generate

    program = artifacts("app_runs").extra("decoder.pte")
    options: dict[str, Any] = {"max_new_tokens": 5, "profiled_iterations": 3, "iterations": 1}
    with generate(program, tokens=[3, 1, 4], **options) as done:
        done.save(tmp_path / "ran")
    log = ran[1].replace('"prompt_tokens":14', '"prompt_tokens":3')
    log = log.replace('"generated_tokens":12', '"generated_tokens":4')
    # The recorded log is as slow as the machine that made it; this one is faster than any run.
    begin = int(re.findall(r'"inference_start_ms":(\d+)', log)[0])
    log = re.sub(
        r'"(prompt_eval_end|first_token|inference_end)_ms":\d+', rf'"\1_ms":{begin + 1}', log
    )
    log = re.sub(r'"(aggregate_\w+_ms)":\d+', r'"\1":0', log)
    (tmp_path / "ran" / "app.log").write_text(log)
    done_collecting = collect([tmp_path / "ran"], tmp_path / "ds")
    assert (done_collecting.taken, done_collecting.bad) == (1, ())
    assert rows(tmp_path / "ds", "app_generated_tokens, executions") == [(4, 15)]


def test_a_benchmark_names_the_device_and_the_model(ran: tuple[bytes, str], tmp_path: Path) -> None:
    (tmp_path / "result.etdump").write_bytes(ran[0])
    results = [
        {
            "benchmark": {"name": "ExecuTorch", "extra_info": {}},
            "model": {"name": "llama", "backend": "xnnpack"},
            "metric": {"name": name, "benchmark_values": [value]},
            "runners": [{"name": "samsung SM-S918B", "type": "Android 15"}],
        }
        for name, value in (("generate_time(ms)", 1200.0), ("token_per_sec", 12.5))
    ]
    (tmp_path / "benchmark_results.json").write_text(json.dumps(results))
    collect([tmp_path / "result.etdump"], tmp_path / "ds")

    assert rows(tmp_path / "ds", "device, model, app_total_ns, app_decode_tokens_per_s") == [
        ("samsung SM-S918B", "llama", 1.2e9, 12.5)
    ]


def test_a_damaged_log_is_told(ran: tuple[bytes, str], tmp_path: Path) -> None:
    (tmp_path / "phone.etdump").write_bytes(ran[0])
    log = tmp_path / "phone.log"
    log.write_text(ran[1][:-60])
    done = collect([tmp_path / "phone.etdump"], tmp_path / "ds")
    assert done.taken == 0
    assert "the JSON after PyTorchObserver is damaged" in done.bad[0].error

    log.write_text("no such line\n")  # another program's log
    assert collect([tmp_path / "phone.etdump"], tmp_path / "ds").taken == 1
    assert set(rows(tmp_path / "ds")[0]) == {None}
