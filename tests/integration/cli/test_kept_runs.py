"""Runs that `etscope run` keeps, as a person meets them: no RUN is the last one."""

from __future__ import annotations

import base64
import json
import os
import shutil
import textwrap
import threading
from pathlib import Path

import pytest

from etscope.cli import main
from tests.support.artifacts import artifacts
from tests.support.backend_files import pmu_log
from tests.support.cli.fixtures import Run

pytest.importorskip("executorch")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, where runs are kept by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ETSCOPE_RUNS")
    return tmp_path


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kept run: times and values of a model on portable kernels."""
    folder, made = tmp_path_factory.mktemp("made"), artifacts("cnn_portable")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ETSCOPE_RUNS")
        words = ["run", str(made.pte), "-r", str(made.etrecord), "--iterations", "3"]
        assert main([*words, "--debug-level", "intermediate_outputs"]) == 0
    return folder


@pytest.fixture
def kept(made_once: Path, here: Path) -> Path:
    shutil.copytree(made_once / ".etscope", here / ".etscope")
    return here / ".etscope" / "runs" / f"001-{artifacts('cnn_portable').pte.stem}"


def test_a_command_without_run_takes_the_last_one(run: Run, kept: Path) -> None:
    for words, wanted in (
        ("inspect", "cnn.py:"),
        ("explain", "not-delegated"),
        ("numerics", "SQNR of forward"),
        ("inspect --roofline", "GFLOP/s"),
        ("graph", "cnn.py:"),
        ("info", "run.etdp"),
        ("info --size", "bytes by kind"),
        ("convert -o trace.json", ""),
        ("report -o report.html", ""),
        ("report --tensorboard logs", ""),
        ("runs show", "debug.bin"),
    ):
        code, out, err = run(*words.split())
        assert code == 0, (words, err)
        assert wanted in out, words
        assert f"run: .etscope/runs/{kept.name}\n" in err, words


def test_a_run_says_where_it_is_and_what_is_next(run: Run, here: Path) -> None:
    code, out, err = run("run", artifacts("int_outputs").pte, "--iterations", 2)
    assert (code, "What matters" in out) == (0, True)
    assert err == (
        "kept in .etscope/runs/001-program; next: etscope explain, etscope report, "
        "etscope inspect\n"
    )


def test_the_program_may_go(run: Run, kept: Path) -> None:
    """Program and record are copied, by name."""
    made = artifacts("cnn_portable")
    saved = json.loads((kept / "run.json").read_bytes())
    assert (saved["program"], saved["record"]) == (made.pte.name, made.etrecord.name)
    assert saved["copied"] == sorted([made.pte.name, made.etrecord.name])
    assert (kept / made.pte.name).read_bytes() == made.pte.read_bytes()


def test_the_list_and_what_is_removed(run: Run, kept: Path) -> None:
    run("run", artifacts("int_outputs").pte, "--iterations", 2)
    code, out, _ = run("runs", "--format", "json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [row["run"] for row in rows] == ["@0", "@1"]
    assert rows[1]["folder"] == kept.name
    assert rows[1]["backend"] == "portable"
    assert rows[1]["median"] > 0
    assert rows[1]["first_finding"]

    code, out, err = run("diff")  # the last two, in their order
    assert f"run: .etscope/runs/{kept.name} and " in err
    assert "do not belong" in err or code in (0, 3)

    assert run("runs", "remove", "@0")[0] == 0
    assert [path.name for path in kept.parent.glob("0*")] == [kept.name]
    code, _, err = run("inspect", "@1")
    assert (code, "has 1 run" in err) == (2, True)
    (kept / "run.json").write_text("{")
    (kept / "summary.json").unlink()
    code, out, _ = run("runs")
    assert (code, "cannot be read" in out) == (0, True)


def test_a_cap_that_is_reached_is_said(run: Run, kept: Path) -> None:
    assert run("runs", "cap", 1)[1] == ".etscope/runs keeps 1 run and 2.00 GiB\n"
    _, _, err = run("run", artifacts("int_outputs").pte, "--iterations", 2)
    assert f"removed {kept.name}: the limit is 1 run and 2.00 GiB" in err
    assert not kept.exists()


@pytest.mark.filterwarnings("always::etscope.errors.EtscopeWarning")
def test_nothing_is_kept_if_it_is_not_wanted_or_not_possible(run: Run, here: Path) -> None:
    program = artifacts("int_outputs").pte
    assert run("run", program, "--iterations", 2, "--no-save")[0] == 0
    assert run("run", program, "--iterations", 2, "--show", "latency")[0] == 0
    assert list(here.iterdir()) == []
    Path(".etscope").write_text("")  # as in a folder that cannot be written
    code, out, err = run("run", program, "--iterations", 2)
    assert (code, "Method::execute" in out) == (0, True)
    assert "warning: cannot keep the run in .etscope/runs" in err
    assert "--save DIR" in err


def test_files_of_a_phone_are_a_run(run: Run, here: Path) -> None:
    made = artifacts("cnn_portable")
    pulled = here / "pulled"
    pulled.mkdir()
    for source, name in ((made.etdump, "a.etdp"), (made.etrecord, "b.bin"), (made.pte, "c")):
        (pulled / name).write_bytes(source.read_bytes())
    code, _, err = run("runs", "import", pulled / "c", pulled / "a.etdp", pulled / "b.bin")
    assert code == 0, err
    assert "kept in .etscope/runs/001-" in err
    code, out, _ = run("explain")
    assert (code, "cnn.py:" in out) == (0, True)
    other = artifacts("int_outputs").pte
    code, _, err = run("runs", "import", made.etdump, other)
    assert (code, "do not belong together" in err) == (3, True)
    assert len(list((here / ".etscope" / "runs").glob("0*"))) == 1


def written(name: str, file: Path) -> str:
    """What ExecuTorch's Arm runner prints for a file, as a terminal of 80 columns wraps it."""
    text = base64.b64encode(file.read_bytes()).decode()
    lines = "\r\n".join(textwrap.wrap(text, 80))
    return f'# Writing {name} [base64]\r\necho "{lines}" | base64 -d >{name}\r\n'


def test_a_log_of_a_board_is_a_run(run: Run, here: Path) -> None:
    made = artifacts("cnn_portable")
    log = here / "uart.log"
    dump = written("etdump.bin", made.etdump)
    buffer = written("debug_buffer.bin", made.debug_buffer)
    boot = "I [executorch:arm_executor_runner.cpp:1011] planned memory\r\n"
    counters = pmu_log(counters=(3, 4, 5, 6, 7))
    memory = "I [executorch:x.cpp:1] method_allocator_used:     5120 / 62914560  free: 62909440\n"
    log.write_text(f"{boot}{counters}{memory}#[RUN THIS]\n{buffer}{dump}#[END]\n", "utf-8")

    code, _, err = run("info", log)
    assert (code, err) == (0, "")
    code, _, err = run("runs", "import", log, made.etrecord)
    assert code == 0, err
    (folder,) = (here / ".etscope/runs").glob("001-*")
    assert (folder / "run.etdp").read_bytes() == made.etdump.read_bytes()
    assert (folder / "debug.bin").read_bytes() == made.debug_buffer.read_bytes()
    code, out, _ = run("explain")
    assert (code, "cnn.py:" in out) == (0, True)
    code, out, _ = run("info", "-f", "json")
    rows = [
        (row["event"], row["value"])
        for report in json.loads(out)["reports"]
        if report["kind"] == "tool-file"
        for row in report["sections"]["rows"]
    ]
    assert ("method_allocator_used", 5120) in rows
    assert ("NPU_IDLE", 6) in rows

    log.write_text(f"{boot}{dump}", "utf-8")
    code, _, err = run("info", log)
    assert (code, "etscope runs import LOG takes it out" in err) == (3, True)
    code, _, err = run("runs", "import", log)
    assert code == 0, err
    assert not (here / ".etscope/runs/002-uart/device.log").exists()


def test_a_log_from_a_serial_port_that_stays_open(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = artifacts("cnn_portable")
    memory = "I [executorch:x.cpp:1] method_allocator_used:     5120 / 62914560  free: 62909440\n"
    text = f"boot\n{memory}#[RUN THIS]\n{written('etdump.bin', made.etdump)}#[END]\r\n"
    reading, writing = os.pipe()
    with open(reading) as port, open(writing, "wb") as board:
        sent = threading.Thread(target=lambda: (board.write(text.encode()), board.flush()))
        sent.start()
        monkeypatch.setattr("sys.stdin", port)
        code, _, err = run("runs", "import", "-", made.etrecord)
        assert code == 0, err
        sent.join()
    (folder,) = (here / ".etscope/runs").glob("001-*")
    assert (folder / "run.etdp").read_bytes() == made.etdump.read_bytes()
    assert "method_allocator_used" in (folder / "device.log").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--backend", "xnnpack"), "--backend is for an export"),
        (("-X", "taps=op:conv*"), "-X taps is for an export"),
    ],
)
def test_a_program_is_not_exported_again(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run("run", artifacts("int_outputs").pte, *words)
    assert (code, message in err) == (2, True)


def test_a_model_takes_no_options_of_a_program(run: Run) -> None:
    code, _, err = run("run", "model.py:Model", "--data", "weights.ptd")
    assert (code, "--data is for a PROGRAM" in err) == (2, True)
