"""etdb-server: programs that are uploaded, run, looked into, changed, interrupted, and that die."""

from __future__ import annotations

import contextlib
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from etscope.analysis.program.program import instructions, unfolded
from etscope.formats.program.pte import read_pte
from tests.support import rogue_programs
from tests.support.artifacts import Artifact, artifacts
from tests.support.etdb import server as s
from tests.support.waiting import until

CNN = artifacts("cnn_portable")
FLOAT = 6
FULL = 0xFFFFFFFF


def table(path: Path) -> list[list[int]]:
    """Of each instruction the tensors that it writes."""
    program = read_pte(path)
    method = program.methods[0]
    records = instructions(program, method.name).records
    return [list(unfolded(method.values, record.outputs)) for record in records]


def image(artifact: Artifact = CNN) -> npt.NDArray[np.float32]:
    assert artifact.inputs is not None
    found: npt.NDArray[np.float32] = np.load(artifact.inputs)["forward/0/0"]
    return found


def given(*values: bytes) -> bytes:
    return struct.pack("<I", len(values)) + b"".join(values)


def floats(value: npt.NDArray[np.float32]) -> bytes:
    return s.tensor(FLOAT, value.shape, value.tobytes())


def go(steps: int = 0, stops: bytes = b"", tests: bytes = bytes(4)) -> bytes:
    return struct.pack("<Q", steps) + s.blob(stops) + tests


def bits(*at: int, of: int) -> bytes:
    flags = np.zeros(of, bool)
    flags[list(at)] = True
    return np.packbits(flags, bitorder="little").tobytes()


def read(wire: s.Wire, value: int, dtype: str = "<f4") -> npt.NDArray[np.float32]:
    body = wire.ask(s.READ, struct.pack("<IQQ", value, 0, 16 << 20))
    assert struct.unpack_from("<Q", body) == (len(body) - 8,)
    return np.frombuffer(body, dtype, offset=8)


def begin(wire: s.Wire, *, traced: bool = False) -> s.Stood:
    return s.stopped(wire.ask(s.BEGIN, bytes([traced])))


def run(wire: s.Wire, kind: int, body: bytes) -> s.Stood:
    return s.stopped(wire.ask(kind, body))


@pytest.fixture(scope="module")
def running() -> Iterator[s.Server]:
    with s.serving(CNN.pte) as one:
        yield one


@pytest.fixture
def wire(running: s.Server) -> Iterator[s.Wire]:
    """With the network loaded, and its inputs set."""
    with running.greeted() as one:
        one.ask(s.LOAD, s.load(outputs=TABLE))
        one.ask(s.INPUTS, given(floats(image())))
        yield one


TABLE = table(CNN.pte)
LAST = len(TABLE)
METHOD = read_pte(CNN.pte).methods[0]
(OUTPUT,) = METHOD.outputs


def the_answer() -> npt.NDArray[np.float32]:
    assert CNN.outputs is not None
    found: npt.NDArray[np.float32] = np.load(CNN.outputs)["forward/0/0"].ravel()
    return found


# -- running


def test_a_run_gives_what_the_runtime_gives(wire: s.Wire) -> None:
    assert begin(wire) == s.Stood(0, 0, FULL, FULL, [], "")
    end = run(wire, s.GO, go())
    assert (end.why, end.step, end.chain, end.instruction) == (4, LAST, 0, LAST - 1)
    assert end.ran == [(0, 0, LAST)]
    np.testing.assert_array_equal(read(wire, OUTPUT), the_answer())
    assert run(wire, s.GO, go()).ran == []  # nothing is left
    tags = [wire.ask(s.DESCRIBE, struct.pack("<I", i))[0] for i in range(len(METHOD.values))]
    assert {0, 1, 3, 6, 7} <= set(tags) <= set(range(8))


def test_what_load_tells(running: s.Server) -> None:
    with running.greeted() as wire:
        # An output that is not there: nothing is loaded.
        assert wire.refused(s.LOAD, s.load(outputs=[[FULL]])).code == s.PROGRAM
        assert wire.refused(s.BEGIN, b"\0").code == s.STATE
        body = wire.ask(s.LOAD, s.load(outputs=TABLE))
        assert body.startswith(s.text("forward"))
        took, values, inputs = struct.unpack_from("<QII", body, 11)
        assert 0 < took < 10**10
        assert (values, inputs) == (len(METHOD.values), 1)
        assert wire.refused(s.BEGIN, b"\0").code == s.STATE  # there are no inputs


def test_the_program_that_a_client_uploads(running: s.Server) -> None:
    program = artifacts("nan_output").pte
    data = program.read_bytes()
    outputs = table(program)
    with running.greeted() as wire:
        for start in range(0, len(data), 1000):
            wire.ask(s.UPLOAD, struct.pack("<Q", start) + s.blob(data[start : start + 1000]))
        wire.ask(s.LOAD, s.load(outputs=outputs, source=1))
        value = image(artifacts("nan_output"))
        wire.ask(s.INPUTS, given(floats(value)))
        begin(wire)
        nan = struct.pack("<IBd", 1, 1, 0.0) + s.blob(bits(*range(len(outputs)), of=len(outputs)))
        body = wire.ask(s.GO, go(tests=nan))
        at = struct.calcsize("<BQIIQQI") + 12 * s.stopped(body).ran.__len__()
        test, found, count = struct.unpack_from("<iIQ", body, at)
        assert (s.stopped(body).why, test) == (2, 0)
        assert count == np.isnan(read(wire, found)).sum() > 0
        numbers = struct.unpack("<4Q4d", wire.ask(s.STATISTICS, struct.pack("<I", found)))
        assert numbers[1] == count
        # and the server's own program on the same connection
        wire.ask(s.LOAD, s.load(outputs=TABLE))
        assert wire.refused(s.GO, go()).code == s.STATE
        wire.ask(s.INPUTS, given(floats(image())))
        begin(wire)
        run(wire, s.GO, go())
        np.testing.assert_array_equal(read(wire, OUTPUT), the_answer())


def test_a_bundled_program_runs_as_it_is() -> None:
    bundle = artifacts("bundled").bpte
    assert bundle is not None
    with s.serving_one(bundle) as (wire, _):
        wire.ask(s.HELLO, s.hello())
        assert wire.ask(s.LOAD, s.load()).startswith(s.text("forward"))


def test_a_piece_of_a_value(wire: s.Wire) -> None:
    begin(wire)
    run(wire, s.GO, go())
    size = the_answer().nbytes
    for first, count in ((0, 4), (5, 9), (size - 1, 100), (size, 1), (2**63, 2**24)):
        body = wire.ask(s.READ, struct.pack("<IQQ", OUTPUT, first, count))
        assert body[8:] == the_answer().tobytes()[first : first + count]
    error = wire.refused(s.READ, struct.pack("<IQQ", OUTPUT, 0, 2**24 + 1))
    assert error.code == s.LIMIT
    wire.ask(s.CORE)
    assert wire.refused(s.FETCH, struct.pack("<BQQ", 0, 0, 2**24 + 1)).code == s.LIMIT


# -- what does not fit


@pytest.mark.parametrize(
    "values",
    [
        given(),
        given(floats(image()), floats(image())),
        given(b"\0"),
        given(s.tensor(FLOAT, (1, 3, 16, 15), bytes(4 * 3 * 16 * 15))),
        given(s.tensor(4, (1, 3, 16, 16), bytes(8 * 3 * 16 * 16))),
        given(s.tensor(FLOAT, (1, 3, 16, 16), bytes(12))),
        given(s.tensor(99, (1,), bytes(4))),
        given(s.tensor(FLOAT, (2**31,), b"")),
        given(s.tensor(FLOAT, (2**31 - 1,) * 3, b"")),
        given(struct.pack("<Bq", 1, 5)),
        given(b"\4" + s.text("word")),
        given(b"\6" + bytes(4)),
        given(struct.pack("<BBBIBQ", 8, FLOAT, 1, 2**30, 0, 0)),
        given(struct.pack("<BBBIBQ", 8, FLOAT, 1, 1, 0, 2**64 - 1)),
    ],
)
def test_inputs_that_do_not_fit(values: bytes, wire: s.Wire) -> None:
    assert wire.refused(s.INPUTS, values).code == s.INPUT
    begin(wire)  # those before are still there
    run(wire, s.GO, go())
    np.testing.assert_array_equal(read(wire, OUTPUT), the_answer())


def test_values_that_are_not_there(wire: s.Wire) -> None:
    begin(wire)
    for value in (len(METHOD.values), FULL):
        number = struct.pack("<I", value)
        for kind, more in ((s.DESCRIBE, b""), (s.STATISTICS, b""), (s.READ, bytes(16))):
            assert wire.refused(kind, number + more).code == s.VALUE
        assert wire.refused(s.WRITE, number + b"\0").code == s.VALUE
    scalar = TABLE[0][0] + 1
    assert wire.refused(s.STATISTICS, struct.pack("<I", scalar)).code == s.VALUE


# -- interrupting


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s.Server]:
    """A program that jumps to its beginning as long as the runtime lets it: for minutes."""
    with s.serving(rogue_programs.endless(tmp_path_factory.mktemp("endless"))) as one:
        yield one


@contextlib.contextmanager
def going(server: s.Server) -> Iterator[tuple[s.Wire, int]]:
    """A connection whose program runs, and the number of the request."""
    with server.greeted() as wire:
        wire.ask(s.LOAD, s.load(outputs=2))
        wire.ask(s.INPUTS, given(floats(np.ones(1 << 16, np.float32))))
        wire.ask(s.BEGIN, b"\0")
        yield wire, wire.send(s.GO, go())


def test_a_run_is_interrupted(endless: s.Server) -> None:
    with going(endless) as (wire, number):
        interrupt = wire.send(s.INTERRUPT)
        stop = s.stopped(wire.answer(s.GO, number))
        assert (stop.why, stop.chain) == (5, 0)
        assert 0 < stop.step < 10_000_000
        assert wire.answer(s.INTERRUPT, interrupt) == b""
        again = wire.send(s.GO, go())  # it goes on from there
        wire.send(s.INTERRUPT)
        assert s.stopped(wire.answer(s.GO, again)).step > stop.step


def test_what_comes_while_it_runs_is_answered_afterwards(endless: s.Server) -> None:
    with going(endless) as (wire, number):
        describe = wire.send(s.DESCRIBE, struct.pack("<I", 1))
        wire.socket.sendall(s.frame(s.UPLOAD, bytes(8) + s.blob(bytes(3 << 20)), 50)[:-5])
        data = s.frame(s.INTERRUPT, b"", 51)
        wire.socket.sendall(bytes(5) + data)
        assert s.stopped(wire.answer(s.GO, number)).why == 5
        assert wire.answer(s.DESCRIBE, describe) == b"\3\0"
        assert wire.receive() == (s.UPLOAD | s.ANSWER, 50, b"")
        assert wire.receive() == (s.INTERRUPT | s.ANSWER, 51, b"")


def test_a_client_that_goes_away_ends_its_run(endless: s.Server) -> None:
    with going(endless):
        until(lambda: len(endless.children()) == 1)  # those before have ended
    until(lambda: not endless.children())


# -- dying


def test_a_crash_leaves_last_words_and_a_core(running: s.Server) -> None:
    until(lambda: not running.children())  # of the tests before
    with running.greeted() as wire:
        (child,) = running.children()
        wire.ask(s.LOAD, s.load(outputs=TABLE))
        wire.ask(s.INPUTS, given(floats(image())))
        begin(wire, traced=True)
        run(wire, s.GO, go(steps=3))
        s.kill(child, signal.SIGBUS)
        kind, number, body = wire.receive()
        assert (kind, number) == (s.DIED, 0)
        assert body == s.text("SIGBUS") + struct.pack("<QIIB", 3, FULL, FULL, 1)
        parts = {0: b"", 1: b""}
        while (event := wire.receive())[0] == s.CORE_PART:
            assert event[2][1:9] == struct.pack("<Q", len(event[2]) - 9)
            parts[event[2][0]] += event[2][9:]
        assert event == (s.CORE_END, 0, b"")
        assert wire.is_closed()
        assert parts[0][8:12] == b"ED00"
        assert len(parts[1]) > 1000
    with running.greeted() as other:
        other.ask(s.BYE)
