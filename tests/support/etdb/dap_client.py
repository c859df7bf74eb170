"""A client of the Debug Adapter Protocol on a process, which checks every message that it gets
against the schema of the protocol."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from tests.support.warm import warm_python

_LONGEST = 600.0  # seconds of a client: an answer that never comes is a failure


@cache
def _schema() -> dict[str, Any]:
    """The protocol's schema, which debugpy brings along."""
    spec = importlib.util.find_spec("debugpy")
    assert spec is not None and spec.origin is not None
    inside = "_vendored/pydevd/_pydevd_bundle/_debug_adapter/debugProtocol.json"
    schema: dict[str, Any] = json.loads((Path(spec.origin).parent / inside).read_text())
    return schema


@cache
def _validator(definition: str) -> Any:
    schema = {"$ref": f"#/definitions/{definition}", "definitions": _schema()["definitions"]}
    return jsonschema.Draft4Validator(schema)


def check(message: dict[str, Any]) -> None:
    """Fail for a message that is not of the protocol."""
    if message["type"] == "event":
        name = f"{message['event'][0].upper()}{message['event'][1:]}Event"
    elif message["success"]:
        name = f"{message['command'][0].upper()}{message['command'][1:]}Response"
    else:
        name = "ErrorResponse"
    assert name in _schema()["definitions"], message
    _validator(name).validate(message)


class Client:
    """Starts `etdb --dap`, and asks it one request after the other."""

    def __init__(self, python: str | None = None, *, checks: bool = True) -> None:
        """python: a warm one by default, see `tests.support.warm`. checks: every message against
        the schema."""
        self._checks = checks
        self.process = subprocess.Popen(
            [python or warm_python(), "-m", "etscope.etdb", "--dap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.events: deque[dict[str, Any]] = deque()
        self.console = ""
        self._seq = 0
        self._watchdog = threading.Timer(_LONGEST, self.process.kill)
        self._watchdog.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def send(self, command: Any, arguments: Any = None) -> int:
        self._seq += 1
        message = {"seq": self._seq, "type": "request", "command": command}
        if arguments is not None:
            message["arguments"] = arguments
        content = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        self.process.stdin.flush()
        return self._seq

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the adapter has ended."""
        assert self.process.stdout is not None
        header = self.process.stdout.readline()
        if not header:
            return None
        length = int(header.partition(b":")[2])
        self.process.stdout.readline()
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        has_name = message["type"] != "response" or isinstance(message["command"], str)
        if self._checks and has_name:
            check(message)
        if message.get("event") == "output":
            self.console += message["body"]["output"]
        return message

    def answer(self, command: Any, arguments: Any = None) -> dict[str, Any]:
        """The response to a request. Events before it are kept."""
        number = self.send(command, arguments)
        while (message := self.receive()) is not None:
            if message["type"] == "response":
                assert message["request_seq"] == number
                return message
            self.events.append(message)
        raise AssertionError(f"the adapter ended at {command}")

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The body of the response to a request that must succeed."""
        answer = self.answer(command, arguments)
        assert answer["success"], answer
        body: dict[str, Any] = answer.get("body", {})
        return body

    def refused(self, command: str, **arguments: Any) -> str:
        """The message of a request that must fail."""
        answer = self.answer(command, arguments)
        assert not answer["success"], answer
        text: str = answer["body"]["error"]["format"]
        return text

    def event(self, name: str) -> dict[str, Any]:
        """The body of the next event of a name; others before it are dropped."""
        while True:
            message = self.events.popleft() if self.events else self.receive()
            assert message is not None, f"no {name}"
            if message.get("event") == name:
                body: dict[str, Any] = message.get("body", {})
                return body

    def move(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Make a move, and return the stop that it ends at."""
        self.ask(command, **{"threadId": 1, **arguments})
        return self.event("stopped")

    def launch(self, *files: Path, inputs: Path | None = None, **more: Any) -> None:
        """Begin a session, up to the event after which breakpoints are set."""
        self.ask("initialize", adapterID="etdb")
        given = {} if inputs is None else {"inputs": [str(inputs)]}
        self.ask("launch", files=list(map(str, files)), **given, **more)
        self.event("initialized")

    def shown(self, command: str) -> list[dict[str, dict[str, Any]]]:
        """Make a move, and ask what an editor shows of the stop: the stack, and the scopes that are
        not expensive."""
        self.move(command)
        self.ask("threads")
        frame = self.ask("stackTrace", threadId=1, startFrame=0, levels=20)["stackFrames"][0]
        return [
            self.children(one["variablesReference"])
            for one in self.ask("scopes", frameId=frame["id"])["scopes"]
            if not one["expensive"]
        ]

    def where(self) -> tuple[str, int]:
        """The name of the top frame and its line."""
        frame = self.ask("stackTrace", threadId=1)["stackFrames"][0]
        return frame["name"], frame["line"]

    def variables(self, scope: str) -> dict[str, dict[str, Any]]:
        """The variables of a scope, by name."""
        scopes = self.ask("scopes", frameId=1)["scopes"]
        (reference,) = [one["variablesReference"] for one in scopes if one["name"] == scope]
        return self.children(reference)

    def children(self, reference: int, **page: Any) -> dict[str, dict[str, Any]]:
        found = self.ask("variables", variablesReference=reference, **page)["variables"]
        return {one["name"]: one for one in found}
