"""The state of a session: files, target, current stop, breakpoints and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.graphs.node_costs import NodeTimes, node_times
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import record_methods
from etscope.capture.files import BUFFER_SUFFIXES, DEBUG_BUFFER, NOTHING, RunFiles, run_of_files
from etscope.errors import EtscopeError, FormatError, MissingDataError, UsageError
from etscope.etdb.breakpoints import Breakpoint, Breakpoints
from etscope.etdb.expression import Expression
from etscope.etdb.targets.recorded import NO_DUMP, NO_DUMP_HINT, NO_TARGET_HINT, RecordedRuns
from etscope.etdb.targets.reference import (
    Background,
    ReferenceProgram,
    ReferenceTarget,
    ReferenceValues,
    inputs_of,
    sets_of,
    torch_loading,
)
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.target import Stop, Target, edge_graph, linked_once, open_record
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTD, PTE, identify
from etscope.formats.program.pte import Program
from etscope.formats.run_json import dump_with_values
from etscope.model.graph import Node

PLAIN_COLUMNS = 90  # of lines of numbers, without a terminal
_ROLES = {ETRECORD: "record", ETDUMP: "dump", PTE: "program", BPTE: "program"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state of a run to go back to. saved: the state that `restore` of the target needs. where:
    the stop, as text."""

    saved: Any
    run: int
    position: int
    ended: bool
    where: str


# Why a move ended: the words of the Debug Adapter Protocol, and one of our own.
STEP, BREAKPOINT, EXCEPTION, PAUSE, ENTRY = "step", "breakpoint", "exception", "pause", "entry"
GOTO, END = "goto", "end of the run"
OF_AN_ORIGIN = ("data", "function", "instruction")  # each followed by "breakpoint"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why the last move of the run ended. reason: one of the words above. text: for the user.
    breakpoints: numbers of those that were hit."""

    reason: str
    text: str = ""
    breakpoints: tuple[int, ...] = ()


@dataclass
class Block:
    """Lines that are typed one by one, up to `end`. title: the command that they belong to. keep: a
    function that gets the lines.
    """

    title: str
    keep: Callable[[tuple[str, ...]], None]
    lines: list[str] = field(default_factory=list)


@dataclass
class Debugger:
    """Everything that commands read and change.

    files: the open files, read into `capture`; a part of an Inspector's trace may have no file.
    forced: continue although files do not belong together. inputs: a run's inputs, in any form that
    `etscope.run` takes, or `Calls` with several sets; None for the inputs of the recorded run or
    the record. recorded: the runs of the dump, even if another target is selected. position: the
    position of the current stop; None before the run starts. ended: True if the run went past its
    last stop. level: how many modules `up` went above the operator. frame: index of the selected
    Python frame. file_shown: the file of the line that was shown last. graph: name of the selected
    graph; None for the edge graph of the method. hit: the breakpoint that ended the last command.
    block: the lines typed so far of an unfinished block. defined: commands that the user defined,
    by name. recording: the path of the session's record. executed: the lines of the session.
    checkpoints: the target's checkpoints, by number.
    columns: a function that returns the width for lines of numbers.
    """

    files: RunFiles = NOTHING
    inputs: Any = None
    forced: bool = False
    capture: Trace | Export = field(default_factory=Export)
    source_unit: str = "ns"
    target: Target | None = None
    recorded: RecordedRuns | None = None
    shows_times: bool = True
    position: int | None = None
    ended: bool = False
    level: int = 0
    frame: int = 0
    file_shown: str | None = None
    graph: str | None = None
    breakpoints: Breakpoints = field(default_factory=Breakpoints)
    hit: Breakpoint | None = None
    stopped: Stopped | None = None
    logged: list[str] = field(default_factory=list)
    block: Block | None = None
    defined: dict[str, tuple[str, ...]] = field(default_factory=dict)
    displays: dict[int, Expression] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    selected: list[str] = field(default_factory=list)
    selected_at: int = -1
    recording: str | None = None
    executed: list[str] = field(default_factory=list)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    last_checkpoint: int = 0
    columns: Callable[[], int] = lambda: PLAIN_COLUMNS
    _named: tuple[LinkedGraph, Mapping[str, Node]] | None = None
    _program: tuple[LinkedGraph, Background[ReferenceProgram]] | None = None
    _loads_ahead: bool = False
    _is_awaited: bool = False  # the user has read that the reference is being loaded
    _reference: tuple[Target | None, int, ReferenceValues] | None = None

    def __post_init__(self) -> None:
        self.load(self.files)

    # -- files and targets

    def load(self, files: RunFiles) -> None:
        """Open files in place of the open ones. Raises as `RunFiles.open`."""
        # Without a dump, record and program are checked when the program runs.
        self.use(files, files.capture(force=self.forced or files.dump is None))

    def use(self, files: RunFiles, capture: Trace | Export) -> None:
        """Use files that are already open. The target becomes the recorded run of the dump, if
        there is one.
        """
        before = self.files, self.capture
        self.files, self.capture = files, capture
        try:
            self.recorded = None if self.trace is None else self.recorded_runs()
        except EtscopeError:
            self.files, self.capture = before
            raise
        self._reference = None
        self.begin(self.recorded)

    @property
    def trace(self) -> Trace | None:
        return self.capture.trace

    @property
    def record(self) -> RecordView | None:
        return self.capture.record

    @property
    def program(self) -> Program | None:
        """The open program, or the one in the record."""
        return self.capture.recorded_program

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the record or the program."""
        names = [] if self.record is None else list(record_methods(self.record))
        names += [] if self.program is None else [method.name for method in self.program.methods]
        return tuple(dict.fromkeys(names))

    @property
    def profiles(self) -> Mapping[str | None, MethodProfile]:
        """The times of each method that ran; see `profiles_of`."""
        return profiles_of(self.trace)

    def edge(self, method: str) -> LinkedGraph:
        """The edge graph of a method; the debugger uses names of its nodes."""
        return edge_graph(self.capture, method)

    def times_of(self, linked: LinkedGraph) -> NodeTimes | None:
        """The times of a graph's nodes; None if its method has none."""
        profile = self.profiles.get(linked.method)
        if profile is None:
            return None
        return self.capture.once(("etdb times", linked.name), lambda: node_times(linked, profile))

    def begin(self, target: Target | None) -> None:
        """Select a target, before its first stop. The previous one is closed."""
        before, self.target = self.target, target
        if before is not None and before is not target:
            before.close()
            self.checkpoints.clear()
        self.position, self.ended, self.level, self.frame = None, False, 0, 0

    def close(self) -> None:
        if self.target is not None:
            self.target.close()

    def follow_target(self) -> None:
        """Take over the position of a run that failed on its way or was interrupted: of an operator
        that failed, its own."""
        target = self.target
        failure = None if target is None else target.failure
        if failure is not None and failure.stop is not None:
            self.position, self.ended = failure.stop.position, False
        elif self.on_runtime is not None and self.on_runtime.position != self.position:
            self.position, self.ended = self.on_runtime.position, False

    def recorded_runs(self) -> RecordedRuns:
        """Open the runs of the dump. Raises `MissingDataError` without one."""
        if self.trace is None:
            raise MissingDataError(NO_DUMP, hint=NO_DUMP_HINT)
        return RecordedRuns(self.trace)

    def go_live(self, inputs: Any = None) -> ReferenceTarget:
        """Select the reference as target, and begin it."""
        method = self.method
        wanted = self.inputs if inputs is None else inputs
        calls = self.given(method, wanted) or inputs_of(self.capture, self.files.bundle, method)
        program = self.reference_program(method, calls)
        target = ReferenceTarget(self.edge(method), method, program, calls)
        self.inputs = wanted
        self.begin(target)
        return target

    @property
    def method(self) -> str:
        """The method of the target, or the main method."""
        if self.target is not None and self.target.method:
            return self.target.method
        methods = self.methods
        return "forward" if "forward" in methods or not methods else methods[0]

    @property
    def on_runtime(self) -> RuntimeTarget | None:
        """The target, if it is the program on the runtime."""
        return self.target if isinstance(self.target, RuntimeTarget) else None

    @property
    def scale(self) -> Scale:
        """Converts ticks of the clock to displayed times."""
        return Scale.of(self.source_unit)

    def some_target(self) -> Target:
        """The target. Raises `MissingDataError` without one."""
        if self.target is None:
            raise MissingDataError(NO_DUMP, hint=NO_TARGET_HINT)
        return self.target

    def linked(self) -> LinkedGraph:
        """The selected graph."""
        if self.graph is None:
            return self.edge(self.method)
        return linked_once(self.capture, self.graph)

    # -- where the run stands

    @property
    def stop(self) -> Stop | None:
        """The current stop, or the operator that failed; None before the first and after the
        last."""
        if self.target is None or self.position is None or self.ended:
            return None
        failed = None if self.target.failure is None else self.target.failure.stop
        if failed is not None and failed.position == self.position:
            return failed
        return self.target.stops[self.position]

    @property
    def failed(self) -> str | None:
        """The message of the operator that ended the selected run; None if none did."""
        target = self.some_target()
        return next((run.failed for run in target.runs if run.number == target.run), None)

    def here(self) -> Stop:
        """The current stop. Raises `UsageError` when there is none, `MissingDataError` without a
        target."""
        self.some_target()
        stop = self.stop
        if stop is None:
            over = "the run is over" if self.ended else "the run has not begun"
            raise UsageError(
                over, hint="start the run: run; or start, which stops at the first operator"
            )
        return stop

    @contextmanager
    def standing_at(self, position: int) -> Iterator[None]:
        """Treat a stop as the current one inside, to evaluate expressions there. Nothing runs."""
        before = self.position, self.ended
        self.position, self.ended = position, False
        try:
            yield
        finally:
            self.position, self.ended = before

    # -- values

    def given(self, method: str, inputs: Any = None) -> tuple[Any, ...]:
        """The user's inputs of each call, as a method takes them; () if there are none. inputs:
        others than the session's.

        Raises `MismatchError` for a file's inputs that do not fit the method."""
        from etscope.formats.torch_files.tensor_files import TensorFile

        found = []
        for given in sets_of(self.inputs if inputs is None else inputs):
            if isinstance(given, TensorFile):
                from etscope.run.inputs import file_inputs

                given = file_inputs(given, Export(self.program, self.record), method)
            found.append(given)
        return tuple(found)

    def reference_program(self, method: str, calls: object) -> ReferenceProgram:
        """The reference of a method, loaded once. Raises `MissingDataError` without a record, or
        without inputs in `calls`."""
        linked = self.edge(method)
        if not calls:
            raise MissingDataError(
                "the reference has no inputs to run on",
                hint="the record has no inputs for this method: give them with --inputs FILE, "
                "or target live FILE",
            )
        try:
            return self._loading(linked, open_record(self.capture)).result()
        except EtscopeError:
            self._program = None
            raise

    def _loading(self, linked: LinkedGraph, record: RecordView) -> Background[ReferenceProgram]:
        if self._program is None or self._program[0] is not linked:
            self._program = linked, Background(lambda: ReferenceProgram(record, linked))
        return self._program[1]

    def load_ahead(self) -> None:
        """Begin to load the reference in the background, for a session at a prompt: PyTorch when
        the session begins, the program once a run has begun.
        """
        from importlib.util import find_spec

        record = self.record
        if record is not None and find_spec("torch") is not None:
            self._loads_ahead = True
            torch_loading()
            if self.position is not None:
                self._loading(self.edge(self.method), record)

    @property
    def is_loading(self) -> bool:
        """True while the reference is loaded ahead."""
        return self._loads_ahead and self._program is not None and not self._program[1].is_over

    def tell_of_loading(self) -> str:
        """Explain that the reference is not there yet; `take_news` says when it is."""
        self._is_awaited = True
        return "being loaded; ref() waits for it, and Ctrl-C ends the wait"

    def take_news(self) -> list[str]:
        """Messages of logpoints and about the reference for the user, each returned once."""
        news, self.logged[:] = list(self.logged), []
        if self._is_awaited and not self.is_loading:
            self._is_awaited = False
            news.append("the reference is loaded")
        return news

    @property
    def reference(self) -> ReferenceValues:
        """The reference on the run's inputs, and in its state. Raises an `EtscopeError` if there is
        none."""
        target, run = self.target, 0 if self.target is None else self.target.run
        if self._reference is None or self._reference[:2] != (target, run):
            calls, bundle = self.given(self.method), self.files.bundle
            inputs = calls[0] if calls else None
            if target is not None:
                inputs = target.given_inputs(calls, bundle)
            if inputs is None:
                found = inputs_of(self.capture, bundle, self.method)
                inputs = found[0] if found else None
            program = self.reference_program(self.method, [] if inputs is None else [inputs])
            state: Mapping[str, Any] = {}
            if target is not None:
                state = program.state_after(lambda: target.earlier_inputs(calls, bundle))
            values = ReferenceValues(program.begin(inputs, state))
            self._reference = target, run, values
        return self._reference[2]

    @property
    def can_compare(self) -> bool:
        """True if there is a reference: it needs a record, inputs and PyTorch."""
        from importlib.util import find_spec

        if self.record is None or find_spec("torch") is None:
            return False
        if self.on_runtime is not None:
            return True
        return self.inputs is not None or bool(
            inputs_of(self.capture, self.files.bundle, self.method)
        )

    def node_named(self, name: str) -> Node:
        return self.nodes()[self.path_named(name)]

    def path_named(self, name: str) -> str:
        """Find the path of a node of the method's edge graph, or of one of its values. In a branch
        or the body of a loop, its own names come first, then names of the graphs around it, then
        the only path that ends in the name. "/NAME" names a node of the method's own graph.

        Raises `UsageError` with similar names.
        """
        nodes, stop = self.nodes(), self.stop
        around = (stop.path or "").split("/")[:-1] if stop is not None else []
        if name.startswith("/"):
            name, around = name[1:], []
        for depth in range(len(around), -1, -1):
            path = "/".join([*around[:depth], name])
            if path in nodes:
                return path
        inside = [path for path in nodes if path.endswith(f"/{name}")]
        if len(inside) == 1:
            return inside[0]
        if inside:
            raise UsageError(
                f"several values are called {name!r}",
                hint=" or ".join(f'value("{path}")' for path in inside[:4]),
            )
        close = get_close_matches(name, nodes, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "info ops lists the names"
        raise UsageError(f"no value is called {name!r}", hint=hint)

    def nodes(self) -> Mapping[str, Node]:
        """Nodes of the method's edge graph by their own and their values' names; in branches and
        lowered modules by path."""
        linked = self.edge(self.method)
        if self._named is None or self._named[0] is not linked:
            graph = linked.graph
            own = {node.name: node for node in graph.nodes}
            self._named = linked, {**graph.by_name, **own, **graph.calls}
        return self._named[1]


def profiles_of(trace: Trace | None) -> Mapping[str | None, MethodProfile]:
    """Return the times of each method that ran; for a method with several phases, of the phase that
    took most time. Empty without a dump or without times.
    """
    try:
        found = [] if trace is None else trace.profiles()
    except MissingDataError:
        found = []
    return {p.method: p for p in sorted(found, key=lambda profile: int(profile.total.sum()))}


# -- files


def with_files(files: RunFiles, *paths: str, debug_buffer: str | None = None) -> RunFiles:
    """Add files, identified by content; each replaces a file of the same kind, and a dump replaces
    also the debug buffer. debug_buffer: a debug buffer with any name.

    For a folder, the files of its run are added; if it has two dumps, the dump with values. If its
    run.etdp is given with a debug buffer, the values.etdp next to it is used instead.
    """
    kinds = {one: _kind_of(one) for path in paths for one in _files_of(path)}
    with_values = debug_buffer is not None or DEBUG_BUFFER in kinds.values()
    found: dict[str, Any] = {}
    for path, kind in kinds.items():
        if kind == ETDUMP:
            path = dump_with_values(path) if with_values else path
            found["debug_buffer"] = None
        found[_ROLES.get(kind, "debug_buffer")] = Path(path)
    if debug_buffer is not None:
        found["debug_buffer"] = Path(debug_buffer)
    return replace(files, **found)


def _files_of(path: str) -> list[str]:
    """Return the path, or the files of the run in a folder."""
    if not Path(path).is_dir():
        return [path]
    run = run_of_files([path])
    return [str(one) for one in (run.record, run.program, *run.logged) if one is not None]


def _kind_of(path: str) -> str:
    """Identify a file. A debug buffer has no signature: its name must say so."""
    try:
        kind = identify(path)
    except FormatError as error:
        if path.lower().endswith(BUFFER_SUFFIXES):
            return DEBUG_BUFFER
        raise UsageError(
            f"{path} is not an ETRecord, ETDump or program",
            hint="a debug buffer is given after its dump, by a name that ends in .bin "
            "(core RUN.etdp BUFFER.bin), or by any name with the option -b",
        ) from error
    if kind == PTD:
        raise UsageError(
            f"{path} holds external tensors (.ptd), not a run or a program",
            hint="a program with external tensors is run by: target runtime --data FILE.ptd",
        )
    return kind
