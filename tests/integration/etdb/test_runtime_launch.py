"""How a runner is reached: here, at an address, over ssh; and how it ends."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import DeviceLost, MissingFileError, RuntimeFailure, UsageError
from etscope.etdb.protocol.launch import Launcher, Local, Remote, SshServer, remote_address
from etscope.etdb.protocol.messages import RunnerDied, StopReason
from etscope.etdb.protocol.runner import Runner
from tests.support import sshd
from tests.support.artifacts import artifacts
from tests.support.etdb.native_runs import artifact_run
from tests.support.etdb.server import SECONDS, server, state_of
from tests.support.rogue_programs import aborting
from tests.support.waiting import until

TOKEN = "a token of twenty chars"


@contextmanager
def listening(*arguments: str, token: str | None = None) -> Iterator[int]:
    """The port of a server on loopback."""
    environment = {key: value for key, value in os.environ.items() if key != "ETDB_TOKEN"}
    if token is not None:
        environment["ETDB_TOKEN"] = token
    process = subprocess.Popen(
        [str(server()), *arguments, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rpartition(b":")[2])
    finally:
        process.stdout.close()
        process.terminate()
        process.wait(SECONDS)


@pytest.fixture(scope="module")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    if (reason := sshd.missing()) is not None:
        pytest.skip(reason)
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as found:
        yield found


def _over_ssh(found: sshd.Sshd, **given: Any) -> SshServer:
    options = {key: value for key, value in found.options.items() if key != "host"}
    return SshServer(found.options["host"], options=options, **given)


def _runs(launcher: Launcher) -> None:
    with artifact_run("cnn_portable", launcher) as run:
        assert run.go().why == StopReason.END
        assert np.isfinite(run.results()[0]).all()


# -- here


@contextmanager
def _nothing_left() -> Iterator[None]:
    """No process and no descriptor more than before. What others have left there may end meanwhile:
    a worker runs many tests."""
    gc.collect()
    children, files = _children(), _open_files()
    yield
    assert (_children() - children, _open_files() - files) == (set(), set())


def _children() -> set[int]:
    """Processes of ours, those that ended and were not waited for, too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


def _open_files() -> set[tuple[str, str]]:
    """Number, and what it is of."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the folder's own
            found.add((file.name, os.readlink(file)))
    return found


def test_nothing_is_left_behind() -> None:
    program = artifacts("cnn_portable").pte
    Runner(Local(server(), program=program).connect()).close()
    with _nothing_left():
        for _ in range(10):
            children = _children()
            with Runner(Local(server(), program=program).connect()):
                assert len(_children() - children) == 1
            with pytest.raises(RuntimeFailure, match="cannot start"):
                Local(program).connect()  # not a binary
        channel = Local(server(), program=Path(os.devnull)).connect()
        with pytest.raises(DeviceLost):
            Runner(channel)


def test_files_that_are_not_there() -> None:
    for launcher in (
        Local(Path("/no/server")),
        Local(server(), program=Path("/no/program")),
        Local(server(), data=[Path("/no/data")]),
        Local(server(), libraries=[Path("/no/library")]),
    ):
        with pytest.raises(MissingFileError, match="not found: /no/"):
            launcher.connect()


def test_a_library_that_is_none_is_told() -> None:
    library = artifacts("cnn_portable").pte
    with (
        Runner(Local(server(), libraries=[library]).connect()) as runner,
        pytest.raises(RuntimeFailure, match=library.name),
    ):
        runner.load(library.read_bytes())


_PARENT = """
import os, sys
from pathlib import Path
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.runner import Runner
from tests.support.waiting import until
runner = Runner(Local(Path(sys.argv[1])).connect())
print("up", flush=True)
sys.stdin.read()
"""


def test_a_server_ends_with_the_one_that_started_it() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(server())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        child = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
        # A server that hears nothing, as in a long kernel: its parent's end ends it all the same.
        os.kill(child, signal.SIGSTOP)
        parent.kill()
    until(lambda: state_of(child) == "Z")


def test_a_server_that_another_thread_starts_outlives_the_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        runner = pool.submit(lambda: Runner(Local(server()).connect())).result()
    with runner, pytest.raises(UsageError, match="not now"):
        time.sleep(0.2)
        runner.begin()


def test_a_server_that_is_killed_in_a_request() -> None:
    with artifact_run("while_loop") as run:
        child = run.runner._connection.channel._process.pid
        assert os.getpgid(child) != os.getpgrp()  # Ctrl-C of the terminal is not for it
        os.kill(child, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (child, signal.SIGKILL)).start()
        with pytest.raises(DeviceLost, match="ended by SIGKILL") as lost:
            run.go()
        assert lost.value.exit_code == 5
        with pytest.raises(DeviceLost, match="ended by SIGKILL"):
            run.runner.describe(0)


# -- at an address


def test_addresses() -> None:
    assert remote_address("board.local:2345") == ("board.local", 2345)
    assert remote_address("[::1]:80") == ("::1", 80)
    for wrong in ("board", ":2345", "board:", "board:0", "board:65536", "board:x", ""):
        with pytest.raises(UsageError, match="not an address"):
            remote_address(wrong)
    assert Remote("::1", 80, "").place == "[::1]:80"
    assert "secret" not in repr(Remote("board", 80, "secret"))


def test_over_tcp_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(token=TOKEN) as port:
        monkeypatch.setenv("ETDB_TOKEN", TOKEN)
        _runs(Remote("127.0.0.1", port))
        for wrong in ("", TOKEN[:-1], TOKEN + "x"):
            with pytest.raises(UsageError, match=r"refuses the token[\s\S]*ETDB_TOKEN") as refused:
                _runs(Remote("127.0.0.1", port, wrong))
            assert refused.value.exit_code == 2
            assert TOKEN not in str(refused.value)


def test_nobody_at_the_address() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # so that nobody else listens there
        port = probe.getsockname()[1]
        with pytest.raises(DeviceLost, match=rf"no etdb-server answers at 127.0.0.1:{port}"):
            Remote("127.0.0.1", port, "").connect()
    with pytest.raises(DeviceLost, match=r"no etdb-server answers at board\.invalid:80"):
        Remote("board.invalid", 80, "").connect()
    if shutil.which("ssh") is not None:
        with pytest.raises(DeviceLost, match="out of reach"):
            SshServer("board.invalid").connect()


def test_two_at_once_do_not_see_each_other() -> None:
    with listening(str(artifacts("cnn_portable").pte)) as port:
        launcher = Remote("127.0.0.1", port, "")
        with (
            artifact_run("cnn_portable", launcher) as one,
            artifact_run("cnn_portable", launcher) as other,
        ):
            one.runner.go(one.at(5))
            assert other.runner.go(other.at(2)).step == 3
            assert one.runner.go(one.at(9)).step == 10


# -- over ssh


def test_over_ssh(ssh_server: sshd.Sshd, tmp_path: Path) -> None:
    with _nothing_left():
        _runs(_over_ssh(ssh_server, command=str(server())))
        with pytest.raises(DeviceLost, match=r"etdb-server: not found[\s\S]*on the PATH there"):
            Runner(_over_ssh(ssh_server).connect())
    with pytest.raises(UsageError, match="no etdb-server"):
        _over_ssh(ssh_server, push=tmp_path).connect()


def test_a_servers_install_is_pushed_once(ssh_server: sshd.Sshd, tmp_path: Path) -> None:
    install = tmp_path / "install"
    for part in ("bin", "lib"):
        (install / part).mkdir(parents=True)
    shutil.copy(server(), install / "bin/etdb-server")
    (install / "lib/libofours.so").write_bytes(b"a library")
    device = Path(ssh_server.options["folder"])
    written = set()
    for _ in range(2):
        _runs(_over_ssh(ssh_server, push=install))
        (there,) = device.glob("etdb-server-*")
        assert (there / "lib/libofours.so").read_bytes() == b"a library"
        written.add((there / "bin/etdb-server").stat().st_mtime_ns)
    assert len(written) == 1
    assert not list(device.glob("etscope-job-*"))  # where it was unpacked


# -- programs that end badly


@contextmanager
def _at_the_beginning(program: Path, instructions: int, *, traced: bool) -> Iterator[Runner]:
    with Runner(Local(server()).connect()) as runner:
        runner.load(program.read_bytes(), "", [[0]] * instructions)
        runner.set_inputs([np.ones(2 if instructions == 1 else 1 << 16, np.float32)])
        runner.begin(traced=traced)
        yield runner


@pytest.mark.parametrize("traced", [False, True])
def test_a_program_that_aborts_its_runner(tmp_path: Path, traced: bool) -> None:
    with (
        _nothing_left(),
        _at_the_beginning(aborting(tmp_path), 1, traced=traced) as runner,
    ):
        where = r"in instruction 0, step \d+: the runtime aborted"
        with pytest.raises(RunnerDied, match=where) as died:
            runner.go(np.zeros(1, bool))
        assert (died.value.instruction, died.value.exit_code) == (0, 5)
        assert "EValue is not a Tensor" in died.value.log
        assert (died.value.core is not None) == traced
        with pytest.raises(DeviceLost, match="killed its runner"):
            runner.begin()
