"""The session itself: help, scripts, the end."""

from __future__ import annotations

import textwrap

from etscope.errors import UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.registry import COMMANDS, Command, command, find_command
from etscope.etdb.expressions.evaluate import ATTRIBUTES, FUNCTIONS, METHODS
from etscope.model import selector

GROUP = "session"

_EXPRESSIONS = """Expressions compute with tensors as numpy does; nothing of them is run as Python.

  NAME              the value of a node of the edge graph, as it is at this stop
  %12               the node with debug handle 12        #5   what instruction 5 gave
  $                 what the current operator gave       $1   its second output
  $x                what `set $x = EXPR` kept
  value("a/b")      a node of a branch                   weight("fc.weight")   a parameter
  value(12)         on the runtime: value 12 of the method (disassemble, info tensors)
  ref(NAME)         the reference's value                device(NAME)   the recorded one
  gap(METRIC)       from the reference to the run, of the current operator; NaN that only one
                    of the two has is the worst gap there is
  gap(METRIC, NAME) the same of another; metrics: help metrics
  x[0, :4]  x.shape  x.mean()  x.abs().max()  + - * / // ** @  == != < <= > >=  and or not

A condition holds for a tensor when it does anywhere in it."""


@command("help [COMMAND|expressions|selectors|metrics]", group=GROUP, aliases=("h",),
         words=("command", "expressions", "selectors", "metrics"))  # fmt: skip
def help_(debugger: Debugger, rest: str) -> Answer:
    """List the commands, or tell of one."""
    if not rest:
        return _overview()
    if rest == "expressions":
        return Answer().say(
            _EXPRESSIONS,
            "",
            "Functions: " + ", ".join(FUNCTIONS),
            "Methods: " + ", ".join(METHODS),
            "Attributes: " + ", ".join(ATTRIBUTES),
        )
    if rest == "selectors":
        return Answer().say((selector.__doc__ or "").strip())
    if rest == "metrics":
        from etscope.analysis.metrics import METRICS

        width = max(map(len, METRICS))
        return Answer().say(
            *(
                f"{metric.name:<{width}}  {metric.title}"
                + (f" ({metric.unit})" if metric.unit else "")
                for metric in METRICS.values()
            )
        )
    one = find_command(rest)
    names = ", ".join((one.name, *one.aliases))
    return Answer().say(one.usage, f"Names: {names}", "", one.help)


@command("source FILE", group=GROUP, words=("file",))
def source(debugger: Debugger, rest: str) -> Answer:
    """Do the commands of a file, a line each; lines that begin with # are left out."""
    raise UsageError("source works in a session only")


@command("quit", group=GROUP, aliases=("q", "exit"))
def quit_(debugger: Debugger, rest: str) -> Answer:
    """End the session."""
    return Answer(ends=True)


def _overview() -> Answer:
    groups: dict[str, list[Command]] = {}
    for one in COMMANDS.values():
        groups.setdefault(one.group, []).append(one)
    answer = Answer()
    for number, (group, commands) in enumerate(groups.items()):
        answer.say(*([""] if number else []), f"{group}:")
        for one in commands:
            answer.say(*_entry(one))
    return answer.say("", "Unique beginnings of a command will do. help COMMAND tells more.")


_WIDTH, _INDENT = 79, 26  # of a help that fits the narrowest terminal


def _entry(one: Command) -> list[str]:
    """How a command is written, and its first sentence beside or below."""
    text = one.summary.split(". ")[0].rstrip(".")
    lines = textwrap.wrap(
        text, _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT
    )
    usage = f"  {one.usage}"
    if len(usage) > _INDENT - 2:
        return [usage, *lines]
    return [usage + lines[0][len(usage) :], *lines[1:]]
