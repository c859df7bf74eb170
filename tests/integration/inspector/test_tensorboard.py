"""`Inspector.write_tensorboard_artifact` and `etscope report --tensorboard`, on real runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import etscope
from etscope.cli import main
from tests.support.artifacts import Artifact, artifacts

pytest.importorskip("tensorboard")


def runs_of(logdir: Path) -> set[str]:
    """The runs as TensorBoard finds them, which have one event file each."""
    files = list(logdir.rglob("*tfevents*"))
    assert len({file.parent for file in files}) == len(files)
    return {str(file.parent.relative_to(logdir)) for file in files}


def tags_of(logdir: Path, run: str) -> set[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loaded = EventAccumulator(str(logdir / run)).Reload()
    tags: Any = loaded.Tags()
    return {*tags["run_metadata"], *tags["tensors"]}


def arguments(made: Artifact, *more: str) -> list[str]:
    assert made.etrecord is not None
    return ["report", str(made.etrecord), *more]


def test_of_an_inspector(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    assert made.etdump_timing is not None
    inspector = etscope.Inspector(
        etdump_path=made.etdump_timing, etrecord=str(made.etrecord), program=made.pte
    )
    logdir = tmp_path / "log"
    runs = inspector.write_tensorboard_artifact(logdir)
    assert set(runs) == runs_of(logdir)
    assert set(runs) == {"exported/forward", "edge/forward", "executed/forward", "tables"}
    tags = tags_of(logdir, "executed/forward")
    for statistic in ("avg", "p50", "p90", "min", "max", "first run"):
        assert f"time {statistic}" in tags
    tables = tags_of(logdir, "tables")
    for name in ("run summary", "operators", "modules", "delegates", "kinds of instruction"):
        assert [tag for tag in tables if tag.endswith(name)], name


def test_errors_are_on_the_graphs_where_values_and_inputs_are_known(tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    made = artifacts("cnn_portable")
    files = [str(made.etdump), "-b", str(made.debug_buffer), "--inputs", str(made.inputs_pt)]
    code = main([*arguments(made, *files), "--tensorboard", str(tmp_path)])
    assert code == 0
    for run in ("exported/forward", "edge/forward"):
        tags = tags_of(tmp_path, run)
        assert "local error [1 µs shown = 1 dB over -200 dB]" in tags
        assert "error to the reference [1 µs shown = 1 dB over -200 dB]" in tags


@pytest.mark.filterwarnings("default::etscope.errors.EtscopeWarning")
def test_without_inputs_all_else_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("executorch")
    made = artifacts("two_methods")
    assert made.pte is not None
    run = ["run", str(made.pte), "-r", str(made.etrecord), "--method", "encode", "-X", "seed=7"]
    run += ["--debug-level", "intermediate_outputs"]
    assert main([*run, "--save", str(tmp_path / "ran")]) == 0
    facts = json.loads((tmp_path / "ran" / "run.json").read_text())
    (tmp_path / "ran" / "run.json").write_text(json.dumps({**facts, "inputs": None}))
    files = [str(tmp_path / "ran" / "run.etdp"), "-b", str(tmp_path / "ran" / "debug.bin")]
    logdir = tmp_path / "log"
    files += ["-p", str(made.pte), "--tensorboard", str(logdir)]
    capsys.readouterr()
    assert main(arguments(made, *files)) == 0
    assert runs_of(logdir) == {
        "edge/encode", "edge/decode", "executed/encode", "executed/decode", "tables",
    }  # fmt: skip
    assert "no numeric errors on the graphs of encode" in capsys.readouterr().err


def test_of_a_record_or_a_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = artifacts("cond")
    assert main(arguments(made, "--tensorboard", "runs")) == 0
    assert capsys.readouterr().out == "tensorboard --logdir runs\n"
    assert runs_of(tmp_path / "runs") == {"exported/forward", "edge/forward"}
    assert main(["report", str(made.pte), "--tensorboard", "it's here"]) == 0
    assert capsys.readouterr().out == "tensorboard --logdir 'it'\"'\"'s here'\n"
    assert runs_of(tmp_path / "it's here") == {"executed/forward"}
    bundled = artifacts("bundled")
    assert main(["report", str(bundled.bpte), "--tensorboard", "bundle"]) == 0
    assert runs_of(tmp_path / "bundle") == {"executed/forward"}


def test_files_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, other = artifacts("cond"), artifacts("two_methods")
    logdir = ["--tensorboard", str(tmp_path / "log")]
    assert main([*arguments(made, str(other.etdump_timing)), *logdir]) == 3
    assert main([*arguments(made, "-X", "numerics=true"), *logdir]) == 4
    assert main([*arguments(made, str(other.etrecord)), *logdir]) == 2
    bad = tmp_path / "bad"
    bad.write_bytes(b"no record")
    assert main(["report", str(bad), *logdir]) == 3
    assert main(["report", str(made.etdump_timing), *logdir]) == 2
    (tmp_path / "file").write_text("")
    assert main([*arguments(made), "--tensorboard", str(tmp_path / "file" / "below")]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_launch_serves_on_loopback_until_it_is_ended(tmp_path: Path, number: int) -> None:
    made = artifacts("cond")
    command = [
        sys.executable,
        "-m",
        "etscope",
        *arguments(made),
        "--tensorboard",
        str(tmp_path / "l"),
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    # A shell in the background would have its children ignore interrupts.
    process = subprocess.Popen(
        [*command, "--serve", "-X", "port=0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    address = None
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                address = found.group()
                break
        assert address is not None
        with urllib.request.urlopen(f"{address}/data/environment", timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(number)
        process.wait(60)
        with pytest.raises(OSError, match=r"."):
            urllib.request.urlopen(address, timeout=5)
    finally:
        process.kill()
        process.wait()
