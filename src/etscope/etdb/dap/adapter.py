"""The adapter: requests of an editor as commands of a session. It decides nothing by itself: what
stops a run, and where, is the session's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from etscope.errors import EtscopeError, FormatError, MissingDataError, UsageError
from etscope.etdb.commands.source import known_lines, read_lines
from etscope.etdb.dap.breaks import EditorBreakpoints, filters
from etscope.etdb.dap.framing import Channel
from etscope.etdb.dap.variables import Variables
from etscope.etdb.debugger import END, Debugger, Stopped
from etscope.etdb.expression import evaluate, parse
from etscope.etdb.output import frames_of, line_of, modules_of, stop_lines
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.session import Completer, Result, Session
from etscope.formats.json_values import JsonValue
from etscope.model.graph import SourceLine

_THREAD = 1
_MOVES = {
    "continue": "continue",
    "next": "next",
    "stepIn": "step",
    "stepOut": "finish",
    "stepBack": "reverse-step",
    "reverseContinue": "reverse-continue",
}
_URGENT = ("pause", "disconnect", "terminate", "restart")
_PRESS_SECONDS = 0.02  # a run may begin just after it was interrupted
_CAPABILITIES: dict[str, Any] = dict.fromkeys(
    (
        "supportsConfigurationDoneRequest", "supportsFunctionBreakpoints",
        "supportsConditionalBreakpoints", "supportsHitConditionalBreakpoints",
        "supportsEvaluateForHovers", "supportsStepBack", "supportsSetVariable",
        "supportsSetExpression", "supportsRestartRequest", "supportsExceptionInfoRequest",
         "supportsExceptionFilterOptions", "supportsLogPoints",
        "supportsLoadedSourcesRequest", "supportsModulesRequest", "supportsTerminateRequest",
        "supportsDataBreakpoints", "supportsCompletionsRequest",
    ),
    True,
)  # fmt: skip

Body = dict[str, Any] | None
Handler = Callable[["Adapter", JsonValue], Body]
REQUESTS: dict[str, Handler] = {}


def request(command: str) -> Callable[[Handler], Handler]:
    """Register the handler of a request: it takes the arguments, and returns the body."""

    def register(function: Handler) -> Handler:
        REQUESTS[command] = function
        return function

    return register


def _nothing() -> None:
    pass


class Adapter:
    """One client and its session. A thread reads; all else happens in the thread of `serve`, as a
    session is of one thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._requests: queue.Queue[Any] = queue.Queue()
        self._session: Session | None = None
        self._variables: Variables | None = None
        self._after: Callable[[], object] = _nothing  # when the answer is sent
        self._launched: JsonValue = JsonValue({})
        self._files: list[str] = []  # of sources without a file, by their reference
        self._is_over = False
        self._taken = threading.Lock()

    # -- the loop

    def serve(self) -> None:
        """Answer the client until it disconnects or goes."""
        threading.Thread(target=self._read, name="etdb-dap", daemon=True).start()
        try:
            while not self._is_over:
                message, taken = self._requests.get()
                with self._taken:
                    taken.set()
                if message is None:
                    break
                self._answer(message)
        except OSError:
            pass  # the client is gone
        finally:
            if self._session is not None:
                self._session.close()

    def _read(self) -> None:
        try:
            for message in self._channel.messages():
                if not isinstance(message, dict) or message.get("type") != "request":
                    continue
                self._ask(message, is_urgent=message.get("command") in _URGENT)
                if message.get("command") == "disconnect":
                    return
        except (FormatError, OSError):
            pass
        self._ask(None, is_urgent=True)

    def _ask(self, message: Any, *, is_urgent: bool) -> None:
        """Put a request into the queue. An urgent one ends the run that goes on before it, whenever
        that begins: it is interrupted until the request is taken."""
        taken = threading.Event()
        self._requests.put((message, taken))
        while is_urgent and not taken.wait(_PRESS_SECONDS):
            with self._taken:
                target = None if self._session is None else self._session.debugger.target
                if target is not None and not taken.is_set():
                    target.interrupt()

    def _answer(self, message: dict[str, Any]) -> None:
        self._after = _nothing
        command = message.get("command")
        try:
            handler = REQUESTS.get(command) if isinstance(command, str) else None
            if handler is None:
                raise UsageError(f"etdb does not know the request {command!r}")
            body = handler(self, JsonValue(message.get("arguments") or {}))
        except EtscopeError as error:
            self._channel.respond(message, failure=str(error))
            return
        except Exception as error:  # an adapter that dies would take the session with it
            self._channel.respond(message, failure=f"a bug of etdb: {error!r}")
            return
        self._channel.respond(message, body)
        try:
            self._after()
        except EtscopeError as error:
            self.say(f"{error}\n", "stderr")

    # -- parts of the handlers

    @property
    def session(self) -> Session:
        """The session. Raises `UsageError` before it is launched."""
        if self._session is None:
            raise UsageError("nothing is debugged yet: launch or attach first")
        return self._session

    @property
    def debugger(self) -> Debugger:
        return self.session.debugger

    @property
    def variables(self) -> Variables:
        """Variables of the current stop."""
        if self._variables is None:
            self._variables = Variables(self.debugger)
        return self._variables

    def say(self, text: str, category: str = "console") -> None:
        """Show a text in the client's console."""
        if text:
            self._channel.event("output", category=category, output=text)

    def open(self, arguments: JsonValue) -> None:
        """Open a session on the files of a launch or attach, and choose its target."""
        if self._session is not None:
            raise UsageError("a session is open already")
        from etscope.etdb.commands.targets import read_inputs

        paths = arguments.texts("files")
        inputs = arguments.texts("inputs")
        if not paths:
            raise UsageError(
                "name the files to debug", hint='"files": ["model.etrecord", "model.pte"]'
            )
        session = Session(
            *(str(Path(path).expanduser()) for path in paths),
            inputs=read_inputs(*inputs) if inputs else None,
            force=bool(arguments.optional("force", JsonValue.flag)),
        )
        target = arguments.optional("target", JsonValue.text)
        if target is None and session.debugger.recorded is None:
            target = "runtime"
        result = session.execute(f"target {target}") if target else None
        if result is not None and result.error is not None:
            session.close()
            raise result.error
        self._session, self._launched = session, arguments
        text = "" if result is None else result.text

        def opened() -> None:
            self.say(text)
            self._channel.event("initialized")

        self._after = opened

    def begin(self) -> None:
        """Begin the run, up to its first stop."""
        stops_first = bool(self._launched.optional("stopOnEntry", JsonValue.flag))
        self.move("start" if stops_first else "run")

    def move(self, line: str) -> None:
        """Execute a command that moves the run, and tell the client where it is."""
        self.tell(self.session.execute(line), moved=True)

    def tell(self, result: Result, *, moved: bool) -> None:
        """Show a result in the console; tell where the run stands, if it moved."""
        self._variables = None
        stopped = self.debugger.stopped
        self.say(result.text, "stderr" if result.error is not None else "console")
        if not moved or stopped is None:
            return
        if stopped.reason == END and self.debugger.target is not None:
            last = self.debugger.some_target().next_run is None
            if last and bool(self._launched.optional("exitAtEnd", JsonValue.flag)):
                self._channel.event("terminated")
                return
        self._channel.event("stopped", **stopped_body(stopped))

    def source_of(self, line: SourceLine) -> dict[str, Any]:
        """A file as the client opens it: by its path, or by a number if it is not here."""
        source: dict[str, Any] = {"name": PurePath(line.file).name, "path": line.file}
        if not Path(line.file).is_file():
            if line.file not in self._files:
                self._files.append(line.file)
            source["sourceReference"] = self._files.index(line.file) + 1
            source["origin"] = "the lines in the ETRecord"
        return source


def stopped_body(stopped: Stopped) -> dict[str, Any]:
    """The body of the event for a stop."""
    body: dict[str, Any] = {
        "reason": stopped.reason,
        "threadId": _THREAD,
        "allThreadsStopped": True,
    }
    if stopped.text:
        body["description"] = stopped.text.split("\n", 1)[0]
        body["text"] = stopped.text
    if stopped.breakpoints:
        body["hitBreakpointIds"] = list(stopped.breakpoints)
    return body


# -- the session


@request("initialize")
def _initialize(adapter: Adapter, arguments: JsonValue) -> Body:
    return {**_CAPABILITIES, "exceptionBreakpointFilters": filters()}


@request("launch")
@request("attach")
def _launch(adapter: Adapter, arguments: JsonValue) -> Body:
    adapter.open(arguments)
    return None


@request("configurationDone")
def _configuration_done(adapter: Adapter, arguments: JsonValue) -> Body:
    _ = adapter.session  # raises
    adapter._after = adapter.begin
    return None


@request("restart")
def _restart(adapter: Adapter, arguments: JsonValue) -> Body:
    _ = adapter.session  # raises
    adapter._after = adapter.begin
    return None


@request("disconnect")
@request("terminate")
def _end(adapter: Adapter, arguments: JsonValue) -> Body:
    def end() -> None:
        if not adapter._is_over:
            adapter._channel.event("terminated")
        adapter._is_over = True

    adapter._after = end
    return None


# -- breakpoints


def _set(
    adapter: Adapter, set_all: Callable[[EditorBreakpoints], list[dict[str, Any]]]
) -> dict[str, Any]:
    return {"breakpoints": set_all(EditorBreakpoints(adapter.debugger))}


@request("setBreakpoints")
def _set_breakpoints(adapter: Adapter, arguments: JsonValue) -> Body:
    source = arguments.get("source")
    path = source.optional("path", JsonValue.text) or ""
    number = source.optional("sourceReference", JsonValue.whole) or 0
    if not path and 0 < number <= len(adapter._files):
        path = adapter._files[number - 1]
    return _set(adapter, lambda points: points.set_lines(path, arguments.entries("breakpoints")))


@request("setFunctionBreakpoints")
def _set_functions(adapter: Adapter, arguments: JsonValue) -> Body:
    return _set(adapter, lambda points: points.set_functions(arguments.entries("breakpoints")))


@request("setDataBreakpoints")
def _set_data(adapter: Adapter, arguments: JsonValue) -> Body:
    return _set(adapter, lambda points: points.set_data(arguments.entries("breakpoints")))


@request("setExceptionBreakpoints")
def _set_exceptions(adapter: Adapter, arguments: JsonValue) -> Body:
    plain = [JsonValue({"filterId": name}) for name in arguments.texts("filters")]
    wanted = [*plain, *arguments.entries("filterOptions")]
    return _set(adapter, lambda points: points.set_filters(wanted))


@request("dataBreakpointInfo")
def _data_info(adapter: Adapter, arguments: JsonValue) -> Body:
    name = arguments.get("name").text()
    reference = arguments.optional("variablesReference", JsonValue.whole)
    if reference:
        name = adapter.variables.expression_of(reference, name)
    if name == "$":
        name = adapter.debugger.here().path or name
    try:
        path = adapter.debugger.path_named(name)
    except EtscopeError as error:
        return {"dataId": None, "description": error.message}
    return {"dataId": path, "description": f"{path} is written", "accessTypes": ["write"]}


# -- moving


def _moving(command: str, line: str) -> None:
    @request(command)
    def _move(adapter: Adapter, arguments: JsonValue) -> Body:
        _ = adapter.session  # raises
        adapter._after = lambda: adapter.move(line)
        return {"allThreadsContinued": True} if command == "continue" else None


for _command, _line in _MOVES.items():
    _moving(_command, _line)


@request("pause")
def _pause(adapter: Adapter, arguments: JsonValue) -> Body:
    _ = adapter.session  # raises; the reader has interrupted the run already
    return None


# -- looking


@request("threads")
def _threads(adapter: Adapter, arguments: JsonValue) -> Body:
    target = adapter.debugger.target
    name = "no run" if target is None else f"{target.method or 'method'}, run {target.run}"
    return {"threads": [{"id": _THREAD, "name": name}]}


@request("stackTrace")
def _stack_trace(adapter: Adapter, arguments: JsonValue) -> Body:
    debugger = adapter.debugger
    stop = debugger.stop
    if stop is None:
        where = "the run is over" if debugger.ended else "the run has not begun"
        return {"stackFrames": [{"id": 1, "name": where, "line": 0, "column": 0}], "totalFrames": 1}
    lines = frames_of(stop) or [line for line in [line_of(stop)] if line is not None]
    modules = [f"{path or '(root)'}: {kind}" for path, kind in modules_of(stop)]
    operator = stop.node or stop.name
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        function = line.function or "module"
        name = f"{operator} in {function}" if not number else function
        if number < len(modules):
            name += f" ({modules[number]})"
        source = adapter.source_of(line)
        found.append(
            {"id": number + 1, "name": name, "line": line.line, "column": 1, "source": source}
        )
    found = found or [{"id": 1, "name": operator, "line": 0, "column": 0}]
    first = arguments.optional("startFrame", JsonValue.whole) or 0
    count = arguments.optional("levels", JsonValue.whole) or len(found)
    return {"stackFrames": found[first : first + count], "totalFrames": len(found)}


@request("scopes")
def _scopes(adapter: Adapter, arguments: JsonValue) -> Body:
    arguments.get("frameId").whole()
    return {"scopes": [] if adapter.debugger.stop is None else adapter.variables.scopes()}


@request("variables")
def _variables(adapter: Adapter, arguments: JsonValue) -> Body:
    found = adapter.variables.children(
        arguments.get("variablesReference").whole(),
        max(arguments.optional("start", JsonValue.whole) or 0, 0),
        arguments.optional("count", JsonValue.count) if arguments.find("count") else None,
        arguments.optional("filter", JsonValue.text) or "",
    )
    return {"variables": found}


@request("evaluate")
def _evaluate(adapter: Adapter, arguments: JsonValue) -> Body:
    text = arguments.get("expression").text()
    if arguments.optional("context", JsonValue.text) == "repl":
        before = adapter.debugger.stopped
        result = adapter.session.execute(text)
        if result.error is not None:
            raise result.error
        moved = adapter.debugger.stopped is not before
        if moved:
            shown = Result(result.line, type(result.answer)())
            adapter._after = lambda: adapter.tell(shown, moved=True)
        if result.answer.ends:
            _end(adapter, arguments)
        return {"result": result.text.rstrip("\n"), "variablesReference": 0}
    value = evaluate(parse(text), DebuggerScope(adapter.debugger))
    described = adapter.variables.described(value, text)
    return {"result": described.pop("value"), **described}


def _assign(adapter: Adapter, expression: str, value: str) -> dict[str, Any]:
    result = adapter.session.execute(f"set {expression} = {value}")
    if result.error is not None:
        raise result.error
    adapter._variables = None
    new = evaluate(parse(expression), DebuggerScope(adapter.debugger))
    # All shown values may have changed: they are computed from this one.
    adapter._after = lambda: adapter._channel.event("invalidated", areas=["variables"])
    return adapter.variables.described(new, expression)


@request("setVariable")
def _set_variable(adapter: Adapter, arguments: JsonValue) -> Body:
    reference = arguments.get("variablesReference").whole()
    name = adapter.variables.expression_of(reference, arguments.get("name").text())
    return _assign(adapter, name, arguments.get("value").text())


@request("setExpression")
def _set_expression(adapter: Adapter, arguments: JsonValue) -> Body:
    return _assign(adapter, arguments.get("expression").text(), arguments.get("value").text())


@request("completions")
def _completions(adapter: Adapter, arguments: JsonValue) -> Body:
    line = arguments.get("text").text()[: max(arguments.get("column").whole() - 1, 0)]
    word, found = Completer(adapter.debugger).complete(line)
    start = len(line) - len(word)
    return {"targets": [{"label": text, "start": start, "length": len(word)} for text in found]}


@request("exceptionInfo")
def _exception_info(adapter: Adapter, arguments: JsonValue) -> Body:
    stopped = adapter.debugger.stopped
    if stopped is None or stopped.reason != "exception":
        raise MissingDataError("the run did not stop at an exception")
    lines = stop_lines(adapter.debugger, adapter.debugger.here())
    return {
        "exceptionId": stopped.text.split("\n", 1)[0],
        "description": "\n".join((stopped.text, *lines)),
        "breakMode": "always",
    }


@request("source")
def _source(adapter: Adapter, arguments: JsonValue) -> Body:
    number = arguments.get("sourceReference").whole()
    if not 1 <= number <= len(adapter._files):
        raise MissingDataError(f"no source has the number {number}")
    file = adapter._files[number - 1]
    lines = read_lines(file, known_lines(adapter.debugger)[file])
    text = "\n".join(lines.get(line, "") for line in range(1, max(lines) + 1))
    return {"content": text, "mimeType": "text/x-python"}


@request("loadedSources")
def _loaded_sources(adapter: Adapter, arguments: JsonValue) -> Body:
    files = sorted(known_lines(adapter.debugger))
    return {"sources": [adapter.source_of(SourceLine(file, 1, "")) for file in files]}


@request("modules")
def _modules(adapter: Adapter, arguments: JsonValue) -> Body:
    found: dict[str, str] = {}
    target = adapter.debugger.target
    for stop in () if target is None else target.stops:
        for path, kind in modules_of(stop):
            found.setdefault(path, kind)
    names = [
        {"id": path or "(root)", "name": f"{path or '(root)'}: {kind}" if kind else path}
        for path, kind in sorted(found.items())
    ]
    return {"modules": names, "totalModules": len(names)}
