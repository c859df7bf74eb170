"""The full-screen interface: modules, source, values and a console follow the current operator.

textual is an extra, and slow to import: import this module when the interface is wanted, after
`require("textual")`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.events import Key, Paste, Resize
from textual.suggester import Suggester
from textual.widgets import Footer, Input, RichLog, Static, Tree

from etscope.analysis.profile.correlate import is_operator
from etscope.analysis.profile.source_location import module_path
from etscope.errors import EtscopeError
from etscope.etdb.commands.source import list_
from etscope.etdb.debugger import PLAIN_COLUMNS
from etscope.etdb.expressions.scope import display_lines
from etscope.etdb.files import Files
from etscope.etdb.output import Output, error_text, stop_lines, text_of, value_lines
from etscope.etdb.session import Result, Session
from etscope.etdb.targets.reference import Background
from etscope.etdb.targets.target import Stop
from etscope.etdb.ui.complete import Completer
from etscope.views.tables.cells import visible

_MOST_TOLD = 1000  # lines and results in the console
_LINE_END = re.compile(r"\r\n?|\n")  # of pasted text, for which terminals send "\r"
_TRIES, _PAUSE = 40, 0.05  # attempts to end a run, and seconds between them


class LineSuggester(Suggester):
    """Completes names, from the session unless a line is executed."""

    def __init__(self, completer: Completer, executing: Sequence[str]) -> None:
        super().__init__(case_sensitive=True)
        self._completer = completer
        self._executing = executing

    async def get_suggestion(self, value: str) -> str | None:
        if self._executing:
            return None
        word, found = self._completer.complete(value)
        return value[: len(value) - len(word)] + found[0] if word and found else None


class Pane(Static):
    """A pane whose text is made for its size, by `fill`."""

    def __init__(self, name: str, fill: Callable[[], None]) -> None:
        super().__init__(id=name, markup=False)
        self._fill = fill

    def on_resize(self) -> None:
        self._fill()


class Console(RichLog):
    """The lines that were executed and their results, written anew for another width."""

    def __init__(self, name: str) -> None:
        # By default, RichLog writes lines of 78 columns however narrow it is.
        super().__init__(id=name, wrap=True, markup=False, min_width=1)
        self._told: deque[str | Result] = deque(maxlen=_MOST_TOLD)
        self._told_width = 0

    def tell(self, item: str | Result) -> None:
        """Write a line that is executed, or a result."""
        self._told.append(item)
        self._write(item)

    def on_resize(self, event: Resize) -> None:
        if self.size.width != self._told_width:
            self._told_width = self.size.width
            self.clear()
            for item in self._told:
                self._write(item)

    def _write(self, item: str | Result) -> None:
        if isinstance(item, str):
            self.write(Text(item, style="bold"))
            return
        text = text_of(item.answer, max(self.size.width - 2, 40)).rstrip("\n")
        parts = [text] if item.answer.items else []
        if item.error is not None:
            parts.append(error_text(item.error))
        for line in "\n".join(parts).split("\n") if parts else ():
            self.write(Text(line))


class Line(Input):
    """The line that is typed, and those before it.

    Each key takes effect when it arrives. textual inserts characters at once, but passes keys like
    Enter and Backspace on to their bindings, which then find what was typed after them, too."""

    BINDINGS: ClassVar = [
        Binding("up", "go(-1)", show=False),
        Binding("down", "go(1)", show=False),
    ]
    _ACTIONS: ClassVar = {
        key.strip(): binding.action
        for binding in (*Input.BINDINGS, *BINDINGS)
        if isinstance(binding, Binding)
        for key in binding.key.split(",")
    }

    def __init__(self, name: str, suggester: Suggester) -> None:
        super().__init__(id=name, placeholder="(etdb) help", suggester=suggester)
        self._past: list[str] = []
        self._at = 0

    def remember(self, line: str) -> None:
        """Keep a line that is executed."""
        if line.strip():
            self._past.append(line)
        self._at = len(self._past)

    async def _on_key(self, event: Key) -> None:
        action = self._ACTIONS.get(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    def _on_paste(self, event: Paste) -> None:
        """Execute each pasted line that has its end; the rest stays to be edited."""
        event.stop()
        event.prevent_default()
        *ended, rest = _LINE_END.split(event.text)
        for text in ended:
            self.replace(text, *self.selection)
            self._submit()
        self.replace(rest, *self.selection)

    async def action_submit(self) -> None:
        self._submit()

    def _submit(self) -> None:
        line, self.value = self.value, ""
        self.remember(line)
        self.post_message(self.Submitted(self, line))

    def action_go(self, count: int) -> None:
        """Show an earlier line, or a later one."""
        self._at = min(max(self._at + count, 0), len(self._past))
        self.value = self._past[self._at] if self._at < len(self._past) else ""
        self.cursor_position = len(self.value)


@contextmanager
def stderr_off_the_screen() -> Iterator[None]:
    """Give the interface a terminal of its own: what libraries write to stderr is dropped, and
    redirecting it does not stop the interface."""
    sys.stderr.flush()
    before = sys.__stderr__
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as terminal:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        sys.__stderr__ = terminal  # type: ignore[misc]
        try:
            yield
        finally:
            os.dup2(terminal.fileno(), 2)
            sys.__stderr__ = before  # type: ignore[misc]


class DebuggerApp(App[int]):
    """The application. It executes `commands` first, and runs until the user quits."""

    TITLE = "etdb"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #panes { height: 3fr; }
    #modules { width: 34%; border: round $primary; }
    #right { width: 1fr; }
    #source, #values { border: round $primary; height: 1fr; overflow: auto; padding: 0 1; }
    #console { height: 2fr; border: round $primary; padding: 0 1; }
    #line { dock: bottom; margin-bottom: 1; border: none; height: 1; }
    """
    BINDINGS: ClassVar = [
        Binding("f5", "do('continue')", "continue"),
        Binding("f10", "do('next')", "next"),
        Binding("f11", "do('step')", "step"),
        Binding("f9", "do('reverse-step')", "back"),
        Binding("f6", "switch", "console/tree"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+d", "quit", "quit", priority=True),
    ]

    def __init__(self, session: Session, commands: Sequence[str] = ()) -> None:
        super().__init__()
        self._session = session
        self._commands = commands
        # The line that is executed in another thread. Until it ends, only that thread may use the
        # session.
        self._executing: list[str] = []
        self._pending: list[str] = []
        self._leaves: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        with Horizontal(id="panes"):
            yield Tree("modules", id="modules")
            with Vertical(id="right"):
                yield Pane("source", self._follow)
                yield Pane("values", self._follow)
        yield Console("console")
        suggester = LineSuggester(Completer(self._session.debugger), self._executing)
        yield Line("line", suggester)
        yield Footer()

    def on_mount(self) -> None:
        for title, name in (("Modules", "modules"), ("Source", "source"), ("Values", "values")):
            self.query_one(f"#{name}").border_title = title
        console = self.query_one("#console", Console)
        console.border_title = "Console"
        self._session.debugger.columns = lambda: (
            console.scrollable_content_region.width or PLAIN_COLUMNS
        )
        self._fill()
        self.query_one("#line").focus()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        for line in self._commands:
            self.do(line)

    # -- console

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._pending.append(event.value)
        self._next()

    def action_do(self, line: str) -> None:
        self.do(line)

    def action_switch(self) -> None:
        line = self.query_one("#line")
        (self.query_one("#modules") if line.has_focus else line).focus()

    def action_interrupt(self) -> None:
        """End a run on the runtime, and drop the lines that wait for it."""
        self._pending.clear()
        Background.cancel_waits()
        target = self._session.debugger.target
        if self._executing and target is not None:
            target.interrupt()

    async def action_quit(self) -> None:
        self.action_interrupt()
        for _ in range(_TRIES):  # a run that has just begun may miss an interrupt
            if not self._executing:
                break
            await asyncio.sleep(_PAUSE)
            self.action_interrupt()
        self.exit(0)

    def do(self, line: str) -> None:
        self.query_one(Line).remember(line)
        self._pending.append(line)
        self._next()

    def _next(self) -> None:
        if self._executing or not self._pending:
            return
        line = self._pending.pop(0)
        self._executing.append(line)
        console = self.query_one("#console", Console)
        console.tell(f"{self._session.prompt}{visible(line)}")
        console.border_subtitle = "working: ctrl+c ends a run"
        files = self._session.debugger.files

        def work() -> None:
            try:
                result = self._session.execute(line)
            except KeyboardInterrupt:
                result = Result(line, Output().say("interrupted"))
            self.call_from_thread(self._done, result, files)

        self.run_worker(work, thread=True)

    def _done(self, result: Result, files: Files) -> None:
        self._executing.clear()
        console = self.query_one("#console", Console)
        console.border_subtitle = ""
        console.tell(result)
        if result.answer.ends:
            self.exit(0)
            return
        if self._session.debugger.files is not files:
            self._fill()
        self._follow()
        self._next()

    # -- panes

    def _fill(self) -> None:
        tree = self.query_one("#modules", Tree)
        tree.clear()
        self._leaves = {}
        tree.root.expand()
        groups: dict[str, Any] = {"": tree.root}
        for path, name in self._operators():
            place = _group(groups, path)
            self._leaves[name] = place.add_leaf(Text(visible(name)), data=name)

    def on_tree_node_selected(self, event: Any) -> None:
        if event.node.data is not None:
            self.do(f"select {event.node.data}")

    def _follow(self) -> None:
        if self._executing:
            return  # called again when the line is done
        stop = self._session.debugger.stop
        source = self.query_one("#source", Static)
        if stop is None:
            over = self._session.debugger.ended
            text = "the run is over" if over else "start: stop at the first operator"
        else:
            text = _or_error(lambda: text_of(list_(self._session.debugger, "")))
        # The marked line stands in the middle of the pane.
        lines, height = text.rstrip("\n").split("\n"), source.size.height
        marked = next((at for at, line in enumerate(lines) if line.startswith(">")), 0)
        first = max(min(marked - height // 2, len(lines) - height), 1)
        shown = [lines[0], *lines[first : first + max(height - 1, 1)]]
        source.update(_cut("\n".join(shown), source.content_size.width))
        values = self.query_one("#values", Static)
        text = _or_error(lambda: self._value_text(stop))
        values.update(_cut(text, values.content_size.width))
        leaf = None if stop is None else self._leaves.get(stop.node or stop.name)
        if leaf is not None:
            above = leaf.parent
            while above is not None:
                above.expand()
                above = above.parent
            tree = self.query_one("#modules", Tree)
            self.call_after_refresh(tree.move_cursor, leaf)
            self.call_after_refresh(tree.scroll_to_node, leaf)

    def _operators(self) -> Iterator[tuple[str, str]]:
        """Module and name of all operators, in order of execution."""
        debugger = self._session.debugger
        try:
            nodes = list(debugger.files.edge(debugger.method).graph.walk())
        except EtscopeError:
            target = debugger.target
            for stop in target.stops if target is not None else ():
                if stop.loop_pass == 0:
                    yield stop.module or "", stop.node or stop.name
            return
        for node in nodes:
            if is_operator(node):
                yield module_path(node) or "", node.name

    def _value_text(self, stop: Stop | None) -> str:
        """Outputs of a stop, and the displays."""
        if stop is None:
            return ""
        debugger = self._session.debugger
        lines = stop_lines(debugger, stop)
        target = debugger.some_target()
        for number, value in enumerate(target.device_values(stop.position)):
            head, *rest = value_lines(value)
            lines += [f"${number} = {head}", *rest]
        for number, expression in debugger.displays.items():
            lines += display_lines(debugger, number, expression)
        return "\n".join(map(visible, lines))


def _group(groups: dict[str, Any], path: str) -> Any:
    """The tree's branch of a module; creates it and those around it."""
    if path not in groups:
        above, _, name = path.rpartition(".")
        groups[path] = _group(groups, above).add(Text(visible(name)))
    return groups[path]


def _cut(text: str, width: int) -> Text:
    """Cut the lines of a pane to its width: wrapped lines would push the last out of it."""
    lines = [Text(line) for line in text.split("\n")]
    for line in lines:
        line.truncate(max(width, 1), overflow="ellipsis")
    return Text("\n").join(lines)


def _or_error(make: Callable[[], str]) -> str:
    """Return the text that `make` returns, or the message of its error."""
    try:
        return make()
    except EtscopeError as error:
        return visible(error.message)
