"""Frames over a channel: a request and its answer, a server's last words, and its silence."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
from etscope.etdb.protocol.facts import Core, RunnerDied
from etscope.etdb.protocol.launch import PROGRAM, TOKEN_VARIABLE, Channel
from etscope.etdb.protocol.messages import (
    ANSWER,
    ERROR,
    HEADER,
    MOST_BODY,
    VERSION,
    Code,
    Event,
    Kind,
    Reader,
    Writer,
)
from etscope.run.failure_log import explained, relevant

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


class Patience:
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
        self.patience = Patience(self.interrupt)
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
