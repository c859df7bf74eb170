"""The server: tools, resources and prompts of the Model Context Protocol."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope._version import __version__
from etscope.agent.answers import answer, compact
from etscope.agent.commands import CommandError, Commands
from etscope.agent.debugging import Session
from etscope.agent.skill import skill_text
from etscope.agent.tables import TABLES, select

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

__all__ = ["server"]

_INSTRUCTIONS = """\
etscope shows what a model did on ExecuTorch: how long each operator took, which line of Python it \
is, why it is slow, and where its numbers go wrong. Begin with runs, then open. RUN is "@0" (the \
last run), "@1", the name of a kept run, or the path of a run's folder or of a file."""

_REST = "Call sql for the rows you need: with WHERE, ORDER BY and LIMIT."
_LINES = 40  # of source, around a line


@dataclass
class _Tools:
    """The tools: each is a method, and its docstring is what the agent reads."""

    commands: Commands
    sessions: dict[Path, Session] = field(default_factory=dict)

    def runs(self) -> str:
        """List the kept runs, the last one first, with their median times and first findings."""
        listed = compact(self.commands.json("runs"))
        folders = [str(folder) for folder in self.commands.folders]
        return answer({"folders": folders, **listed}, then=['open(run="@0")'])

    def open(self, run: str) -> str:
        """Show what a run or file holds: files, graphs, methods, delegates, sizes, planned memory,
        faults of the program, and the tables for sql."""
        reports = self.commands.json("info", self.commands.path(run))["reports"]
        then = [f"explain(run={run!r})", f"numerics(run={run!r})", f"sql(run={run!r}, query=…)"]
        data = {"files": reports, "tables": list(TABLES)}
        return answer(data, then=then, rest="Call open with the path of one file.")

    def explain(self, run: str, method: str | None = None) -> str:
        """Say why a run is slow: findings with time at stake, evidence, lines of Python, and the
        fix of each as a command or an edit."""
        chosen = () if method is None else ("--method", method)
        found = compact(self.commands.json("explain", self.commands.path(run), *chosen))
        del found["columns"], found["rows"]  # the findings say it all
        return answer(found, then=["source(file=…, line=…)"], rest=_REST)

    def sql(self, run: str, query: str) -> str:
        """Query the tables of a run with one SELECT of SQLite. instructions: what ran, with times
        (avg, p50, share), module, source, flops, bytes; nodes: the graph; findings; numerics: error
        of each operator. `SELECT * FROM instructions LIMIT 1` shows the columns."""
        return answer(
            select(self.commands, self.commands.path(run), query), rest="Add LIMIT and OFFSET."
        )

    def numerics(self, run: str, method: str | None = None, narrow: bool = False) -> str:
        """Find the operator with wrong numbers, and its line of Python. The run needs logged
        values. narrow: run parts of a wrong delegate call in PyTorch, to find the line (slower)."""
        chosen = () if method is None else ("--method", method)
        flags = ("--narrow",) if narrow else ()
        found = self.commands.json("numerics", self.commands.path(run), *chosen, *flags)
        kept = (
            "instruction",
            "op",
            "node",
            "total",
            "local",
            "limit",
            "verdict",
            "module",
            "source",
        )
        found["columns"] = [one for one in found["columns"] if one["name"] in kept]
        found["rows"].sort(key=lambda row: row["verdict"] == "fine")
        return answer(compact(found), rest=_REST)

    def graph(self, run: str, name: str | None = None, select: str | None = None) -> str:
        """List the graphs of a run, or the nodes of the graph `name` ("edge/forward") with their
        operators, modules, lines, times and inputs. select: "op:conv*", "module:blocks.0" or
        "line:net.py:24"."""
        chosen = () if name is None else (name,)
        flags = () if select is None else ("--select", select)
        found = self.commands.json("graph", self.commands.path(run), *chosen, *flags)
        listed = compact(found) if "rows" in found else found
        return answer(
            listed,
            rest="For fewer nodes call graph with select, or sql on the table nodes.",
        )

    def source(self, file: str, line: int = 1) -> str:
        """Show the Python around a line of a file of the given folders."""
        path = self.commands.path(file)
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise CommandError(f"cannot read {file!r}: {error.strerror}. Name a file.") from error
        first = max(1, line - _LINES // 2)
        shown = {at: lines[at - 1] for at in range(first, min(first + _LINES, len(lines) + 1))}
        if not shown:
            raise CommandError(f"{file!r} has {len(lines)} lines. Name one of them.")
        return answer({"file": str(path), "of": len(lines), "lines": shown})

    def diff(self, base: str, new: str) -> str:
        """Compare the times, memory and program of two runs, with the statistics that tell a change
        from noise."""
        paths = (self.commands.path(one) for one in (base, new))
        return answer(compact(self.commands.json("diff", *paths)), rest=_REST)

    def check(self, base: str, new: str) -> str:
        """Check a run or program against an earlier one, as for a pull request: size, memory, work,
        delegated share, kernels, faults, SQNR of outputs, time; each with a threshold. The outcome
        "cannot tell" is not a pass."""
        paths = (self.commands.path(one) for one in (base, new))
        found = self.commands.json("check", *paths)
        del found["new"]  # the baseline for later checks
        return answer(found, then=["diff(base=…, new=…)"], rest=_REST)

    def debug(self, run: str, command: str, restart: bool = False) -> str:
        """Debug a run with the commands of etdb, which are gdb's: 'break op:conv*', 'break
        net.py:24 if $.max() > 100', 'watch nan', 'run', 'step', 'reverse-step', 'bt', 'print $',
        'gap' (error of each operator), 'blame', 'help'. A run keeps its session until restart."""
        path = self.commands.path(run)
        if restart and path in self.sessions:
            self.sessions.pop(path).close()
        if path not in self.sessions:
            while len(self.sessions) >= _SESSIONS:
                self.sessions.pop(next(iter(self.sessions))).close()
            self.sessions[path] = Session(self.commands, path)
        try:
            return answer(self.sessions[path].do(command))
        except CommandError:
            if not self.sessions[path].is_running:
                del self.sessions[path]
            raise

    def run(self, model: str, backend: str | None = None, quantize: str | None = None) -> str:
        """Export and run a model ("net.py:Net"), or run a program (.pte), with its values logged,
        and keep the run. It executes the model's Python."""
        file, colon, name = model.rpartition(":") if ".py:" in model else (model, "", "")
        flags = [] if backend is None else ["--backend", backend]
        flags += [] if quantize is None else ["--quantize", quantize]
        self.commands.text(
            "run", f"{self.commands.path(file)}{colon}{name}", *flags, "--debug-level",
            "intermediate_outputs", "--format", "json",
        )  # fmt: skip
        kept = self.commands.kept.newest_first()[0].path.name
        return answer({"run": kept}, then=[f"explain(run={kept!r})", f"numerics(run={kept!r})"])


_SESSIONS = 4


def server(folders: tuple[Path, ...], *, may_run: bool = False) -> MCPServer[Any]:
    """Return the server of the runs and files below `folders`. may_run: offer the tool `run`, and
    the debugger's commands that execute the program."""
    from mcp.server.mcpserver import MCPServer
    from mcp.types import ToolAnnotations

    tools = _Tools(Commands(folders, may_run))
    made: MCPServer[Any] = MCPServer(
        "etscope", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    reading: list[Callable[..., str]] = [
        tools.runs,
        tools.open,
        tools.explain,
        tools.sql,
        tools.numerics,
        tools.graph,
        tools.source,
        tools.diff,
        tools.check,
        tools.debug,
    ]
    for tool in reading:
        marks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        made.add_tool(_told(tool), annotations=marks, structured_output=False)
    if may_run:
        marks = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
        made.add_tool(_told(tools.run), annotations=marks, structured_output=False)

    @made.resource("etscope://runs", mime_type="application/json")
    def listed() -> str:
        """The kept runs."""
        return tools.runs()

    @made.resource("etscope://runs/{run}/report", mime_type="application/json")
    def report(run: str) -> str:
        """Findings of a run: why it is slow."""
        return tools.explain(run)

    @made.resource("etscope://skill", mime_type="text/markdown")
    def skill() -> str:
        """Guide to etscope for an agent."""
        return skill_text()

    _add_prompts(made)
    return made


def _add_prompts(made: MCPServer[Any]) -> None:
    """Add the usual tasks: each says which tools to call, and how to report."""

    @made.prompt()
    def why_is_it_slow(run: str = "@0") -> str:
        """Find why a run is slow, and the edit that makes it faster."""
        return (
            f"Why is the run {run} slow? Call explain, read the lines that its findings name with "
            "source, and propose the edit or command with the most time at stake. Name the share "
            "of the time, and say how sure the finding is."
        )

    @made.prompt()
    def wrong_numbers(run: str = "@0") -> str:
        """Find the operator with wrong numbers."""
        return (
            f"Where do the numbers of the run {run} go wrong? Call open for faults of the program, "
            "then numerics (narrow=true if a delegate call is wrong), then debug to look at the "
            "values. Name the operator, its line, and the cause only if etscope names one."
        )

    @made.prompt()
    def compare(base: str = "@1", new: str = "@0") -> str:
        """Say whether a change made a model slower, larger or less exact."""
        return (
            f"Did the change from {base} to {new} make the model worse? Call diff. Report each "
            "verdict as it stands: 'cannot tell' is not 'no change'."
        )


def _told(tool: Callable[..., str]) -> Callable[..., str]:
    """Return the tool with its errors as the protocol's: the message is for the agent."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def called(**arguments: Any) -> str:
        try:
            return tool(**arguments)
        except CommandError as error:
            raise ToolError(str(error)) from error

    return called
