"""Frames over a channel: a request and its answer, a server's last words, and its silence."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from etscope.errors import DeviceLost, EtscopeError, FormatError, UsageError
from etscope.etdb.protocol.facts import Core, RunnerDied
from etscope.etdb.protocol.failures import failure_of, lost
from etscope.etdb.protocol.launch import Channel
from etscope.etdb.protocol.messages import (
    ANSWER,
    ERROR,
    HEADER,
    MOST_BODY,
    Code,
    Event,
    Kind,
    Reader,
    Writer,
)
from etscope.etdb.protocol.patience import Patience
from etscope.run.failure_log import relevant

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
