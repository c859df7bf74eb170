"""Checkpoints: states of a run to go back to, with the values that were set before them."""

from __future__ import annotations

from etscope.errors import UsageError
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.debugger import Checkpoint, Debugger
from etscope.etdb.output import Output, stop_lines
from etscope.model.table import Column, Kind, Table

GROUP = "running"


@command("checkpoint", group=GROUP)
def checkpoint(debugger: Debugger, rest: str) -> Output:
    """Save the state of the run, with the values that were set, for `restart`.

    `info checkpoints` lists them, `delete checkpoint N` removes one. They end with the target.
    """
    if rest:
        raise UsageError("checkpoint takes no arguments", hint="restart N goes back to one")
    target = debugger.some_target()
    position = debugger.position
    if position is None:
        raise UsageError("the run has not been begun", hint="run, or start")
    where = stop_lines(debugger, target.stops[position])[0]
    if debugger.ended:
        where = f"the end, after {where}"
    number = debugger.last_checkpoint = debugger.last_checkpoint + 1
    debugger.checkpoints[number] = Checkpoint(
        target.save(), target.run, position, debugger.ended, where
    )
    return Output().say(f"checkpoint {number}: run {target.run}, {where}")


@command("restart N", group=GROUP, words=("checkpoint",))
def restart(debugger: Debugger, rest: str) -> Output:
    """Go back to a checkpoint: its run, its stop, and the values that were set before it.

    The runtime repeats what it has to; values that were set after the checkpoint are forgotten.
    """
    one = find_checkpoint(debugger, rest)
    target = debugger.some_target()
    target.restore(one.saved)
    debugger.begin(target)
    debugger.position, debugger.ended = one.position, one.ended
    if one.ended:
        return Output().say(f"run {one.run}, {one.where}")
    if not target.keeps_values and target.position != one.position:  # Ctrl-C on the way
        debugger.follow_target()
    return Output().say(f"run {one.run}", *stop_lines(debugger, debugger.here()))


def find_checkpoint(debugger: Debugger, text: str) -> Checkpoint:
    """Find a checkpoint by its number. Raises `UsageError` with the known ones."""
    number = whole(text, what="the number of a checkpoint") if text else -1
    if number not in debugger.checkpoints:
        known = ", ".join(map(str, debugger.checkpoints)) or "none; checkpoint makes one"
        raise UsageError(
            f"checkpoint {number} does not exist" if text else "name a checkpoint",
            hint=f"checkpoints are: {known}",
        )
    return debugger.checkpoints[number]


def checkpoint_table(debugger: Debugger) -> Output:
    """The checkpoints of the target."""
    if not debugger.checkpoints:
        return Output().say("no checkpoints")
    columns = (Column("number", Kind.INT), Column("run", Kind.INT), Column("where"))
    rows = [(number, one.run, one.where) for number, one in debugger.checkpoints.items()]
    return Output().table(Table.of_rows(columns, rows))
