"""A runner's calls, against a server that is scripted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from etscope.errors import (
    DeviceLost,
    EtscopeError,
    FormatError,
    MismatchError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
    VersionError,
)
from etscope.etdb.protocol import runner as runner_module
from etscope.etdb.protocol.launch import SocketChannel
from etscope.etdb.protocol.messages import RunnerDied, StopReason
from etscope.etdb.protocol.runner import Runner
from tests.support.etdb.ctrl_c import is_heard_by, press
from tests.support.etdb.scripted_server import ScriptedServer, serving
from tests.support.etdb.tensors import read_tensor
from tests.support.waiting import until

NOWHERE = np.zeros(4, bool)
OUTPUTS = [[0], [1], [2], [3]]


@contextmanager
def running(server: ScriptedServer, token: str = "") -> Iterator[Runner]:
    """A runner that stands at the beginning."""
    with serving(server) as channel, Runner(channel, token) as runner:
        runner.load(b"program", "forward", OUTPUTS)
        runner.begin()
        yield runner


def _at(*instructions: int) -> Any:
    flags = NOWHERE.copy()
    flags[list(instructions)] = True
    return flags


# -- greeting and loading


def test_another_version() -> None:
    with (
        serving(ScriptedServer(version=2)) as channel,
        pytest.raises(VersionError, match="speaks version 2"),
    ):
        Runner(channel)
    refusing = ScriptedServer(refuse={1: (2, "version 9 is not spoken", "")})
    with serving(refusing) as channel, pytest.raises(VersionError, match="version 9"):
        Runner(channel)


def test_silence_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_GREETING_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(DeviceLost, match="timed out"):
        Runner(SocketChannel(ours, "there"))


def test_a_program_is_uploaded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_PIECE", 1000)
    program = np.random.default_rng(0).bytes(3500)
    server = ScriptedServer()
    with serving(server) as channel, Runner(channel) as runner:
        runner.load(memoryview(program), outputs=OUTPUTS)
    assert server.loaded == program
    assert server.asked.count(2) == 4


def test_the_servers_own_program_is_not_sent_and_must_be_this_one() -> None:
    server = ScriptedServer(program=b"the program")
    with serving(server) as channel, Runner(channel) as runner:
        runner.load(b"the program", outputs=OUTPUTS)
        assert 2 not in server.asked
        for other in (b"the prOgram", b"a program"):
            with pytest.raises(MismatchError, match=r"another program \(a.pte, 11 bytes\)"):
                runner.load(other, outputs=OUTPUTS)
        runner.begin()  # nothing happened to the one that is loaded


# -- running


def test_a_long_run_takes_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_SLICE", 5)
    server = ScriptedServer()
    with running(server) as runner:
        stopped = runner.go(NOWHERE, most=7)
        assert (stopped.why, stopped.step) == (StopReason.MOST_STEPS, 7)
        assert stopped.ran.tolist() == [0, 1, 2, 3, 0, 1, 2]
        assert server.asked.count(6) == 2
        stopped = runner.go(NOWHERE)
        assert (stopped.why, stopped.step, len(stopped.ran)) == (StopReason.END, 12, 5)
        runner.go_to(0)
        stopped = runner.go_to(11)
        assert (stopped.why, stopped.step, len(stopped.ran)) == (StopReason.REACHED, 11, 11)
        runner.go_to(1)
        stopped = runner.go(_at(0))
        assert (stopped.why, stopped.step) == (StopReason.STOP, 5)


class _Stuck(ScriptedServer):
    """Says that it ran as far as it was asked to, and stays where it is."""

    def _6(self, body: bytes) -> bytes:
        return self._stopped(3, self.step)

    def _7(self, body: bytes) -> bytes:
        return self._stopped(7, self.step)


def test_a_server_that_does_not_get_on() -> None:
    for go in (lambda runner: runner.go(NOWHERE), lambda runner: runner.go_to(3)):
        with (
            running(_Stuck()) as runner,
            pytest.raises(FormatError, match="does not advance from step 0"),
        ):
            go(runner)


class _Slow(ScriptedServer):
    """Runs until it is interrupted; the request for that comes in while it runs."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        super().__init__()
        self.ask_for_it = interrupt

    def serve(self, connection: socket.socket) -> None:
        self.connection = connection
        super().serve(connection)

    def _one(self) -> None:
        super()._one()
        if self.step == 3:
            self.ask_for_it()
            head = self.connection.recv(12)  # blocks until the client interrupts
            self.asked.append(int.from_bytes(head[4:6], "little"))
            self.number = int.from_bytes(head[8:], "little")
            self.interrupt.set()

    def frames(self, kind: int, number: int, body: bytes) -> list[bytes]:
        answers = super().frames(kind, number, body)
        if self.interrupt.is_set():
            self.interrupt.clear()
            answers += super().frames(14, self.number, b"")
        return answers

    def _14(self, body: bytes) -> bytes:
        return b""


def test_a_ctrl_c_interrupts_a_run() -> None:
    server = _Slow(press)
    with running(server) as runner:
        before = signal.getsignal(signal.SIGINT)
        stopped = runner.go(NOWHERE)
        assert (stopped.why, stopped.step) == (StopReason.INTERRUPTED, 3)
        assert signal.getsignal(signal.SIGINT) is before
        assert 14 in server.asked
        assert runner.go(NOWHERE).why == StopReason.END  # it can be used as before


def test_another_thread_interrupts_a_run() -> None:
    def interrupt() -> None:
        until(lambda: runner._connection.interrupts._waiting)
        runner.interrupt()

    with running(_Slow(interrupt)) as runner:
        runner.interrupt()  # nothing runs: nothing happens
        assert runner.go_to(9).why == StopReason.INTERRUPTED
        assert runner.go_to(9).why == StopReason.REACHED


class _Pressing(ScriptedServer):
    """Ctrl-C comes once or twice while it works at an answer."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def _9(self, body: bytes) -> bytes:
        for _ in range(self.times):
            press()
            until(lambda: is_heard_by(signal.default_int_handler))  # it was noted
        return super()._9(body)


def test_a_ctrl_c_while_something_is_asked_waits_for_the_answer_and_a_second_does_not() -> None:
    with running(_Pressing(1)) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.statistics(0)
        assert runner.describe(0).tensor is not None
    with running(_Pressing(2)) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.statistics(0)
        with pytest.raises(DeviceLost, match="interrupted during a request"):
            runner.describe(0)


# -- values


def test_a_tensor_comes_in_pieces_and_in_its_logical_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_module, "_PIECE", 8)
    server = ScriptedServer(order=(1, 0))
    with running(server) as runner:
        server.tensors[2][...] = expected = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(read_tensor(runner, 2), expected)
        assert server.asked.count(10) == 3
        facts = runner.describe(2).tensor
        assert facts is not None
        assert runner.read(2, facts, 1, 3).tolist() == [3, 1, 4]  # as they are in memory
        assert runner.read(2, facts, 4, 99).tolist() == [2, 5]
        assert runner.read(2, facts, 9).tolist() == []
        with pytest.raises(UsageError, match="is not a tensor"):
            read_tensor(runner, 100)


def test_large_inputs_are_staged_one_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_INLINE", 4)
    monkeypatch.setattr(runner_module, "_PIECE", 16)
    server = ScriptedServer()
    with running(server) as runner:
        first, second = np.arange(6, dtype=np.int64), np.arange(9, dtype=np.int16)[::-1]
        runner.set_inputs([first, np.int8(3) * np.ones(1, np.int8), second, 2.5])
        assert bytes(server.staging) == first.tobytes() + second.tobytes()
        assert server.inputs.endswith(
            b"\x08\x02\x01\x09\0\0\0\0" + (48).to_bytes(8, "little") + b"\2" + b"\0" * 6 + b"\4@"
        )


def test_a_request_that_no_server_takes_is_not_sent() -> None:
    server = ScriptedServer()
    with running(server) as runner:
        with pytest.raises(UsageError, match="bytes in one request"):
            runner.set_inputs([[np.zeros(65 << 20, np.int8)]])
        with pytest.raises(UsageError, match="4 instructions"):  # flags of another program
            runner.go(np.zeros(5, bool))
        assert not {4, 6} & set(server.asked)
        assert runner.describe(0).tensor is not None


# -- cores and ends


class _Cut(ScriptedServer):
    """Its last words are cut off."""

    def last_words(self) -> list[bytes]:
        return [*super().last_words()[:2], b"\1"]


def test_a_core_that_is_cut_off() -> None:
    with running(_Cut(die_at=6)) as runner:
        runner.begin(traced=True)
        with pytest.raises(RunnerDied) as died:
            runner.go(NOWHERE)
        assert died.value.core is None


class _Mute(ScriptedServer):
    def _9(self, body: bytes) -> bytes:
        raise ConnectionAbortedError

    def last_words(self) -> list[bytes]:
        self.connection.close()
        return []

    def serve(self, connection: socket.socket) -> None:
        self.connection = connection
        super().serve(connection)


def test_a_connection_that_ends_without_a_word() -> None:
    with running(_Mute()) as runner:
        with pytest.raises(DeviceLost, match=r"the runner \(there\) is gone"):
            runner.statistics(0)
        with pytest.raises(DeviceLost, match="is gone"):
            runner.go(NOWHERE)


@pytest.mark.parametrize(
    ("kind", "code", "log", "expected", "reason"),
    [
        (3, 5, "", RuntimeFailure, "cannot be loaded: they said"),
        (3, 9, "", RuntimeFailure, r"because of a limit: they said[\s\S]*--max-upload"),
        (4, 6, "", MismatchError, "do not fit: they said"),
        (8, 7, "", MissingDataError, "they said"),
        (5, 4, "", UsageError, "not now: they said"),
        (6, 8, "E it broke", RuntimeFailure, r"they said[\s\S]*it broke"),
        (6, 99, "", RuntimeFailure, "they said"),
    ],
)
def test_refusals(
    kind: int, code: int, log: str, expected: type[EtscopeError], reason: str
) -> None:
    server = ScriptedServer(refuse={kind: (code, "they said", log)})
    with serving(server) as channel, Runner(channel) as runner:
        with pytest.raises(expected, match=reason):
            runner.load(b"program", "forward", OUTPUTS)
            runner.set_inputs([1])
            runner.begin()
            runner.describe(0)
            runner.go(NOWHERE)
        server.refuse.clear()
        runner.load(b"program", "forward", OUTPUTS)  # it can be used as before


def test_closing_says_goodbye_and_is_the_end() -> None:
    with serving(ScriptedServer()) as channel:
        runner = Runner(channel)
        runner.close()
        runner.close()
        with pytest.raises(DeviceLost, match="it was closed"):
            runner.begin()
