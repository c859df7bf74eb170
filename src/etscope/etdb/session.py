"""A session executes command lines, for the prompt, scripts, notebooks and tests."""

from __future__ import annotations

import functools
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.graphs.linked_graph import short_name
from etscope.analysis.metrics import METRICS
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import module_path
from etscope.capture.files import NOTHING, RunFiles
from etscope.capture.kept_runs import KeptRuns, path_of
from etscope.errors import EtscopeError, UsageError, reading
from etscope.etdb.commands import COMMANDS, Command, find_command
from etscope.etdb.commands.info import SELECTED
from etscope.etdb.commands.running import GROUP as RUNNING
from etscope.etdb.cores import after_death
from etscope.etdb.debugger import Block, Debugger, with_files
from etscope.etdb.expression import ATTRIBUTES, METHODS, evaluate, parse
from etscope.etdb.output import Output, error_text, json_of, text_of
from etscope.etdb.protocol.messages import RunnerDied
from etscope.etdb.python_code import known_lines
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.targets.remote_tensor import RemoteTensor
from etscope.model.graph import stem
from etscope.model.selector import KEYS
from etscope.units import count as counted

_PROMPT, _CONTINUED = "(etdb) ", "> "
_DEEPEST_SCRIPT = 10  # ends a script that runs itself before Python's stack ends
_MOST_COMPLETIONS = 200  # more than a terminal shows


class InternalError(EtscopeError):
    """A bug in the debugger. The command ends, the session continues. `__cause__` has the
    traceback."""

    exit_code = 70
    slug = "bug"


@dataclass(frozen=True)
class Result:
    """The result of a line: `text` as displayed, `data` as plain values. prompt: the prompt after
    which the line was typed.
    """

    line: str
    answer: Output
    error: EtscopeError | None = None
    prompt: str = _PROMPT

    @property
    def ok(self) -> bool:
        """True if the command succeeded; for `source`, all commands of the file."""
        return self.error is None and self.answer.code in (0, 1)

    @property
    def exit_code(self) -> int:
        """0; 1 when a run stopped at a condition; the error's exit code if it failed."""
        if self.error is not None:
            return self.error.exit_code
        return self.answer.code or (1 if self.answer.finding else 0)

    @property
    def text(self) -> str:
        """The output as text, followed by the error."""
        shown = text_of(self.answer)
        return shown if self.error is None else f"{shown}{error_text(self.error)}\n"

    @property
    def data(self) -> list[dict[str, Any]]:
        """The parts of the output: {"text": …}, {"facts": …} or {"table": …, "rows": …}."""
        return json_of(self.answer)

    def __repr__(self) -> str:
        return self.text.rstrip("\n")


class Session:
    """The debugger for programs and notebooks: `Session("model.etrecord", "run.etdp")`.

    paths: an ETRecord, an ETDump, a debug buffer (after its dump), a .pte or .bpte, or a folder of
    `etscope run --save` with them, in any number and order. debug_buffer: a debug buffer whose name
    does not end in .bin. inputs: the reference's inputs, as the model takes them; by default the
    record's. force: continue although files do not belong together. source_unit: the unit of the
    runtime's clock.

    Each command is a method that takes the rest of its line: `session.break_("op:conv")`,
    `session.reverse_step()`; `execute` takes whole lines. Errors of a command are in its `Result`.
    `value` gives the value of an expression as a numpy array.
    """

    def __init__(
        self,
        *paths: str | os.PathLike[str],
        debug_buffer: str | os.PathLike[str] | None = None,
        inputs: Any = None,
        force: bool = False,
        source_unit: str = "ns",
    ) -> None:
        files = with_files(
            NOTHING,
            *(os.fspath(path) for path in paths),
            debug_buffer=None if debug_buffer is None else os.fspath(debug_buffer),
        )
        self.debugger = Debugger(files, inputs=inputs, forced=force, source_unit=source_unit)
        self._last: str | None = None
        self._scripts = 0

    def close(self) -> None:
        """Close the target: end the runner of a run on the runtime."""
        self.debugger.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def prompt(self) -> str:
        """The prompt of the next line; ">" inside `commands` and `define`."""
        return _PROMPT if self.debugger.block is None else _CONTINUED

    def value(self, expression: str = "$") -> Any:
        """The value of an expression at the current stop: a tensor as a numpy array, several as a
        list of them, anything else as a plain value.

        Raises the `EtscopeError` that `print` reports."""
        return _fetched(evaluate(parse(expression), DebuggerScope(self.debugger)))

    def execute(self, line: str) -> Result:
        """Execute a line. An empty one repeats the last command if it is one like `step`. Errors
        are returned in the result.

        Lines after `commands` and `define` are kept, up to `end`."""
        line, recording = line.strip(), self.debugger.recording
        if self.debugger.block is not None:
            result = self._typed(self.debugger.block, line)
            self._log(line, result, recording)
            return result
        if not line:
            if self._last is None:
                return Result(line, Output())
            line = self._last
        if line.startswith("#"):
            return Result(line, Output())
        self.debugger.hit = None
        result = self._after_hit(self._executed(line))
        self._log(line, result, recording)
        return result

    def run_script(self, lines: Iterable[str], say: Callable[[Result], Any]) -> int:
        """Execute the lines of a script up to a `quit`, and pass each result to `say`. Returns the
        first exit code that is not 0.

        The lines of a `commands` or `define` that fails are skipped, up to `end`."""
        code = 0
        for line in lines:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            result = self.execute(line)
            if result.error is not None and self._takes_lines(result.line):
                self.debugger.block = Block(result.line, lambda lines: None)
            say(result)
            code = code or result.exit_code
            if result.answer.ends:
                break
        block, self.debugger.block = self.debugger.block, None
        if block is not None:
            result = Result(block.title, Output(), UsageError(f"{block.title}: no end follows"))
            say(result)
            code = code or result.exit_code
        return code

    def _takes_lines(self, line: str) -> bool:
        """Return True for a command that takes the following lines."""
        try:
            is_defined = line.partition(" ")[0] in self.debugger.defined
            return not is_defined and split(line)[0].takes_lines
        except UsageError:
            return False

    def _typed(self, block: Block, line: str) -> Result:
        """Take a line of a block; `end` ends it."""
        if line == "end":
            self.debugger.block = None
            try:
                block.keep(tuple(block.lines))
            except UsageError as error:  # its breakpoint is gone
                return Result(line, Output(), error, _CONTINUED)
        elif line and not line.startswith("#"):
            block.lines.append(line)
        return Result(line, Output(), prompt=_CONTINUED)

    def _after_hit(self, result: Result) -> Result:
        """Execute the commands of the breakpoint that was hit, and of those that they lead to."""
        line, output, error = result.line, result.answer, result.error
        while error is None and (hit := self.debugger.hit) is not None and hit.commands:
            self.debugger.hit = None
            lines = list(hit.commands)
            if lines[0] == "silent":
                lines.pop(0)
                del output.items[len(output.items) - len(result.answer.items) :]
            for own in lines:
                result = self._executed(own)
                output.add(result.answer)
                error = result.error
                if error is not None or output.ends or _runs_on(own) or self.debugger.hit:
                    break
        return Result(line, output, error)

    def _executed(self, line: str) -> Result:
        output = Output()
        try:
            word, _, arguments = line.partition(" ")
            if word in self.debugger.defined:
                self._last = None
                return self._scripted(line, _with_arguments(self.debugger.defined[word], arguments))
            one, rest = split(line)
            self._last = line if one.repeats else None
            if one.name == "source":
                if not rest:
                    raise UsageError("source which file?")
                return self._scripted(line, read_script(rest))
            if one.name == "replay":
                if not rest:
                    raise UsageError("replay which file?")
                return Result(line, self._replayed(rest))
            output = one.function(self.debugger, rest)
        except RunnerDied as error:
            return Result(line, self._news(output), after_death(self.debugger, error))
        except EtscopeError as error:
            return Result(line, self._news(output), error)
        except RecursionError:
            return Result(line, output, UsageError("this is nested too deeply"))
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            internal = InternalError(
                f"{type(error).__name__}: {reason}".removesuffix(": "),
                hint="this is a bug in etscope; please report it",
            )
            internal.__cause__ = error
            return Result(line, output, internal)
        return Result(line, self._news(output))

    def _news(self, output: Output) -> Output:
        """Append the target's messages. An operator that gave a different result when it was
        repeated is a finding."""
        target, news = self.debugger.target, []
        if target is not None:
            news = target.take_news()
            output.finding = output.finding or bool(news and target.differences)
        return output.say(*news, *self.debugger.take_news())

    def _scripted(self, line: str, lines: Iterable[str]) -> Result:
        """Execute the lines of a script or of a defined command, and combine their outputs."""
        output = Output()

        def keep(result: Result) -> None:
            output.add(result.answer)
            if result.error is not None:
                output.say(error_text(result.error))

        output.code = self._nested(lines, keep)
        return Result(line, output)

    def _nested(self, lines: Iterable[str], say: Callable[[Result], Any]) -> int:
        """Run a script inside a line, see `run_script`."""
        if self._scripts >= _DEEPEST_SCRIPT:
            raise UsageError("scripts that run each other are nested too deeply")
        self._scripts += 1
        try:
            return self.run_script(lines, say)
        finally:
            self._scripts -= 1

    def _log(self, line: str, result: Result, path: str | None) -> None:
        """Keep a line, and write it to the record that it found open."""
        if self._scripts:
            return
        self.debugger.executed.append(f"{result.prompt}{line}")
        if path is None or self.debugger.recording is None:
            return
        try:
            with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{result.prompt}{line}\n{result.text}")
        except OSError as error:
            self.debugger.recording = None
            result.answer.say(f"the record ends: cannot write to {path}: {error.strerror}")

    def _replayed(self, path: str) -> Output:
        """Execute the lines of a record, and show what they say in another way than there."""
        typed: list[str] = []
        said: list[list[str]] = []
        for line in read_script(path):
            if line.startswith(_PROMPT) or (said and not said[-1] and line.startswith(_CONTINUED)):
                typed.append(line.removeprefix(_PROMPT).removeprefix(_CONTINUED))
                said.append([])
            elif said:
                said[-1].append(line)
        results: list[Result] = []
        self.debugger.shows_times = False
        self._nested(typed, results.append)
        output = Output()
        differ = [
            (result, was)
            for result, was in zip(results, said, strict=False)
            if result.text.splitlines() != was
        ]
        for result, was in differ:
            changes = ndiff(was, result.text.splitlines())
            output.say(f"{result.prompt}{result.line}")
            output.say(*(f"  {line}" for line in changes if line[0] in "+-"))
        output.finding = bool(differ) or len(results) < len(typed)
        return output.say(
            f"{len(results) - len(differ)} of {counted(len(typed), 'line')} as recorded"
        )

    def __getattr__(self, name: str) -> Callable[..., Result]:
        word = name.rstrip("_").replace("_", "-")
        one = COMMANDS.get(word)
        if name.startswith("_") or one is None:
            raise AttributeError(f"{type(self).__name__!r} has no command or attribute {name!r}")

        def do(*arguments: object) -> Result:
            return self.execute(" ".join([word, *map(str, arguments)]))

        functools.update_wrapper(do, one.function)
        do.__name__ = name
        return do

    def __dir__(self) -> list[str]:
        import keyword

        names = [name.replace("-", "_") for name in COMMANDS]
        own = [f"{name}_" if keyword.iskeyword(name) else name for name in names]
        return [*super().__dir__(), *own]


def given_or_last(files: Sequence[str]) -> list[str]:
    """The paths of the files to debug, "@N" among them; without any, of the last kept run, if there
    is one."""
    kept = KeptRuns()
    if not files and not kept.is_off():
        return [str(run.path) for run in kept.newest_first()[:1]]
    return [path_of(os.path.expanduser(file)) for file in files]  # noqa: PTH111 (never fails)


def session_of_trace(trace: Trace, *, inputs: Any, source_unit: str) -> Session:
    """A session on the open files of an `Inspector`."""
    session = Session(inputs=inputs, force=trace.forced, source_unit=source_unit)
    session.debugger.use(
        RunFiles.given(
            dump=trace.dump.path,
            record=getattr(trace.record, "path", None),
            debug_buffer=getattr(trace.debug_buffer, "path", None),
        ),
        trace,
    )
    return session


def split(line: str) -> tuple[Command, str]:
    """Split a line into its command and the rest. `x/8f a` and `list/e` need no space."""
    word, _, rest = line.partition(" ")
    word, slash, options = word.partition("/")
    return find_command(word), f"{slash}{options} {rest}".strip() if slash else rest.strip()


def read_script(path: str) -> list[str]:
    with reading("script", path):
        return Path(path).read_text(encoding="utf-8").splitlines()


def _runs_on(line: str) -> bool:
    """Return True for a command that continues the run."""
    try:
        return split(line)[0].group == RUNNING
    except UsageError:
        return False


def _with_arguments(lines: Iterable[str], arguments: str) -> list[str]:
    """Put the arguments of a defined command into its lines."""
    words = arguments.split()

    def word(match: re.Match[str]) -> str:
        number = int(match[1])
        if number >= len(words):
            raise UsageError(f"{match[0]} is not given", hint=f"{len(words)} arguments are")
        return words[number]

    lines = [line.replace("$args", arguments.strip()) for line in lines]
    return [re.sub(r"\$arg(\d+)", word, line) for line in lines]


def _fetched(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_fetched(one) for one in value]
    return np.asarray(value) if isinstance(value, RemoteTensor) else value


# -- completion


class Completer:
    """Completes lines of a session. The names of a graph are sorted once, so that a prefix is found
    quickly among thousands."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._sorted: dict[tuple[str, object], list[str]] = {}

    def complete(self, line: str) -> tuple[str, list[str]]:
        """The word at the end of `line`, and its completions in order."""
        head, _, _ = line.partition(" ")
        if " " not in line:
            names = (*COMMANDS, *self._debugger.defined)
            return line, sorted(name for name in names if name.startswith(line))
        try:
            one = find_command(head.partition("/")[0])
        except EtscopeError:
            return _last_word(line), []
        # File names contain operators of expressions.
        is_file = "file" in one.words
        word = line.rpartition(" ")[2] if is_file else _last_word(line)
        found: dict[str, None] = {}
        words = one.words
        if one.name == "info" and re.match(rf"\S+ ({'|'.join(SELECTED)}) ", line):
            words = ("selector",)
        elif "selector" in words and " if " in line:
            words = ("node",)
        for what in words:
            found.update(dict.fromkeys(self._of(what, word)))
            if len(found) > _MOST_COMPLETIONS:
                break
        return word, list(found)[:_MOST_COMPLETIONS]

    def _of(self, what: str, word: str) -> Iterable[str]:
        try:
            if what == "file":
                folder, _, name = word.rpartition("/")
                # `Path.expanduser` fails without a home folder.
                path = os.path.expanduser(folder or ("/" if word.startswith("/") else "."))  # noqa: PTH111
                head = f"{folder}/" if "/" in word else ""
                return sorted(
                    f"{head}{entry.name}{'/' if entry.is_dir() else ''}"
                    for entry in Path(path).iterdir()
                    if entry.name.startswith(name) and (name or not entry.name.startswith("."))
                )[:_MOST_COMPLETIONS]
            if what == "command":
                return _starting(sorted(COMMANDS), word)
            if what == "metric":
                return _starting(sorted(METRICS), word)
            if what == "breakpoint":
                return _starting([str(one.number) for one in self._debugger.breakpoints], word)
            if what == "checkpoint" and not what.startswith(word or "?"):
                return _starting([str(number) for number in self._debugger.checkpoints], word)
            if what == "selector":
                return self._selectors(word)
            if what == "node" and (part := self._part_of_expression(word)) is not None:
                return part
            if what == "file_line" and ":" in word:
                return _starting(self._names("line"), word)
            if what in ("node", "module", "op", "graph", "file_line"):
                return _starting(self._names(what), word)
        except (EtscopeError, OSError, ValueError):
            return []
        return [what] if what.startswith(word) else []

    def _part_of_expression(self, word: str) -> Iterable[str] | None:
        """Complete a method after a dot, or the name of a weight in quotes; None for others."""
        if word[:1] in ("'", '"'):
            return [
                f"{word[0]}{name}{word[0]}" for name in _starting(self._names("weight"), word[1:])
            ]
        value, dot, part = word.rpartition(".")
        if not dot or not value:
            return None
        names = sorted({*(f"{name}(" for name in METHODS), *ATTRIBUTES})
        return [f"{value}.{name}" for name in _starting(names, part)]

    def _selectors(self, word: str) -> Iterator[str]:
        key, colon, rest = word.partition(":")
        if not colon:
            yield from _starting(sorted(f"{name}:" for name in KEYS), word)
            yield from _starting(self._names("node"), word)
            yield from _starting(self._names("file"), word)
        elif key not in KEYS:
            yield from _starting(self._names("line"), word)
        elif key in ("op", "module", "type", "file", "delegate"):
            for name in _starting(self._names(key), rest):
                yield f"{key}:{name}"

    def _names(self, what: str) -> list[str]:
        debugger = self._debugger
        key = (what, (id(debugger.capture), debugger.graph, debugger.method))
        if key not in self._sorted:
            self._sorted[key] = sorted(set(self._all(what)))
        return self._sorted[key]

    def _all(self, what: str) -> Iterator[str]:
        debugger = self._debugger
        record = debugger.record
        if what == "graph":
            yield from map(short_name, () if record is None else record.graph_names)
            return
        if what in ("file", "file_line"):
            for file in known_lines(debugger):
                yield Path(file).name
            return
        if what == "line":
            for file, lines in known_lines(debugger).items():
                yield from (f"{Path(file).name}:{number}" for number in lines)
            return
        if record is None:
            for stop in debugger.target.stops if debugger.target is not None else ():
                yield from [stop.name] if what == "node" else [stop.op] if what == "op" else []
            return
        linked = debugger.linked()
        if what == "delegate":
            yield from linked.backends.values()
            return
        if what == "weight":
            yield from linked.graph.parameters.values()
            return
        for node in linked.graph.walk():
            if what == "node":
                yield node.name
            elif what == "op" and node.kind == "call_function":
                yield node.op
                yield stem(node.op)
            elif what == "module":
                yield module_path(node) or ""
            elif what == "type" and node.modules:
                yield node.modules[-1].type.rpartition(".")[2]


def _starting(names: list[str], word: str) -> Iterator[str]:
    """Names with a prefix, of sorted ones."""
    at = bisect_left(names, word)
    while at < len(names) and names[at].startswith(word):
        if names[at]:
            yield names[at]
        at += 1


def _last_word(line: str) -> str:
    start = max(line.rfind(separator) for separator in " ()[],+-*<>=")
    return line[start + 1 :]
