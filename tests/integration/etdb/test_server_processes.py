"""etdb-server: a process for each connection, and how they end; its command line."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etdb import server as s
from tests.support.waiting import until


@pytest.fixture
def running() -> Iterator[s.Server]:
    with s.serving() as one:
        yield one


def test_connections_have_processes_that_end_with_them(running: s.Server) -> None:
    with running.greeted() as first, running.greeted() as second:
        assert len(running.children()) == 2
        # It has no threads that a fork would lose.
        assert len(os.listdir(f"/proc/{running.process.pid}/task")) == 1
        first.ask(s.BYE)
        until(lambda: len(running.children()) == 1)
        second.ask(s.INTERRUPT)
    until(lambda: not running.children())
    with running.greeted() as third:
        third.ask(s.BYE)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_connection_that_dies_dies_alone(how: signal.Signals, running: s.Server) -> None:
    with contextlib.ExitStack() as stack:
        wire = stack.enter_context(running.greeted())
        (first,) = running.children()
        other = stack.enter_context(running.greeted())
        s.kill(first, how)
        if how == signal.SIGSEGV:
            kind, number, body = wire.receive()
            assert (kind, number) == (s.DIED, 0)
            assert body.startswith(s.text("SIGSEGV"))
        assert wire.is_closed()
        until(lambda: first not in running.children())
        other.ask(s.BYE)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_it_and_its_connections(how: signal.Signals) -> None:
    def heard() -> None:
        if how != signal.SIGKILL:
            signal.signal(how, signal.SIG_DFL)  # under nohup, SIGHUP would be ignored

    with s.serving(preexec_fn=heard) as one, one.greeted() as wire:
        (child,) = one.children()
        assert one.end(how) == (-how if how == signal.SIGKILL else 0)
        assert wire.is_closed()
        # Its socket is closed a moment before it has ended.
        until(lambda: s.state_of(child) == "Z")


def test_an_ignored_signal_ends_it_too() -> None:
    """A shell's background processes begin with SIGINT ignored."""
    with s.serving(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) as one:
        assert one.end(signal.SIGINT) == 0


def test_a_server_under_nohup_outlives_its_terminal() -> None:
    with (
        s.serving(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as one,
        one.greeted() as wire,
    ):
        for process in (*one.children(), one.process.pid):
            os.kill(process, signal.SIGHUP)
        wire.ask(s.INTERRUPT)
        with one.greeted() as other:
            other.ask(s.BYE)


def test_clients_that_stand_still_are_hung_up_on() -> None:
    with (
        s.serving("--patience", 3) as one,
        one.open() as silent,
        one.open() as slow,
        one.greeted() as middle,
        one.greeted() as thinking,
    ):
        slow.socket.sendall(s.frame(s.HELLO, s.hello())[:10])
        middle.socket.sendall(s.frame(s.BYE)[:5])
        told = "no greeting", "no greeting", "in the middle"
        for wire, say in zip((silent, slow, middle), told, strict=True):
            kind, _, body = wire.receive()
            assert kind == s.ERROR
            assert say in s.refusal(body).message
            assert wire.is_closed()
        thinking.ask(s.INTERRUPT)  # between requests it may take as long as it likes


def test_a_client_that_does_not_read_is_let_go() -> None:
    with s.serving("--patience", 1) as one, one.open() as wire:
        wire.socket.sendall(s.frame(s.HELLO, s.hello()))
        with pytest.raises(ConnectionError):  # not a timeout: it hangs up
            for _ in range(1000):
                wire.socket.sendall(s.frame(s.FETCH, bytes(17)) * 1000)
        until(lambda: not one.children())


def test_a_crowd_is_turned_away_with_a_word(running: s.Server) -> None:
    crowd = [socket.create_connection(("127.0.0.1", running.port), s.SECONDS) for _ in range(65)]
    try:
        last = s.Wire(crowd[-1])
        kind, _, body = last.receive()
        assert (kind, s.refusal(body).code) == (s.ERROR, s.LIMIT)
        assert last.is_closed()
    finally:
        for connection in crowd:
            connection.close()
    until(lambda: not running.children())
    with running.greeted() as wire:
        wire.ask(s.BYE)


# -- one connection


def test_a_socket_that_it_is_handed() -> None:
    with s.serving_one() as (wire, process):
        wire.ask(s.HELLO, s.hello())
        wire.ask(s.BYE)
        assert process.wait(s.SECONDS) == 0


def test_standard_input_and_output() -> None:
    line = [str(s.server()), "--stdio"]
    data = s.frame(s.HELLO, s.hello(), 3) + s.frame(s.BYE, b"", 4)
    done = subprocess.run(line, input=data, stdout=subprocess.PIPE, check=True, timeout=s.SECONDS)
    assert done.stdout[4:12] == b"\x01\x80\0\0\x03\0\0\0"
    assert done.stdout.endswith(s.frame(s.BYE | s.ANSWER, b"", 4))
    assert run("--stdio", stdin=subprocess.DEVNULL).returncode == 0  # it ends when its input does


# -- the command line


@pytest.mark.parametrize(
    ("flags", "code", "say"),
    [
        (["--listen"], 2, "--listen needs a value"),
        (["--listen", "127.0.0.1:x"], 2, "not a number"),
        (["--listen", "127.0.0.1:65536"], 2, "not a number up to 65535"),
        (["--listen", "::1:80"], 2, "[ADDRESS]:PORT"),
        (["--listen", "no such host:80"], 2, "--listen no such host:80: "),
        (["--stdio", "--fd", "3"], 2, "exclude each other"),
        (["--stdio", "--listen", "1"], 2, "exclude each other"),
        (["--fd", "99"], 2, "there is no such descriptor"),
        (["--fd", "-1"], 2, "not a number"),
        (["--max-upload", "many"], 2, "not a number"),
        (["--patience", "0"], 2, "at least 1"),
        (["--what"], 2, "unknown flag --what"),
        (["--stdio=1"], 2, "takes no value"),
        (["a.pte", "b.pte"], 2, "two programs"),
        ([""], 2, "is empty"),
        (["nothing.pte"], 3, "cannot read nothing.pte"),
        (["."], 3, "not a file"),
        (["--data", "nothing.ptd"], 3, "cannot read nothing.ptd"),
        (["--library", "nothing.so"], 3, "cannot read nothing.so"),
        (["--token-file", "nothing"], 3, "cannot read a token"),
        (["--token-file", "/dev/null"], 3, "cannot read a token"),
        (["--listen", "0.0.0.0:0"], 2, "there is no token"),
        (["--listen=[::]:0"], 2, "there is no token"),
    ],
)
def test_what_is_refused(flags: list[str], code: int, say: str, tmp_path: Path) -> None:
    done = run(*flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("etdb-server: ")
    assert say in done.stderr
    assert done.stderr.count("\n") == 1


def run(*flags: str, **more: object) -> subprocess.CompletedProcess[str]:
    line = [str(s.server()), *flags]
    return subprocess.run(line, capture_output=True, text=True, timeout=s.SECONDS, **more)  # type: ignore[call-overload, no-any-return]


def test_strangers_need_a_token_that_cannot_be_guessed() -> None:
    short = run("--listen", "0.0.0.0:0", env={**os.environ, "ETDB_TOKEN": "secret"})
    assert (short.returncode, "is short" in short.stderr) == (2, True)
    line = [str(s.server()), "--listen", "0.0.0.0:0"]
    env = {**os.environ, "ETDB_TOKEN": "0123456789abcdef"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
    assert said.startswith("listening on 0.0.0.0:")


def test_a_port_that_is_taken(running: s.Server) -> None:
    done = run("--listen", f"127.0.0.1:{running.port}")
    assert (done.returncode, "cannot listen on" in done.stderr) == (5, True)


def test_help_and_version() -> None:
    page = Path(__file__).parents[3] / "docs/reference/etdb-protocol.md"
    assert f"```text\n{run('--help').stdout}```" in page.read_text()
    assert run("--version").stdout == "etdb-server, ExecuTorch 1.5.1\n"


def test_no_room_for_uploads(tmp_path: Path) -> None:
    with s.serving_one(env={**os.environ, "TMPDIR": str(tmp_path / "nothing")}) as (wire, _):
        wire.ask(s.HELLO, s.hello())
        error = wire.refused(s.UPLOAD, bytes(8) + s.blob(b"x"))
        assert (error.code, "TMPDIR" in error.message) == (s.LIMIT, True)
    with s.serving_one(env={**os.environ, "TMPDIR": str(tmp_path)}) as (wire, _):
        wire.ask(s.HELLO, s.hello())
        wire.ask(s.UPLOAD, bytes(8) + s.blob(b"x" * 100000))
        assert os.listdir(tmp_path) == []  # it has no name
