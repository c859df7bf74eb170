"""The adapter: requests of an editor as commands of a session. It decides nothing by itself: what
stops a run, and where, is the session's."""

from __future__ import annotations

import base64
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from etscope.errors import EtscopeError, FormatError, MissingDataError, UsageError
from etscope.etdb.breakpoints import fields_of_stop
from etscope.etdb.commands.graph import instructions_of, values_text
from etscope.etdb.dap.breaks import EditorBreakpoints, address_of, filters, picked_line
from etscope.etdb.dap.framing import Channel
from etscope.etdb.dap.variables import Variables
from etscope.etdb.debugger import END, Debugger, Stopped
from etscope.etdb.expression import evaluate, parse
from etscope.etdb.output import frames_of, level_of_frame, line_of, modules_of, stop_lines
from etscope.etdb.python_code import known_lines, read_lines
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.session import Completer, Result, Session, given_or_last
from etscope.etdb.targets.remote_tensor import RemoteTensor, raw_bytes
from etscope.etdb.targets.target import Stop
from etscope.formats.json_values import JsonValue
from etscope.model.graph import SourceLine

_RUN, _OTHER = 1, 2  # threads: the run, and the other side at the same operator
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
_MOST_READ = 1 << 20  # bytes of a tensor in one answer; the client asks for the next ones
_MOST_INSTRUCTIONS = 10_000  # in one answer
_CAPABILITIES: dict[str, Any] = dict.fromkeys(
    (
        "supportsConfigurationDoneRequest", "supportsFunctionBreakpoints",
        "supportsConditionalBreakpoints", "supportsHitConditionalBreakpoints",
        "supportsEvaluateForHovers", "supportsStepBack", "supportsSetVariable",
        "supportsSetExpression", "supportsRestartRequest", "supportsExceptionInfoRequest",
        "supportsExceptionFilterOptions", "supportsLogPoints",
        "supportsLoadedSourcesRequest", "supportsModulesRequest", "supportsTerminateRequest",
        "supportsDataBreakpoints", "supportsCompletionsRequest", "supportsGotoTargetsRequest",
        "supportsInstructionBreakpoints", "supportsDisassembleRequest", "supportsRestartFrame",
        "supportsReadMemoryRequest", "supportsCancelRequest",
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
        self._thread = _RUN  # that the client moves
        self._files: list[str] = []  # of sources without a file, by their reference
        self._is_over = False
        self._taken = threading.Lock()
        self._current: Any = None  # `seq` of the request that is answered
        self._cancelled: set[int] = set()
        self._shows_progress = False

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
                if (number := message.get("seq")) in list(self._cancelled):
                    self._cancelled.discard(number)
                    self._channel.respond(message, failure=UsageError("cancelled"))
                    continue
                self._current = number
                self._answer(message)
                self._current = None
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
                if message.get("command") == "cancel":
                    self._cancel(message)
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

    def _cancel(self, message: dict[str, Any]) -> None:
        """Drop a request that waits, or interrupt the run that goes on for it. What else goes on
        comes to its end."""
        arguments = message.get("arguments")
        number = arguments.get("requestId") if isinstance(arguments, dict) else None
        self._channel.respond(message)
        if isinstance(number, int):
            self._cancelled.add(number)
            while number == self._current:  # its run may not have begun
                target = None if self._session is None else self._session.debugger.target
                if target is not None:
                    target.interrupt()
                time.sleep(_PRESS_SECONDS)

    def _answer(self, message: dict[str, Any]) -> None:
        self._after = _nothing
        command = message.get("command")
        try:
            handler = REQUESTS.get(command) if isinstance(command, str) else None
            if handler is None:
                raise UsageError(f"etdb does not know the request {command!r}")
            body = handler(self, JsonValue(message.get("arguments") or {}))
        except EtscopeError as error:
            self._channel.respond(message, failure=error)
            return
        except Exception as error:  # an adapter that dies would take the session with it
            self._channel.respond(message, failure=RuntimeError(f"a bug of etdb: {error!r}"))
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

        paths = given_or_last(arguments.texts("files"))
        inputs = arguments.texts("inputs")
        if not paths:
            raise UsageError(
                "no run is kept here: name the files to debug",
                hint='"files": ["model.etrecord", "model.pte"]',
            )
        session = Session(
            *paths,
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

    def leave(self, arguments: JsonValue, line: str) -> None:
        """Move by a command when the request is answered."""
        _ = self.session  # raises
        thread = arguments.optional("threadId", JsonValue.whole)
        self._thread = _OTHER if thread == _OTHER and self.other else _RUN
        self._after = lambda: self.move(line)

    @property
    def other(self) -> str:
        """The function of expressions that gives values of the other side: the reference beside the
        device, the recorded run beside the reference. "" without one."""
        debugger, target = self.debugger, self.debugger.target
        if target is None or not target.is_reference:
            return "ref" if target is not None and debugger.can_compare else ""
        return "device" if debugger.recorded is not None else ""

    def select_frame(self, number: int) -> tuple[int, str]:
        """Make a frame of the client the session's. Returns its place in the stack, and the
        function of its side, as `other`."""
        place, side = divmod(max(number, 1) - 1, 2)
        stop = self.debugger.stop
        if stop is not None and place < len(frames_of(stop)):
            self.debugger.frame, self.debugger.level = place, level_of_frame(stop, place)
        return place, self.other if side else ""

    def path_of(self, arguments: JsonValue) -> str:
        """The path of a request's source: the client's, or of the number that it has for it."""
        source = arguments.get("source")
        path = source.optional("path", JsonValue.text) or ""
        number = source.optional("sourceReference", JsonValue.whole) or 0
        return self._files[number - 1] if not path and 0 < number <= len(self._files) else path

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
        self._channel.event("stopped", **stopped_body(stopped, self._thread))

    def source_of(self, line: SourceLine) -> dict[str, Any]:
        """A file as the client opens it: by its path, or by a number if it is not here."""
        source: dict[str, Any] = {"name": PurePath(line.file).name, "path": line.file}
        if not Path(line.file).is_file():
            if line.file not in self._files:
                self._files.append(line.file)
            source["sourceReference"] = self._files.index(line.file) + 1
            source["origin"] = "the lines in the ETRecord"
        return source


def stopped_body(stopped: Stopped, thread: int) -> dict[str, Any]:
    """The body of the event for a stop."""
    body: dict[str, Any] = {
        "reason": stopped.reason,
        "threadId": thread,
        "allThreadsStopped": True,
    }
    if stopped.text:
        body["text"] = stopped.text
    if stopped.reason == END:  # else editors say "Paused on breakpoint", which leaves room
        body["description"] = stopped.text
    if stopped.breakpoints:
        body["hitBreakpointIds"] = list(stopped.breakpoints)
    return body


# -- the session


@request("initialize")
def _initialize(adapter: Adapter, arguments: JsonValue) -> Body:
    adapter._shows_progress = bool(arguments.optional("supportsProgressReporting", JsonValue.flag))
    return {**_CAPABILITIES, "exceptionBreakpointFilters": filters()}


@request("launch")
@request("attach")
def _launch(adapter: Adapter, arguments: JsonValue) -> Body:
    if not adapter._shows_progress:
        adapter.open(arguments)
        return None
    about = {"progressId": f"start {adapter._current}"}
    adapter._channel.event("progressStart", title="etdb: opening the files", **about)
    try:
        adapter.open(arguments)
    finally:
        adapter._channel.event("progressEnd", **about)
    return None


@request("configurationDone")
@request("restart")
def _begin(adapter: Adapter, arguments: JsonValue) -> Body:
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
    path = adapter.path_of(arguments)
    return _set(adapter, lambda points: points.set_lines(path, arguments.entries("breakpoints")))


@request("setFunctionBreakpoints")
def _set_functions(adapter: Adapter, arguments: JsonValue) -> Body:
    return _set(adapter, lambda points: points.set_functions(arguments.entries("breakpoints")))


@request("setInstructionBreakpoints")
def _set_instructions(adapter: Adapter, arguments: JsonValue) -> Body:
    return _set(adapter, lambda points: points.set_instructions(arguments.entries("breakpoints")))


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
        adapter.leave(arguments, line)
        return {"allThreadsContinued": True} if command == "continue" else None


for _command, _line in _MOVES.items():
    _moving(_command, _line)


@request("restartFrame")
def _restart_frame(adapter: Adapter, arguments: JsonValue) -> Body:
    adapter.select_frame(arguments.get("frameId").whole())
    adapter.leave(arguments, "restart")
    return None


@request("gotoTargets")
def _goto_targets(adapter: Adapter, arguments: JsonValue) -> Body:
    debugger, line = adapter.debugger, arguments.get("line").whole()
    selector = picked_line(debugger, adapter.path_of(arguments), line).selector
    targets = [
        {
            "id": stop.position,
            "label": stop_lines(debugger, stop)[0],
            "line": line,
            **_pointer(stop),
        }
        for stop in debugger.some_target().stops
        if selector.matches(fields_of_stop(stop))
    ]
    return {"targets": targets}


@request("goto")
def _goto(adapter: Adapter, arguments: JsonValue) -> Body:
    adapter.leave(arguments, f"goto {arguments.get('targetId').count()}")
    return None


@request("pause")
def _pause(adapter: Adapter, arguments: JsonValue) -> Body:
    _ = adapter.session  # raises; the reader has interrupted the run already
    return None


# -- looking


@request("threads")
def _threads(adapter: Adapter, arguments: JsonValue) -> Body:
    if adapter._session is None or adapter.debugger.target is None:
        return {"threads": [{"id": _RUN, "name": "no run"}]}
    target = adapter.debugger.some_target()
    names = [f"{target.method or 'method'}, run {target.run} ({target.kind})"]
    names += {"ref": ["the same in PyTorch"], "device": ["the recorded run"], "": []}[adapter.other]
    return {"threads": [{"id": at, "name": name} for at, name in enumerate(names, _RUN)]}


def _pointer(stop: Stop) -> dict[str, str]:
    number = stop.instruction
    return {} if number is None else {"instructionPointerReference": str(number)}


@request("stackTrace")
def _stack_trace(adapter: Adapter, arguments: JsonValue) -> Body:
    debugger = adapter.debugger
    side = int(arguments.optional("threadId", JsonValue.whole) == _OTHER)
    stop = debugger.stop
    if stop is None:
        where = "the run is over" if debugger.ended else "the run has not begun"
        end: dict[str, Any] = {"id": side + 1, "name": where, "line": 0, "column": 0}
        # Editors show variables only of a frame with a line: here that of the model's end.
        if debugger.ended and debugger.position is not None:
            for line in frames_of(debugger.some_target().stops[debugger.position])[-1:]:
                end |= {"line": line.line, "column": 1, "source": adapter.source_of(line)}
        return {"stackFrames": [end], "totalFrames": 1}
    lines = frames_of(stop) or [line for line in [line_of(stop)] if line is not None]
    modules = modules_of(stop)
    operator = stop.node or stop.name
    found = []
    for number, line in enumerate(lines):
        one: dict[str, Any] = {"id": 2 * number + side + 1, "line": line.line, "column": 1,
                               "source": adapter.source_of(line)}  # fmt: skip
        one["name"] = function = line.function or "module"
        if not number:
            one |= {"name": f"{operator} in {function}", **_pointer(stop)}
        if modules:
            path, kind = modules[level_of_frame(stop, number)]
            one["moduleId"] = path or "(root)"
            one["name"] += f" ({path or '(root)'}: {kind})"
        found.append(one)
    found = found or [{"id": side + 1, "name": operator, "line": 0, "column": 0, **_pointer(stop)}]
    first = arguments.optional("startFrame", JsonValue.whole) or 0
    count = arguments.optional("levels", JsonValue.whole) or len(found)
    return {"stackFrames": found[first : first + count], "totalFrames": len(found)}


@request("scopes")
def _scopes(adapter: Adapter, arguments: JsonValue) -> Body:
    place, other = adapter.select_frame(arguments.get("frameId").whole())
    if adapter.debugger.stop is None and not adapter.debugger.ended:
        return {"scopes": []}
    return {"scopes": adapter.variables.scopes(other, place)}


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
    context = arguments.optional("context", JsonValue.text)
    if (frame := arguments.optional("frameId", JsonValue.whole)) is not None:
        frame, _ = adapter.select_frame(frame)
    if context == "repl":
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
    # What the mouse is over is a name of Python; a watch has names of nodes first.
    scope = DebuggerScope(adapter.debugger, frame if context == "hover" else None)
    described = adapter.variables.described(evaluate(parse(text), scope), text)
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


@request("readMemory")
def _read_memory(adapter: Adapter, arguments: JsonValue) -> Body:
    """The reference of a tensor is its expression; its bytes are counted from 0."""
    expression = arguments.get("memoryReference").text()
    value = evaluate(parse(expression), DebuggerScope(adapter.debugger))
    if not isinstance(value, (np.ndarray, np.generic, RemoteTensor)):
        raise UsageError(f"{expression} is not a tensor")
    offset = arguments.optional("offset", JsonValue.whole) or 0
    count = min(arguments.get("count").count(), _MOST_READ)
    body: dict[str, Any] = {"address": str(offset)}
    if not 0 <= offset < value.nbytes:
        return {**body, "unreadableBytes": count}
    data = raw_bytes(value, offset, count)
    return {**body, "data": base64.b64encode(data).decode()}


@request("disassemble")
def _disassemble(adapter: Adapter, arguments: JsonValue) -> Body:
    """An address is the number of an instruction, and each is one byte long."""
    records = instructions_of(adapter.debugger).records
    first = address_of(arguments, "memoryReference")
    first += arguments.optional("instructionOffset", JsonValue.whole) or 0
    count = min(arguments.get("instructionCount").count(), _MOST_INSTRUCTIONS)
    target = adapter.debugger.target
    stops = {} if target is None else {stop.instruction: stop for stop in target.stops}
    found: list[dict[str, Any]] = []
    for number in range(first, first + count):
        if not 0 <= number < len(records):
            found.append({"address": str(number), "instruction": "", "presentationHint": "invalid"})
            continue
        record, stop = records[number], stops.get(number)
        one: dict[str, Any] = {"address": str(number)}
        one["instruction"] = f"{record.event or record.label}  {values_text(record)}"
        if stop is not None and (line := line_of(stop)) is not None:
            one |= {"location": adapter.source_of(line), "line": line.line, "column": 1}
            one["symbol"] = stop.node or stop.name
        found.append(one)
    return {"instructions": found}


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
