"""A session: lines in, answers out. The prompt, scripts, notebooks and tests all go through it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeError, UsageError
from etscope.etdb.commands.registry import COMMANDS, Command, find_command
from etscope.etdb.commands.targets import after_death
from etscope.etdb.debugger import Debugger
from etscope.etdb.files import Files
from etscope.etdb.output import Output, error_text, json_of, text_of
from etscope.etdb.protocol.messages import RunnerDied

_DEEPEST_SCRIPT = 10


class InternalError(EtscopeError):
    """A bug of the debugger: the command ends, and the session goes on. Its cause has the
    traceback."""

    exit_code = 70
    slug = "bug"


@dataclass(frozen=True)
class Result:
    """What came of a line. `text` is what a person sees, `data` the same as plain values."""

    line: str
    answer: Output
    error: EtscopeError | None = None

    @property
    def ok(self) -> bool:
        """Whether the command did what it was to do; of `source`, all commands of its file."""
        return self.error is None and self.answer.code in (0, 1)

    @property
    def exit_code(self) -> int:
        """0; 1 when a run stopped at what was looked for; that of the error if it failed."""
        if self.error is not None:
            return self.error.exit_code
        return self.answer.code or (1 if self.answer.finding else 0)

    @property
    def text(self) -> str:
        """The answer as text, and the error below it."""
        shown = text_of(self.answer)
        return shown if self.error is None else f"{shown}{error_text(self.error)}\n"

    @property
    def data(self) -> list[dict[str, Any]]:
        """The parts of the answer: {"text": …}, {"facts": …} or {"table": …, "rows": …}."""
        return json_of(self.answer)

    def __repr__(self) -> str:
        return self.text.rstrip("\n")


class Session:
    """The debugger for programs and notebooks: `Session("model.etrecord", "run.etdp")`.

    paths: an ETRecord, an ETDump, a debug buffer (after its dump), a .pte or .bpte, in any number
    and order. inputs: what the reference is run on, as the model takes it; by default the record's.
    force: go on though files do not belong together. source_unit: of the runtime's clock.

    Each command is a method that takes the rest of its line: `session.break_("op:conv")`,
    `session.reverse_step()`; `execute` takes whole lines. Errors of a command are in its `Result`.
    """

    def __init__(
        self,
        *paths: str | os.PathLike[str],
        inputs: Any = None,
        force: bool = False,
        source_unit: str = "ns",
    ) -> None:
        files = Files(forced=force).opened(*(os.fspath(path) for path in paths))
        self.debugger = Debugger(files, inputs=inputs, source_unit=source_unit)
        self._last: str | None = None
        self._scripts = 0

    @classmethod
    def of(cls, files: Files, *, inputs: Any = None, source_unit: str = "ns") -> Session:
        """A session on files that are open already."""
        session = cls.__new__(cls)
        session.debugger = Debugger(files, inputs=inputs, source_unit=source_unit)
        session._last, session._scripts = None, 0
        return session

    def close(self) -> None:
        """End what runs for the session elsewhere: the runner of a run on the runtime."""
        self.debugger.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(self, line: str) -> Result:
        """Do a command, and tell what came of it; an empty line does the last one again if it is
        one of those that go on. Errors do not leave the session."""
        line = line.strip()
        if not line:
            if self._last is None:
                return Result(line, Output())
            line = self._last
        if line.startswith("#"):
            return Result(line, Output())
        result = self._executed(line)
        self._log(line, result)
        return result

    def run_script(self, lines: Iterable[str], say: Callable[[Result], Any]) -> int:
        """Do the lines of a script and `say` each result; the exit code of the first that is not
        0. A `quit` ends it."""
        code = 0
        for line in lines:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            result = self.execute(line)
            say(result)
            code = code or result.exit_code
            if result.answer.ends:
                break
        return code

    def _executed(self, line: str) -> Result:
        answer = Output()
        try:
            one, rest = split(line)
            self._last = line if one.repeats else None
            if one.name == "source":
                return self._sourced(line, rest)
            answer = one.function(self.debugger, rest)
        except RunnerDied as error:
            return Result(line, self._news(answer), after_death(self.debugger, error))
        except EtscopeError as error:
            return Result(line, self._news(answer), error)
        except RecursionError:
            return Result(line, answer, UsageError("this is nested too deeply"))
        except Exception as error:
            return Result(line, answer, _internal(error))
        return Result(line, self._news(answer))

    def _news(self, answer: Output) -> Output:
        """With what the target has to tell besides: that something ran again and gave something
        else is a finding."""
        target = self.debugger.target
        if target is None:
            return answer
        news = target.take_news()
        answer.finding = answer.finding or bool(news and target.differences)
        return answer.say(*news)

    def _sourced(self, line: str, path: str) -> Result:
        """`source FILE`: its commands, and their answers together."""
        from etscope.errors import reading

        answer = Output()
        if not path:
            raise UsageError("source which file?")
        if self._scripts >= _DEEPEST_SCRIPT:
            raise UsageError("scripts that run each other are nested too deeply")
        with reading("script", path):
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        self._scripts += 1

        def keep(result: Result) -> None:
            answer.add(result.answer)
            if result.error is not None:
                answer.say(error_text(result.error))

        try:
            answer.code = self.run_script(lines, keep)
        finally:
            self._scripts -= 1
        return Result(line, answer)

    def _log(self, line: str, result: Result) -> None:
        path = self.debugger.logging
        if path is None or self._scripts:
            return
        try:
            with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"(etdb) {line}\n{result.text}")
        except OSError as error:
            self.debugger.logging = None
            result.answer.say(f"logging ended: cannot write to {path}: {error.strerror}")

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


def _internal(error: Exception) -> InternalError:
    reason = str(error).splitlines()[0] if str(error) else ""
    told = InternalError(
        f"{type(error).__name__}: {reason}".removesuffix(": "),
        hint="this is a bug in etscope; please report it",
    )
    told.__cause__ = error
    return told


def session_of_trace(trace: Trace, *, inputs: Any, source_unit: str) -> Session:
    """A session on files that an `Inspector` has open."""
    return Session.of(Files.of_trace(trace), inputs=inputs, source_unit=source_unit)


def split(line: str) -> tuple[Command, str]:
    """The command of a line and the rest of it. `x/8f a` and `list/t` need no space."""
    word, _, rest = line.partition(" ")
    word, slash, options = word.partition("/")
    return find_command(word), f"{slash}{options} {rest}".strip() if slash else rest.strip()
