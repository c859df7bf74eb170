"""A runner at the other end of a channel: its requests as calls, its errors as ours."""

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
from etscope.etdb.protocol.launch import PROGRAM, TOKEN_VARIABLE, Channel
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
    Loaded,
    NumberTest,
    Reader,
    RunnerDied,
    RunnerInfo,
    Statistics,
    Stopped,
    StopReason,
    TensorInfo,
    ValueInfo,
    Writer,
    in_memory,
)
from etscope.formats.bytes.source import BytesLike
from etscope.run.process import explained, relevant

# Frames over a channel: a request and its answer, a server's last words, and its silence.


# A server's errors in our words: what is wrong, and what to do.


_LACKS = {
    "operator": "give the library that registers it (--library), or build etdb-server with it",
    "backend": "build etdb-server with it, or give the library that registers it (--library)",
}
_NO_WEIGHTS = "external_data_map is null"
_LARGER = "start it with the program (etdb-server PROGRAM), or with a larger --max-upload"


def failure_of(code: int, message: str, log: str, kind: Kind, place: str) -> EtscopeError:
    """The error of a request that the server refused."""
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
                hint=f"give the one that it was started with in ${TOKEN_VARIABLE}",
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
            return RuntimeFailure(
                f"the server at {place} has its limits: {message}",
                log=relevant(log),
                hint=None if kind == Kind.HELLO else _LARGER,
            )
        case Code.PROGRAM:
            return _of_program(message, log)
    found = explained(log)
    if found is None:
        return RuntimeFailure(message or f"error {code}", log=relevant(log))
    return RuntimeFailure(found[0], log=relevant(log), hint=found[1])


def lost(channel: Channel, reason: str) -> DeviceLost:
    """The error of a connection that ended without a word."""
    text = f"the runner ({channel.place}) is gone: {reason}"
    hints = {
        "SIGKILL": "the system may have run out of memory",
        "code 127": f"put {PROGRAM} on the PATH there, name it (--server PATH), "
        "or have it brought there (--push PATH)",
    }
    hint = next((text for sign, text in hints.items() if sign in reason), None)
    return DeviceLost(text, log=relevant(channel.log()), hint=hint)


def _of_program(message: str, log: str) -> RuntimeFailure:
    if _NO_WEIGHTS in log:
        return RuntimeFailure(
            "weights of this program are in a file beside it (.ptd)",
            log=relevant(log),
            hint="name that file (--data), to target runtime or to etdb-server",
        )
    found = explained(f"{log}\n{message}")
    if found is None:
        return RuntimeFailure(f"the program cannot be loaded: {message}", log=relevant(log))
    what, hint = found
    if "backend" in what and "does not have" in what:
        hint = f"{_LACKS['backend']}; {hint}"
    elif "no kernel" in what:
        hint = _LACKS["operator"]
    return RuntimeFailure(what, log=relevant(log), hint=hint)


# Ctrl-C while a server works: its answer comes first.


class InterruptHandler:
    """What becomes of a Ctrl-C inside `kept`: the first is noted, and `told` is called if a run
    waits; the second is what it was before. Signals reach the main thread only."""

    def __init__(self, told: Callable[[], None]) -> None:
        self.noted = False
        self._told = told
        self._kept = False
        self._waiting = False
        self._asked = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Note a Ctrl-C; `noted` says whether there was one. Of several the outermost counts."""
        if self._kept:
            yield
            return
        self.noted = False
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def note(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            self.noted = True
            self._told()

        self._kept = True
        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._kept = False

    @contextmanager
    def later(self) -> Iterator[None]:
        """A Ctrl-C inside, but outside of `kept`, comes when this is over: for what takes note of
        an answer."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return
        came = False

        def note(number: int, frame: Any) -> None:
            nonlocal came
            if self._kept:  # the second one of a request
                before(number, frame)
            came = True

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if came:
            before(signal.SIGINT, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the answer of a run is waited for, it may be interrupted."""
        self._asked, self._waiting = False, True
        if self.noted:
            self._told()
        try:
            yield
        finally:
            self._waiting = False

    def may_interrupt(self) -> bool:
        """Whether a run waits that nobody has asked to end yet; the caller does that now."""
        may = self._waiting and not self._asked
        self._asked = self._asked or may
        return may


_MOST_CORE = 4 << 30  # bytes of a core that are kept
_HANGS_UP = {Code.PROTOCOL, Code.VERSION, Code.TOKEN}
_BYE_SECONDS = 1.0
_MOST_GREETING = 64 << 10  # bytes of the first answer


class Connection:
    """Requests, one at a time, each with its answer.

    After `DeviceLost`, `RunnerDied`, a malformed answer or a second Ctrl-C the channel is closed,
    and every request raises `DeviceLost` with the reason.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.patience = InterruptHandler(self.interrupt)
        self.instructions = 0  # of chain 0 of the program that is loaded
        self._greeted = False
        self._ended: str | None = None
        self._sending = threading.Lock()  # an interrupt may come from another thread
        self._number = 0
        self._unanswered: set[int] = set()

    @property
    def alive(self) -> bool:
        return self._ended is None

    def ask(self, kind: Kind, body: Writer, *, run: bool = False) -> Reader:
        """The answer's body. run: it may be interrupted.

        Raises what the server's error is in ours; `UsageError` for a request that is too large."""
        if self._ended is not None:
            raise DeviceLost(f"the runner ({self.channel.place}) is gone: {self._ended}")
        data = body.body()
        if len(data) > MOST_BODY:
            raise UsageError(f"{len(data):,} bytes in one request; the server takes {MOST_BODY:,}")
        try:
            with self.patience.kept():
                number = self._send(kind, data)
                with self.patience.waiting() if run else contextlib.nullcontext():
                    code, data = self._answer(number)
            if code == ERROR:
                raise self._refusal(data, kind)
            if code != kind | ANSWER:
                raise FormatError(f"etdb-server answers {kind.name} by the kind {code:#06x}")
        except RunnerDied as died:
            self.end(died.message)
            raise
        except FormatError as error:
            self.end(f"its answer was malformed: {error.message}")
            raise
        except KeyboardInterrupt:
            self.end("it was interrupted in a request")
            raise
        except (OSError, EOFError) as error:
            if isinstance(error, EtscopeError):
                raise
            reason = self.channel.ending() or str(error)
            self.end(reason)
            raise lost(self.channel, reason) from error
        self._greeted = True
        if self.patience.noted and not run:
            raise KeyboardInterrupt
        return Reader(data, f"the answer to {kind.name}")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A malformed answer ends the connection."""
        try:
            yield
        except FormatError as error:
            self.end(f"its answer was malformed: {error.message}")
            raise

    def interrupt(self) -> None:
        """Ask the run whose answer is waited for to end; nothing if there is none."""
        if self.patience.may_interrupt():
            # Whoever waits for the answer learns that the server is gone.
            with contextlib.suppress(OSError):
                self._send(Kind.INTERRUPT, b"")

    def close(self) -> None:
        """Say goodbye and hang up; idempotent, raises nothing."""
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
                # What a dying server has said is still to be read; if it is nothing, that tells.
                if kind in (Kind.INTERRUPT, Kind.BYE):
                    raise
        return number

    def _answer(self, wanted: int) -> tuple[int, bytes]:
        """The kind and body of the answer to that request, when all are there: that to an
        interrupt on the way, too."""
        answer = (0, b"")
        while self._unanswered:
            kind, number, body = self._receive()
            if kind == ERROR and number == 0:  # it turns everybody away
                self._unanswered.clear()
                return kind, body
            if number not in self._unanswered:
                raise FormatError(f"etdb-server answers {number}, which is no open request")
            self._unanswered.discard(number)
            if number == wanted:
                answer = (kind, body)
        return answer

    def _receive(self) -> tuple[int, int, bytes]:
        """The next answer: kind, number, body."""
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

    def _refusal(self, data: bytes, kind: Kind) -> EtscopeError:
        """The error that the server answers by."""
        refusal = Reader(data, f"the error of {kind.name}")
        code, message, log = refusal.number("H"), refusal.text(), refusal.text()
        refusal.end()
        failure = failure_of(code, message, log, kind, self.channel.place)
        if code in _HANGS_UP:
            self.end(failure.message)
        return failure

    def _died(self, words: Reader) -> RunnerDied:
        """The error of what killed the process, with the core that follows."""
        reason, step = words.text(), words.number("Q")
        instruction, cored = words.location(self.instructions), words.flag()
        words.end()
        with contextlib.suppress(OSError, EOFError):  # it may not have got to the end
            core = self._core() if cored else None
            return _death(self.channel, reason, step, instruction, core)
        return _death(self.channel, reason, step, instruction, None)

    def _core(self) -> Core | None:
        parts = (bytearray(), bytearray())
        while True:
            length, kind, zero, _ = HEADER.unpack(self.channel.receive(HEADER.size))
            if zero != 0 or length > MOST_BODY or kind not in (Event.CORE_PART, Event.CORE_END):
                raise FormatError(f"the kind {kind:#06x} in a core")
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
        """Hang up, for that reason."""
        if self._ended is None:
            self._ended = reason
            self.channel.close()


def _death(
    channel: Channel, reason: str, step: int, instruction: int | None, core: Core | None
) -> RunnerDied:
    where = "" if instruction is None else f" in instruction {instruction}, step {step:,}"
    died = RunnerDied(
        f"the program killed its runner ({channel.place}){where}: {reason}",
        reason=reason,
        step=step,
        instruction=instruction,
        core=core,
    )
    died.log = relevant(channel.log())
    return died


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
    afterwards; `go` and `go_to` return it as `StopReason.INTERRUPTED`. A second one ends the
    connection.
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
            return stopped.why == StopReason.MOST_STEPS and (not most or done < most)

        return self._run(Kind.GO, piece, more, len(tests))

    def go_to(self, step: int) -> Stopped:
        """Forth or back to the state after so many instructions."""

        def piece(_: int) -> tuple[Writer, int]:
            target = min(step, self._step + _SLICE)
            return Writer().pack("Q", target), max(target - self._step, 0)

        def more(stopped: Stopped, _: int) -> bool:
            return stopped.why == StopReason.REACHED and stopped.step < step

        return self._run(Kind.GOTO, piece, more, 0)

    def noting(self) -> AbstractContextManager[None]:
        """Around a request and what takes note of its answer: a Ctrl-C does not come in between."""
        return self._connection.patience.later()

    def interrupt(self) -> None:
        """End a `go` or `go_to` that waits, from another thread or a signal's handler."""
        self._connection.interrupt()

    # -- looking and writing

    def describe(self, value: int) -> ValueInfo:
        """What a value is, by its index; tensors without data. Raises `MissingDataError` when there
        is none."""
        return self._request(Kind.DESCRIBE, Writer().pack("I", value), Reader.described)

    def statistics(self, value: int) -> Statistics:
        """The numbers of a tensor without its data. Raises `MissingDataError`."""
        return self._request(Kind.STATISTICS, Writer().pack("I", value), Reader.statistics)

    def read(
        self, value: int, facts: TensorInfo, first: int = 0, count: int | None = None
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

    def _greet(self, token: str) -> RunnerInfo:
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
            if patience.noted and (
                unfinished or stopped.why in (StopReason.STOP, StopReason.MOST_STEPS)
            ):
                # Who asks for a run again and again is to hear of it, too.
                stopped = replace(stopped, why=StopReason.INTERRUPTED)
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
