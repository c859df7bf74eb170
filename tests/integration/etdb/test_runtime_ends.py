"""Cores, programs that die, runners that go away, and those that are elsewhere: by commands."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from etscope.etdb import Session
from tests.support import sshd
from tests.support.artifacts import artifacts
from tests.support.etdb.ctrl_c import pressing
from tests.support.etdb.runtime_sessions import OPEN, begun, of_inputs, on_runtime, target_of
from tests.support.etdb.server import server, serving
from tests.support.etdb.sessions import refused, said, session, where
from tests.support.rogue_programs import aborting, endless

# -- cores


def test_a_core_is_what_ran_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etscope import Inspector

    monkeypatch.chdir(tmp_path)
    one = on_runtime("cnn_portable")
    assert "has not begun" in refused(one, "gcore run.etdp")
    value = said(one, "start", "until op:add", "set $ = $ * 2", "step", "print $")
    assert "debug buffer: run.bin" in said(one, "generate-core-file run.etdp")
    assert said(one, "print $") == value
    names = ["run.bin", "run.etdp", "run.inputs.npz", "run.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    kept = Path("run.bin").read_bytes()
    assert "is there already" in refused(one, "gcore run.etdp")
    assert "is there already" in refused(one, "gcore run.bin")
    assert "cannot write" in refused(one, f"gcore {tmp_path}/nowhere/x.etdp")
    assert Path("run.bin").read_bytes() == kept
    assert "convolution.out" in said(one, "top 3")
    said(one, "core run.etdp run.bin")
    assert "after 11 operators" in said(one, "run")
    assert said(one, "rs", "print $") == value
    inspector = Inspector(
        "run.etdp", etrecord=artifacts("cnn_portable").etrecord, debug_buffer_path="run.bin"
    )
    assert len(inspector.to_dataframe()) >= 11
    assert "only a run on the runtime" in refused(one, "gcore x.etdp")
    said(one, "target live")
    assert "only a run on the runtime" in refused(one, "gcore x.etdp")


def test_delegate_calls_have_times() -> None:
    one = on_runtime("cnn_xnnpack")

    def times() -> list[float | None]:
        rows = one.execute("info delegates").data[0]["rows"]
        return [row[name] for row in rows for name in row if name.startswith("time")]

    assert not any(times())
    said(one, "run")
    assert times() and all(times())


def test_what_takes_long_is_told_of_what_ran(tmp_path: Path) -> None:
    one = on_runtime("dynamic_shape")
    assert "nothing has run yet" in refused(one, "top")
    assert "sym_size" in said(one, "start", "top 1")
    core = tmp_path / "numbers.etdp", tmp_path / "numbers.bin"
    said(one, f"gcore {core[0]}")
    assert "addmm" in said(one, "run", "top 8")
    # A core of numbers alone is opened beside the record.
    assert "after 1 operator" in said(one, f"core {core[0]} {core[1]}", "run")


def test_a_run_is_ended_and_begun_again() -> None:
    with on_runtime("cnn_portable") as one:
        said(one, "start", "set $ = 0", "kill")
        assert "has not begun" in refused(one, "step")
        assert float(said(one, "start", "print $.max()").splitlines()[0]) > 0
        runner = target_of(one)._execution._runner
        assert runner is not None
        process = runner._connection.channel._process
    assert process.poll() is not None  # a session ends its runner
    assert "is active" in refused(session("cnn_portable"), "kill")


@pytest.mark.parametrize("options", ["", "--traced"])
def test_an_abort_leaves_a_core_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.chdir(tmp_path)
    program = aborting(tmp_path)
    np.savez(tmp_path / "in.npz", np.zeros(2, np.float32))
    one = begun(Session(program), f"--inputs in.npz {options}")
    for number in ("", "-2"):
        result = one.execute("run")
        name = f"etdb-core-{os.getpid()}{number}"
        assert result.exit_code == 5
        assert "native_call_add.out (instruction 0): the runtime aborted" in result.text
        assert f"core {name}.etdp {name}.bin" in result.text
        assert Path(f"{name}.etdp").stat().st_size and Path(f"{name}.bin").exists()
    assert "has not begun" in refused(one, "print $")
    said(one, f"core etdb-core-{os.getpid()}.etdp etdb-core-{os.getpid()}.bin")


# -- runners that go away, and runs that do not end


@pytest.mark.parametrize(
    ("look", "times"), [("delete", 1), ("watch nan", 1), ("break if $.mean() < -1", 40)]
)
def test_an_interrupt_stops_at_the_next_operator_whenever_it_comes(
    tmp_path: Path, look: str, times: int
) -> None:
    one = of_inputs(endless(tmp_path), np.ones(1 << 16, np.float32))
    said(one, "start", look)
    for number in range(times):
        with pressing(0.0007 * number if number else 0.3):
            text = said(one, "continue")
        assert text.startswith("interrupted\n")
        position, execution = one.debugger.position, target_of(one)._execution
        assert position is not None and target_of(one).position == position > 0
        assert execution._runner is not None and execution._runner._step == execution.step
    said(one, "delete", "step")
    assert one.debugger.position == position + 1


def test_a_server_elsewhere_is_walked_by_the_same_words() -> None:
    artifact = artifacts("cnn_portable")
    with serving(artifact.pte) as running:
        one = session("cnn_portable")
        OPEN.append(one)
        at = f"127.0.0.1:{running.port}"
        said(one, "set times off")
        assert at in said(one, f"target remote {at} --inputs {artifact.inputs_pt}")
        assert f", {at}" in said(one, "info target")
        said(one, "break op:softmax", "run", "print $")
        assert where(one) == "aten__softmax_default"
        other = Session(artifacts("nan_output").pte)
        inputs = artifacts("nan_output").inputs_pt
        assert "another program" in refused(other, f"target remote {at} --inputs {inputs}")
        assert other.debugger.target is None
        running.end(signal.SIGKILL)
    refused(one, f"target remote {at} --inputs {artifact.inputs_pt}")
    assert "is over" in said(one, "target recorded", "delete", "run")


def test_a_server_that_ssh_starts(tmp_path: Path) -> None:
    if (reason := sshd.missing()) is not None:
        pytest.skip(reason)
    with sshd.serving(tmp_path) as found:
        given = {**found.options, "server": server()}
        host = given.pop("host")
        options = "".join(f" --{name.replace('_', '-')} {value}" for name, value in given.items())
        one = session("cnn_portable")
        OPEN.append(one)
        assert f"ssh:{host}" in said(one, f"target ssh:{host}{options}")
        said(one, "break op:softmax", "run", "set $ = $ * 2")
        assert float(said(one, "print $.sum()")) == pytest.approx(2)
        found.stop()
        assert one.execute("start").exit_code == 5
        assert "is gone" in refused(one, "start") or "ssh" in refused(one, "start")
        assert "is over" in said(one, "target recorded", "delete", "run")
