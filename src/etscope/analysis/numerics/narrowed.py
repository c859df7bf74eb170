"""The result of exports with taps: the place of the fault in a wrong delegate call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from etscope.analysis.numerics.rows import Numerics, NumericsRow
from etscope.model.graph import SourceLine


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed:
    """The place of a fault in a wrong delegate call, as exports with taps tell it.

    call: the row of the call, as it was found. row: the wrong row of the last export that told
    more, the call itself where none did; None if the fault does not show on the runtime of this
    machine. lines, module: of the operators that are left; op, node: of the last of them. taps:
    nodes of the export that the row is of. vanished: with taps on all operators of the
    call the fault is gone. exports, runs: how many there were. failure: why one of them failed, as
    text; None if none did.
    """

    call: NumericsRow
    row: NumericsRow | None
    lines: tuple[SourceLine, ...]
    module: str | None
    op: str
    node: str
    taps: tuple[str, ...]
    vanished: bool
    exports: int
    runs: int
    failure: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences with the line and the module, and how they were found."""
        cost = f"{_count(self.exports, 'export')}, {_count(self.runs, 'run')}"
        lines = _count(len(self.call.lines), "line")
        before = f"the delegate call of instruction {self.call.pair.instruction} ({lines})"
        if self.row is None and self.runs:
            return (
                f"{before} is right on the runtime of this machine, so it cannot be narrowed down "
                f"here ({cost}): export with taps (etscope export --tap 'op:*') and run that on "
                "the device",
            )
        gone = "the fault is gone: it is in how the operators are fused"
        if self.row is None or self.row is self.call:
            why = self.failure or "no tap divides the fault"
            if self.vanished:
                why = f"with a tap anywhere in it {gone}"
            return (f"{before} cannot be narrowed down ({cost}): {why}",)
        places = [self.op, f"node {self.node}", cost]
        if self.module:
            places.insert(0, f"module {self.module}")
        lines = ", ".join(f"{PurePath(line.file).name}:{line.line}" for line in self.lines)
        where = f"{lines or 'no known line'} ({', '.join(places)})"
        told = f"narrowed down: {before} goes wrong at {where}"
        if not self.vanished:
            return (told,)
        stays = f"with taps on {', '.join(self.taps)} alone it stays"
        return told, f"with taps on all operators of the call {gone}; {stays}"


def guilty_call(found: Numerics) -> NumericsRow | None:
    """Return the first wrong row of a delegate call with several lines; None without one."""
    return next((row for row in found.wrong if row.is_delegate and len(row.lines) > 1), None)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
