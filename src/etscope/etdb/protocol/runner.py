"""A runner at the other end of a channel: requests as method calls, with typed errors."""

from __future__ import annotations

import contextlib
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

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
from etscope.etdb.protocol.launch import PROGRAM, TOKEN_VARIABLE, SocketChannel
from etscope.etdb.protocol.messages import (
    ANSWER,
    ERROR,
    HEADER,
    MAGIC,
    MOST_BODY,
    VERSION,
    Code,
    Core,
    Difference,
    Event,
    Kind,
    NumberTest,
    Reader,
    RunnerDied,
    Statistics,
    Stopped,
    StopReason,
    TensorInfo,
    ValueInfo,
    Writer,
    in_memory,
)
from etscope.formats.bytes.files import BytesLike
from etscope.run.process import explained, failure, relevant

_MOST_CORE = 4 << 30  # bytes of a core that are kept
_MOST_GREETING = 64 << 10  # bytes of the first answer
_PIECE = 8 << 20  # bytes of a large tensor or program in one frame
_INLINE = 1 << 20  # bytes of tensors that are sent inside a request
_SLICE = 1 << 20  # most steps of one request: bounds an answer, whatever a loop does
_GREETING_SECONDS = 20.0  # for the answer of what may not be an etdb-server at all
_BYE_SECONDS = 1.0  # to send a last message to a server that may not read any more
_HANGS_UP = {Code.PROTOCOL, Code.VERSION, Code.TOKEN}
_LIBRARY_HINT = "give the library that registers it (--library)"
_T = TypeVar("_T")


def server_error(code: int, message: str, log: str, kind: Kind, place: str) -> EtscopeError:
    """Return the error of a request that the server refused."""
    match code:
        case Code.VERSION:
            return VersionError(
                f"the server at {place} does not speak version {VERSION} of the protocol: "
                f"{message}",
                hint="use an etdb-server of this release of etscope",
            )
        case Code.TOKEN:
            return UsageError(
                f"the server at {place} refuses the token: {message}",
                hint=f"set ${TOKEN_VARIABLE} to the token that the server was started with",
            )
        case Code.STATE:
            return UsageError(f"not now: {message}")
        case Code.INPUTS:
            return MismatchError(f"the inputs do not fit: {message}")
        case Code.VALUE if kind == Kind.WRITE:
            return UsageError(f"nothing was written: {message}")
        case Code.VALUE:
            return MissingDataError(message)
        case Code.LIMIT:
            hint = "start it with the program (etdb-server PROGRAM), or with a larger --max-upload"
            return RuntimeFailure(
                f"the server at {place} refuses it because of a limit: {message}",
                log=relevant(log),
                hint=None if kind == Kind.HELLO else hint,
            )
        case Code.PROGRAM if "external_data_map is null" in log:
            return RuntimeFailure(
                "this program has weights in a separate file (.ptd)",
                log=relevant(log),
                hint="name the .ptd file (--data), to target runtime or to etdb-server",
            )
        case Code.PROGRAM:
            found = explained(f"{log}\n{message}")
            if found is None:
                return RuntimeFailure(f"the program cannot be loaded: {message}", log=relevant(log))
            what, advice = found
            if "backend" in what and "does not have" in what:
                advice = f"build etdb-server with it, or {_LIBRARY_HINT}; {advice}"
            elif "no kernel" in what:
                advice = f"{_LIBRARY_HINT}, or build etdb-server with it"
            return RuntimeFailure(what, log=relevant(log), hint=advice)
    return failure(message or f"error {code}", log)


def _own_handler() -> Callable[[int, Any], Any] | None:
    """The handler of Ctrl-C, if this thread gets it; else None."""
    found = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    return found if in_main_thread and callable(found) else None


class InterruptHandler:
    """Handles Ctrl-C during requests. Inside `capture`, the first one is recorded, and `notify` is
    called if a run is waiting; the second has its former effect. Signals reach the main thread
    only."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self.interrupted = False
        self._notify = notify
        self._capturing = False
        self._waiting = False
        self._asked = False

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Record a Ctrl-C in `interrupted`. Nested calls have no effect."""
        if self._capturing:
            yield
            return
        self.interrupted = False
        before = _own_handler()
        if before is None:
            yield
            return

        def record(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            self.interrupted = True
            self._notify()

        self._capturing = True
        signal.signal(signal.SIGINT, record)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._capturing = False

    @contextmanager
    def defer(self) -> Iterator[None]:
        """Delay a Ctrl-C to the end of the block, unless `capture` is active: for code that
        processes an answer.
        """
        before = _own_handler()
        if before is None:
            yield
            return
        came = False

        def record(number: int, frame: Any) -> None:
            nonlocal came
            if self._capturing:  # the second one of a request
                before(number, frame)
            came = True

        signal.signal(signal.SIGINT, record)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if came:
            before(signal.SIGINT, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Allow Ctrl-C to interrupt the run that is awaited inside."""
        self._asked, self._waiting = False, True
        if self.interrupted:
            self._notify()
        try:
            yield
        finally:
            self._waiting = False

    def claim(self) -> bool:
        """True, once, if a run is waiting; the caller then ends it."""
        claimed = self._waiting and not self._asked
        self._asked = self._asked or claimed
        return claimed


class Connection:
    """Sends requests, one at a time, and receives their answers.

    After `DeviceLost`, `RunnerDied`, a malformed answer or a second Ctrl-C the channel is closed,
    and every request raises `DeviceLost` with the reason.
    """

    def __init__(self, channel: SocketChannel) -> None:
        self.channel = channel
        self.interrupts = InterruptHandler(self.interrupt)
        self.instructions = 0  # of chain 0 of the loaded program
        self._greeted = False
        self._ended: str | None = None
        self._sending = threading.Lock()  # an interrupt may come from another thread
        self._number = 0
        self._unanswered: set[int] = set()

    def ask(self, kind: Kind, body: Writer, *, run: bool = False) -> Reader:
        """Send a request and return the body of the answer. run: True if the request may be
        interrupted.

        Raises the error that the server reports (`server_error`); `UsageError` for a request that
        is too large.
        """
        if self._ended is not None:
            raise DeviceLost(f"the runner ({self.channel.place}) is gone: {self._ended}")
        data = body.body()
        if len(data) > MOST_BODY:
            raise UsageError(f"{len(data):,} bytes in one request; the server takes {MOST_BODY:,}")
        try:
            with self.interrupts.capture():
                number = self._send(kind, data)
                with self.interrupts.waiting() if run else contextlib.nullcontext():
                    code, data = self._answer(number)
            if code == ERROR:
                refusal = Reader(data, f"the error of {kind.name}")
                code, message, log = refusal.number("H"), refusal.text(), refusal.text()
                refusal.end()
                refused = server_error(code, message, log, kind, self.channel.place)
                if code in _HANGS_UP:
                    self.end(refused.message)
                raise refused
            if code != kind | ANSWER:
                raise FormatError(f"etdb-server answers {kind.name} with the kind {code:#06x}")
        except RunnerDied as died:
            self.end(died.message)
            raise
        except FormatError as error:
            self.end(f"its answer was malformed: {error.message}")
            raise
        except KeyboardInterrupt:
            self.end("it was interrupted during a request")
            raise
        except (OSError, EOFError) as error:
            if isinstance(error, EtscopeError):
                raise
            reason = self.channel.ending() or str(error)
            self.end(reason)
            hints = {
                "SIGKILL": "the system may have run out of memory",
                "code 127": f"put {PROGRAM} on the PATH there, name it (--server PATH), "
                "or have it brought there (--push PATH)",
            }
            raise DeviceLost(
                f"the runner ({self.channel.place}) is gone: {reason}",
                log=relevant(self.channel.log()),
                hint=next((text for sign, text in hints.items() if sign in reason), None),
            ) from error
        self._greeted = True
        if self.interrupts.interrupted and not run:
            raise KeyboardInterrupt
        return Reader(data, f"the answer to {kind.name}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """End the connection if the answer that is read inside is malformed."""
        try:
            yield
        except FormatError as error:
            self.end(f"its answer was malformed: {error.message}")
            raise

    def interrupt(self) -> None:
        """End the awaited run, if any."""
        if self.interrupts.claim():
            # If the server is gone, the thread that waits for the answer raises the error.
            with contextlib.suppress(OSError):
                self._send(Kind.INTERRUPT, b"")

    def close(self) -> None:
        """Disconnect; idempotent, raises nothing."""
        if self._ended is None:
            with contextlib.suppress(OSError):
                self.channel.wait_at_most(_BYE_SECONDS)
                self._send(Kind.BYE, b"")
        self.end("it was closed")

    # -- frames

    def _send(self, kind: Kind, body: bytes) -> int:
        with self._sending:
            self._number = self._number % 0xFFFFFFFF + 1  # 0 is of events
            number = self._number
            self._unanswered.add(number)
            try:
                self.channel.send(HEADER.pack(len(body), kind, 0, number) + body)
            except (BrokenPipeError, ConnectionResetError):
                # A dying server may have sent its last events: `_answer` reads them, or fails.
                if kind in (Kind.INTERRUPT, Kind.BYE):
                    raise
        return number

    def _answer(self, wanted: int) -> tuple[int, bytes]:
        """Receive the answer to a request, and to an interrupt that was sent meanwhile. Returns its
        kind and body."""
        answer = (0, b"")
        while self._unanswered:
            kind, number, body = self._receive()
            if kind == ERROR and number == 0:  # it refuses all connections
                self._unanswered.clear()
                return kind, body
            if number not in self._unanswered:
                raise FormatError(f"etdb-server answers {number}, which is not an open request")
            self._unanswered.discard(number)
            if number == wanted:
                answer = (kind, body)
        return answer

    def _receive(self) -> tuple[int, int, bytes]:
        """Receive the next answer: kind, number, body."""
        length, kind, zero, number = HEADER.unpack(self.channel.receive(HEADER.size))
        if zero != 0 or length > (MOST_BODY if self._greeted else _MOST_GREETING):
            raise FormatError(
                f"not an answer of etdb-server: {length:,} bytes of the kind {kind:#06x}",
                hint=None if self._greeted else "is it an etdb-server that listens there?",
            )
        body = self.channel.receive(length)
        if kind == Event.DIED:
            raise self._died(Reader(body, "the server's last words"))
        return kind, number, body

    def _died(self, words: Reader) -> RunnerDied:
        """Read the event of a process that was killed, and the core that follows."""
        reason, step = words.text(), words.number("Q")
        instruction, cored = words.location(self.instructions), words.flag()
        words.end()
        core = None
        with contextlib.suppress(OSError, EOFError):  # the core may be incomplete
            core = self._core() if cored else None
        where = "" if instruction is None else f" in instruction {instruction}, step {step:,}"
        died = RunnerDied(
            f"the program killed its runner ({self.channel.place}){where}: {reason}",
            reason=reason,
            step=step,
            instruction=instruction,
            core=core,
        )
        died.log = relevant(self.channel.log())
        return died

    def _core(self) -> Core | None:
        parts = (bytearray(), bytearray())
        while True:
            length, kind, zero, _ = HEADER.unpack(self.channel.receive(HEADER.size))
            if zero != 0 or length > MOST_BODY or kind not in (Event.CORE_PART, Event.CORE_END):
                raise FormatError(f"a core has the unknown kind {kind:#06x}")
            body = Reader(self.channel.receive(length), "a core")
            if kind == Event.CORE_END:
                body.end()
                return Core(bytes(parts[0]), bytes(parts[1]))
            which, data = body.flag(), body.blob()
            body.end()
            if len(parts[0]) + len(parts[1]) + len(data) > _MOST_CORE:
                return None
            parts[which].extend(data)

    def end(self, reason: str) -> None:
        """Disconnect, with the reason for later errors."""
        if self._ended is None:
            self._ended = reason
            self.channel.close()


class Runner:
    """One connection to a runner. Only `interrupt` may be called from another thread.

    Every call raises `DeviceLost` when the connection breaks (the runner cannot be used then),
    `RunnerDied` when the program killed the server's process, `FormatError` for a malformed answer,
    and `RuntimeFailure` when the runtime fails.

    On Ctrl-C, a call first waits for the server's answer, so that the runner stays usable; `go` and
    `go_to` return `StopReason.INTERRUPTED`. A second Ctrl-C ends the connection.
    """

    def __init__(self, channel: SocketChannel, token: str = "") -> None:
        """Greet the server. Raises `VersionError` for one of another protocol, `UsageError` for a
        wrong token; then the channel is closed."""
        self._connection, self.place = Connection(channel), channel.place
        self._step = 0
        try:
            channel.wait_at_most(_GREETING_SECONDS)
            body = Writer().raw(MAGIC).pack("H", VERSION).text(token)
            answer = self._connection.ask(Kind.HELLO, body)
            version, self.info = answer.hello()
            if version != VERSION:
                raise VersionError(
                    f"the server at {self.place} speaks version {version} of the protocol, "
                    f"etscope speaks {VERSION}"
                )
            answer.end()
            channel.wait_at_most(None)
        except BaseException:
            self.close()
            raise

    # -- what to run

    def load(
        self,
        program: BytesLike,
        method: str = "",
        outputs: Sequence[Sequence[int]] = (),
        threads: int = 0,
    ) -> None:
        """Load a method ("": the main one), of the server's own program if it has one; else upload
        this one.

        outputs: for each instruction of chain 0 the indices of the tensors that it writes.

        Raises `MismatchError` when the server has another program, `RuntimeFailure` for an invalid
        program or one with an operator or backend that the server lacks."""
        data = memoryview(program).cast("B")
        own = self.info.program
        if own is None:
            self._upload(data)
        elif own.size != len(data) or own.crc32 != zlib.crc32(data):
            raise MismatchError(
                f"the server at {self.place} has another program ({own.name}, {own.size:,} bytes)",
                hint="give the program that the server runs, or start the server without one",
            )
        body = Writer().pack("B", own is None).text(method).pack("i", threads).lists(outputs)
        # The answer: the method, ns of loading, and how many values and inputs it has.
        self._request(Kind.LOAD, body, lambda answer: (answer.text(), answer.unpack("QII")))
        self._connection.instructions = len(outputs)
        self._step = 0

    def set_inputs(self, values: Sequence[Any]) -> None:
        """Set the inputs of later runs: arrays, numbers, strings, None or lists of them.

        Raises `MismatchError` when the method does not take them."""
        body = Writer().pack("I", len(values))
        for value, staged in zip(values, self._staged(values), strict=True):
            body.value(value, staged)
        self._request(Kind.INPUTS, body, _nothing)

    # -- running

    def begin(self, traced: bool = False, *, keep: bool = False) -> Stopped:
        """Start a run, before the first instruction. traced: record a dump, which remains if the
        run crashes. keep: start from the state that the run before left; that run must have ended.
        """
        count = self._connection.instructions
        stopped = self._request(
            Kind.BEGIN,
            Writer().pack("B", traced | keep << 1),
            lambda answer: answer.stopped(count, most=0, tests=0),
        )
        self._step = stopped.step
        return stopped

    def go(
        self, stops: npt.NDArray[np.bool_], tests: Sequence[NumberTest] = (), most: int = 0
    ) -> Stopped:
        """Run at least one instruction, up to a stop or a test that holds. stops: bool
        [instructions]. most: number of steps, 0 for any number."""
        count = self._connection.instructions
        for flags in (stops, *(test.at for test in tests)):
            if flags.shape != (count,):
                raise UsageError(f"flags of the shape {flags.shape} for {count} instructions")

        def piece(done: int) -> tuple[Writer, int]:
            steps = min(most - done, _SLICE) if most else _SLICE
            return Writer().pack("Q", steps).bits(stops).tests(tests), steps

        def more(stopped: Stopped, done: int) -> bool:
            return stopped.why == StopReason.MOST_STEPS and (not most or done < most)

        return self._run(Kind.GO, piece, more, len(tests))

    def go_to(self, step: int) -> Stopped:
        """Run forward or back to the state after `step` instructions."""

        def piece(_: int) -> tuple[Writer, int]:
            target = min(step, self._step + _SLICE)
            return Writer().pack("Q", target), max(target - self._step, 0)

        def more(stopped: Stopped, _: int) -> bool:
            return stopped.why == StopReason.REACHED and stopped.step < step

        return self._run(Kind.GOTO, piece, more, 0)

    def deferring_interrupt(self) -> AbstractContextManager[None]:
        """Delay a Ctrl-C until the answer to a request inside is processed."""
        return self._connection.interrupts.defer()

    def interrupt(self) -> None:
        """End a `go` or `go_to`, from another thread or a signal handler."""
        self._connection.interrupt()

    # -- looking and writing

    def describe(self, value: int) -> ValueInfo:
        """Describe a value by its index; tensors without data. Raises `MissingDataError` if there
        is none."""
        return self._request(Kind.DESCRIBE, Writer().pack("I", value), Reader.described)

    def statistics(self, value: int) -> Statistics:
        """Compute statistics of a tensor. Raises `MissingDataError`."""
        return self._request(Kind.STATISTICS, Writer().pack("I", value), Reader.statistics)

    def read(
        self, value: int, info: TensorInfo, first: int = 0, count: int | None = None
    ) -> npt.NDArray[Any]:
        """Read [count] elements of a tensor in memory order, fewer at its end. info: from
        `describe` at the same step. Raises `MissingDataError`."""
        size = info.dtype.itemsize
        total = info.nbytes // size
        first = min(max(first, 0), total)
        count = total - first if count is None else min(max(count, 0), total - first)

        def piece(offset: int, wanted: int) -> Writer:
            return Writer().pack("IQQ", value, first * size + offset, wanted)

        return np.frombuffer(self._pieces(Kind.READ, piece, count * size), info.dtype)

    def write(self, value: int, new: Any) -> None:
        """Write a value of the same shape and type, in any order of dimensions.

        Raises `UsageError` when it does not fit; then nothing was written."""
        (staged,) = self._staged([new])
        self._request(Kind.WRITE, Writer().pack("I", value).value(new, staged), _nothing)

    def core(self) -> Core:
        """Fetch a dump of the run so far; untraced, the server repeats the run for it."""

        def fetch(file: int, offset: int, wanted: int) -> Writer:
            return Writer().pack("BQQ", file, offset, wanted)

        etdump, debug, differences = self._request(
            Kind.CORE, Writer(), lambda answer: (*answer.unpack("QQ"), tuple(answer.differences()))
        )
        return Core(
            bytes(self._pieces(Kind.FETCH, lambda *part: fetch(0, *part), etdump)),
            bytes(self._pieces(Kind.FETCH, lambda *part: fetch(1, *part), debug)),
            differences,
        )

    def close(self) -> None:
        """Disconnect; idempotent, raises nothing."""
        self._connection.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests

    def _request(self, kind: Kind, body: Writer, read: Callable[[Reader], _T]) -> _T:
        """Send a request, and read its answer to the end."""
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
        """Run in as many requests as needed. piece: returns the next request after a number of
        steps, and its most steps; more: decides if another is needed."""
        interrupts, parts, done = self._connection.interrupts, [], 0
        differences: list[Difference] = []
        with interrupts.capture():
            while True:
                body, most = piece(done)
                answer = self._connection.ask(kind, body, run=True)
                with self._connection.reading():
                    # One more: the instruction that failed.
                    stopped = answer.stopped(self._connection.instructions, most + 1, tests)
                    answer.end()
                    done += most
                    unfinished = more(stopped, done)
                    if unfinished and stopped.step <= self._step:
                        raise answer.fail(f"a run that does not advance from step {stopped.step:,}")
                parts.append(stopped.ran)
                differences += stopped.differences
                self._step = stopped.step
                if interrupts.interrupted or not unfinished:
                    break
            stopped_early = stopped.why in (StopReason.STOP, StopReason.MOST_STEPS)
            if interrupts.interrupted and (unfinished or stopped_early):
                # Callers that run again and again must notice it.
                stopped = replace(stopped, why=StopReason.INTERRUPTED)
        if len(parts) == 1:
            return stopped
        return replace(stopped, ran=np.concatenate(parts), differences=tuple(differences[:16]))

    def _staged(self, values: Sequence[Any]) -> list[int | None]:
        """Upload large arrays. Returns the offset of each value in the staging area, None for those
        that are sent in the request."""
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
        """Put bytes into the staging area. Returns the offset of their end."""
        for start in range(0, max(len(data), 1), _PIECE):
            part = data[start : start + _PIECE]
            self._request(Kind.UPLOAD, Writer().pack("Q", at + start).blob(part), _nothing)
        return at + len(data)

    def _pieces(self, kind: Kind, piece: Callable[[int, int], Writer], size: int) -> bytearray:
        """Fetch `size` bytes. piece: returns the request for some of them at an offset."""
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
    """Read an empty answer."""
