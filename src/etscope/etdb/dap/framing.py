"""Messages of the protocol on a stream: a header with the length, then JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from etscope.errors import PAGE, EtscopeError, FormatError, reading

_MOST_BYTES = 16 << 20  # of a message: a client sends little
_MOST_HEADER = 4096
_PLAIN = str.maketrans("{}", "()")  # braces in a message are names of variables
_WHAT = "message of the Debug Adapter Protocol"


class Channel:
    """A client. Any thread may send."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._lock, self._last = threading.Lock(), 0

    def messages(self) -> Iterator[Any]:
        """Yield the messages of the client, until it goes. Raises `FormatError` for a stream that
        cannot be followed any more."""
        while (length := self._length()) is not None:
            content = self._source.read(length)
            if len(content) < length:
                return
            with reading(_WHAT):
                yield json.loads(content)

    def _length(self) -> int | None:
        length: int | None = None
        size = 0
        while line := self._source.readline(_MOST_HEADER):
            size += len(line)
            name, _, value = line.partition(b":")
            if line in (b"\r\n", b"\n"):
                if length is None:
                    raise FormatError(f"not a {_WHAT}: it has no Content-Length")
                return length
            if name.strip().lower() == b"content-length":
                text = value.strip()
                if not text.isdigit() or len(text) > len(str(_MOST_BYTES)):
                    raise FormatError(f"not a {_WHAT}: a length of {text[:20]!r}")
                length = int(text)
            if size > _MOST_HEADER or (length or 0) > _MOST_BYTES:
                raise FormatError(f"not a {_WHAT}: it is too large")
        return None

    def respond(
        self, request: Any, body: dict[str, Any] | None = None, *, failure: Exception | None = None
    ) -> None:
        """Answer a request; with a message, and a link to what it means, if it failed."""
        command, number = request.get("command"), request.get("seq")
        answer: dict[str, Any] = {
            "type": "response",
            "request_seq": number if isinstance(number, int) else 0,
            "command": command if isinstance(command, str) else "",
            "success": failure is None,
        }
        if failure is not None:
            text = str(failure)
            answer["message"] = text.split("\n", 1)[0]
            shown = {"id": 1, "format": text.translate(_PLAIN), "showUser": True}
            if isinstance(failure, EtscopeError):
                link = {"url": f"{PAGE}#{failure.slug}", "urlLabel": "About this error"}
                shown.update(link)
            answer["body"] = {"error": shown}
        elif body is not None:
            answer["body"] = body
        self._send(answer)

    def event(self, event: str, **body: Any) -> None:
        """Tell the client of something."""
        self._send({"type": "event", "event": event, "body": body})

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._last += 1
            content = json.dumps({"seq": self._last, **message}).encode()
            self._sink.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
            self._sink.flush()
