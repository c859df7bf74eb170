"""A runner at the other end of a channel: its requests as calls, its errors as ours."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, MismatchError, UsageError, VersionError
from etscope.etdb.protocol.connection import Connection
from etscope.etdb.protocol.facts import (
    Core,
    Described,
    Difference,
    Loaded,
    NumberTest,
    RunnerFacts,
    Statistics,
    Stopped,
    TensorFacts,
    Why,
)
from etscope.etdb.protocol.launch import Channel
from etscope.etdb.protocol.messages import (
    MAGIC,
    VERSION,
    Kind,
    Reader,
    Writer,
    in_memory,
)
from etscope.formats.bytes.source import BytesLike

_GREETING_SECONDS = 20.0  # for the answer of what may be no etdb-server at all
_PIECE = 8 << 20  # bytes of a large tensor or program in one frame
_INLINE = 1 << 20  # bytes of tensors that are sent inside a request
_SLICE = 1 << 20  # most steps of one request: bounds an answer, whatever a loop does
_T = TypeVar("_T")


class Runner:
    """One connection to a runner. Not for several threads, but for `interrupt`.

    Every call raises `DeviceLost` when the connection ends without a word (then the runner can no
    longer be used), `RunnerDied` when the program killed the server's process, `FormatError` when
    an answer is malformed, and `RuntimeFailure` for what the runtime cannot do.

    A Ctrl-C during a call lets the server's answer come first, so that the runner can be used
    afterwards; `go` and `go_to` return it as `Why.INTERRUPTED`. A second one ends the connection.
    """

    def __init__(self, channel: Channel, token: str = "") -> None:
        """Greets. Raises `VersionError` for a server of another protocol, `UsageError` when it
        wants another token. The channel is closed then."""
        self._connection = Connection(channel)
        self._step = 0
        try:
            self.facts = self._greet(token)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Where the runner is, for people."""
        return self._connection.channel.place

    # -- what to run

    def load(
        self,
        program: BytesLike,
        method: str = "",
        outputs: Sequence[Sequence[int]] = (),
        threads: int = 0,
    ) -> Loaded:
        """Load a method ("": the one a program is run by). It is the server's own program that is
        loaded if it has one, else this one is uploaded.

        outputs: of each instruction of chain 0 the tensors that it writes, by index of value.

        Raises `MismatchError` when the server has another program, `RuntimeFailure` when it is
        none, or this server lacks an operator or a backend for it."""
        data = memoryview(program).cast("B")
        own = self.facts.program
        if own is None:
            self._upload(data)
        elif own.size != len(data) or own.crc32 != zlib.crc32(data):
            raise MismatchError(
                f"the server at {self.place} has another program ({own.name}, {own.size:,} bytes)",
                hint="give the program that it runs, or start it without one",
            )
        body = Writer().pack("B", own is None).text(method).pack("i", threads).lists(outputs)
        loaded = self._request(
            Kind.LOAD, body, lambda answer: Loaded(answer.text(), *answer.unpack("QII"))
        )
        self._connection.instructions = len(outputs)
        self._step = 0
        return loaded

    def set_inputs(self, values: Sequence[Any]) -> None:
        """Arrays, numbers, strings, None or lists of them: what runs from now on begin with.

        Raises `MismatchError` when the method does not take them."""
        body = Writer().pack("I", len(values))
        for value, staged in zip(values, self._staged(values), strict=True):
            body.value(value, staged)
        self._request(Kind.INPUTS, body, _nothing)

    # -- running

    def begin(self, traced: bool = False) -> Stopped:
        """Stand before the first instruction. traced: keep a dump, which a crash leaves as core."""
        count = self._connection.instructions
        stopped = self._request(
            Kind.BEGIN,
            Writer().pack("B", traced),
            lambda answer: answer.stopped(count, most=0, tests=0),
        )
        self._step = stopped.step
        return stopped

    def go(
        self,
        stops: npt.NDArray[np.bool_],
        tests: Sequence[NumberTest] = (),
        most: int = 0,
    ) -> Stopped:
        """Run at least one instruction, up to a stop. stops: bool [instructions]. most: steps, 0
        for any number."""
        count = self._connection.instructions
        for flags in (stops, *(test.at for test in tests)):
            if flags.shape != (count,):
                raise UsageError(f"flags of the shape {flags.shape} for {count} instructions")

        def piece(done: int) -> tuple[Writer, int]:
            steps = min(most - done, _SLICE) if most else _SLICE
            return Writer().pack("Q", steps).bits(stops).tests(tests), steps

        def more(stopped: Stopped, done: int) -> bool:
            return stopped.why == Why.MOST_STEPS and (not most or done < most)

        return self._run(Kind.GO, piece, more, len(tests))

    def go_to(self, step: int) -> Stopped:
        """Forth or back to the state after so many instructions."""

        def piece(_: int) -> tuple[Writer, int]:
            target = min(step, self._step + _SLICE)
            return Writer().pack("Q", target), max(target - self._step, 0)

        def more(stopped: Stopped, _: int) -> bool:
            return stopped.why == Why.REACHED and stopped.step < step

        return self._run(Kind.GOTO, piece, more, 0)

    def noting(self) -> AbstractContextManager[None]:
        """Around a request and what takes note of its answer: a Ctrl-C does not come in between."""
        return self._connection.patience.later()

    def interrupt(self) -> None:
        """End a `go` or `go_to` that waits, from another thread or a signal's handler."""
        self._connection.interrupt()

    # -- looking and writing

    def describe(self, value: int) -> Described:
        """What a value is, by its index; tensors without data. Raises `MissingDataError` when there
        is none."""
        return self._request(Kind.DESCRIBE, Writer().pack("I", value), Reader.described)

    def statistics(self, value: int) -> Statistics:
        """The numbers of a tensor without its data. Raises `MissingDataError`."""
        return self._request(Kind.STATISTICS, Writer().pack("I", value), Reader.statistics)

    def read(
        self, value: int, facts: TensorFacts, first: int = 0, count: int | None = None
    ) -> npt.NDArray[Any]:
        """[count] elements of a tensor in the order that they have in memory, fewer at its end.
        facts: those of `describe`, from the same step. Raises `MissingDataError`."""
        size = facts.dtype.itemsize
        there = facts.nbytes // size
        first = min(max(first, 0), there)
        count = there - first if count is None else min(max(count, 0), there - first)

        def piece(offset: int, wanted: int) -> Writer:
            return Writer().pack("IQQ", value, first * size + offset, wanted)

        return np.frombuffer(self._pieces(Kind.READ, piece, count * size), facts.dtype)

    def tensor(self, value: int) -> npt.NDArray[Any]:
        """A tensor in its logical shape, as a copy; of types that pack several values in a byte the
        bytes, flat. Raises `MissingDataError`; `UsageError` for what is no tensor."""
        facts = self.describe(value).tensor
        if facts is None:
            raise UsageError(f"value {value} is no tensor")
        flat = self.read(value, facts)
        if len(flat) != int(np.prod(facts.shape, dtype=np.int64)):
            return flat
        stored = flat.reshape([facts.shape[dim] for dim in facts.dim_order])
        back: npt.NDArray[Any] = stored.transpose(np.argsort(np.array(facts.dim_order, np.intp)))
        return back

    def write(self, value: int, new: Any) -> None:
        """Give a value another content, of the same shape and type in any order of dimensions.

        Raises `UsageError` when it does not fit; then nothing was written."""
        (staged,) = self._staged([new])
        self._request(Kind.WRITE, Writer().pack("I", value).value(new, staged), _nothing)

    def core(self) -> Core:
        """The dump of the run so far; the server runs it again for that unless it is traced."""
        etdump, debug, differences = self._request(
            Kind.CORE,
            Writer(),
            lambda answer: (*answer.unpack("QQ"), tuple(answer.differences())),
        )
        return Core(
            bytes(self._pieces(Kind.FETCH, _fetching(0), etdump)),
            bytes(self._pieces(Kind.FETCH, _fetching(1), debug)),
            differences,
        )

    def close(self) -> None:
        """Say goodbye and hang up; idempotent, raises nothing."""
        self._connection.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests

    def _greet(self, token: str) -> RunnerFacts:
        channel = self._connection.channel
        channel.wait_at_most(_GREETING_SECONDS)
        body = Writer().raw(MAGIC).pack("H", VERSION).text(token)
        answer = self._connection.ask(Kind.HELLO, body)
        version, facts = answer.hello()
        if version != VERSION:
            raise VersionError(
                f"the server at {self.place} speaks version {version} of the protocol, "
                f"etscope speaks {VERSION}"
            )
        answer.end()
        channel.wait_at_most(None)
        return facts

    def _request(self, kind: Kind, body: Writer, read: Callable[[Reader], _T]) -> _T:
        """The answer, read to its end."""
        answer = self._connection.ask(kind, body)
        with self._connection.reading():
            found = read(answer)
            answer.end()
        return found

    def _run(
        self,
        kind: Kind,
        piece: Callable[[int], tuple[Writer, int]],
        more: Callable[[Stopped, int], bool],
        tests: int,
    ) -> Stopped:
        """A run in the requests it takes. piece: the next after so many steps, and how many it may
        run; more: whether there has to be another."""
        patience, parts, done = self._connection.patience, [], 0
        differences: list[Difference] = []
        with patience.kept():
            while True:
                body, most = piece(done)
                answer = self._connection.ask(kind, body, run=True)
                with self._connection.reading():
                    # One more: that which failed.
                    stopped = answer.stopped(self._connection.instructions, most + 1, tests)
                    answer.end()
                    done += most
                    unfinished = more(stopped, done)
                    if unfinished and stopped.step <= self._step:
                        raise answer.fail(f"a run that stays at step {stopped.step:,}")
                parts.append(stopped.ran)
                differences += stopped.differences
                self._step = stopped.step
                if patience.noted or not unfinished:
                    break
            if patience.noted and (unfinished or stopped.why in (Why.STOP, Why.MOST_STEPS)):
                # Who asks for a run again and again is to hear of it, too.
                stopped = replace(stopped, why=Why.INTERRUPTED)
        if len(parts) == 1:
            return stopped
        return replace(stopped, ran=np.concatenate(parts), differences=tuple(differences[:16]))

    def _staged(self, values: Sequence[Any]) -> list[int | None]:
        """Upload the large arrays; where each is in the staging area, None for those that are sent
        in the request."""
        places: list[int | None] = []
        end = 0
        inline = 0
        for value in values:
            size = value.nbytes if isinstance(value, np.ndarray) else 0
            if inline + size <= _INLINE:
                inline += size
                places.append(None)
            else:
                places.append(end)
                end = self._upload(in_memory(value), end)
        return places

    def _upload(self, data: memoryview, at: int = 0) -> int:
        """Put bytes into the staging area; where they end."""
        for start in range(0, max(len(data), 1), _PIECE):
            part = data[start : start + _PIECE]
            self._request(Kind.UPLOAD, Writer().pack("Q", at + start).blob(part), _nothing)
        return at + len(data)

    def _pieces(self, kind: Kind, piece: Callable[[int, int], Writer], size: int) -> bytearray:
        """So many bytes, in the order they come; piece: the request for some at an offset."""
        found = bytearray()
        while len(found) < size:
            wanted = min(_PIECE, size - len(found))
            part = self._request(kind, piece(len(found), wanted), Reader.blob)
            if not 0 < len(part) <= wanted:
                self._connection.end("its answer was malformed")
                raise FormatError(
                    f"etdb-server was asked for {wanted:,} bytes and sent {len(part):,}"
                )
            found += part
        return found


def _nothing(_: Reader) -> None:
    """The answer says no more than that it is done."""


def _fetching(part: int) -> Callable[[int, int], Writer]:
    return lambda offset, wanted: Writer().pack("BQQ", part, offset, wanted)
