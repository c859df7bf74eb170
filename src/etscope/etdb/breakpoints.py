"""Breakpoints and watchpoints: the stops and conditions at which a run stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from etscope.analysis.selector_fields import tensor_fields
from etscope.errors import UsageError
from etscope.etdb.expression import Expression
from etscope.etdb.targets.target import Stop
from etscope.model.event_table import KERNEL_PREFIX
from etscope.model.graph import stem
from etscope.model.selector import Fields, Selector

WATCH_NAN, WATCH_INF = "nan", "inf"


@dataclass(slots=True, eq=False)
class Breakpoint:
    """A breakpoint or watchpoint.

    place: text that says where it stops, "" for everywhere. selector: the same, parsed; None for a
    watchpoint. condition: an expression that must be true there. watch: "nan" or "inf" in any
    output, "" for none. once: it is removed at its first hit. ignored: how many of the next hits do
    not stop the run. commands: executed at a hit. looked: how often its condition was evaluated in
    this run. unknown: how many of these evaluations gave no value; `why` has the last reason.
    """

    number: int
    place: str = ""
    selector: Selector | None = None
    condition: Expression | None = None
    watch: str = ""
    once: bool = False
    enabled: bool = True
    hits: int = 0
    ignored: int = 0
    commands: tuple[str, ...] = ()
    log: str | None = None
    origin: str = ""
    looked: int = 0
    unknown: int = 0
    why: str = ""

    @property
    def what(self) -> str:
        """Place and condition: "op:relu if $.max() > 3", "watch nan"."""
        if self.selector is None:
            return f"watch {self.watch or self.condition}"
        condition = "" if self.condition is None else f"if {self.condition}"
        return f"{self.place} {condition}".strip()

    @property
    def as_commands(self) -> list[str]:
        """Lines that make the breakpoint again."""
        kind = "" if self.selector is None else "tbreak " if self.once else "break "
        lines = [kind + self.what]
        if self.commands:
            lines += ["commands", *(f"  {line}" for line in self.commands), "end"]
        if self.ignored:
            lines.append(f"ignore $bpnum {self.ignored}")
        return lines if self.enabled else [*lines, "disable $bpnum"]


@dataclass
class Breakpoints:
    """All breakpoints and watchpoints, by number."""

    _all: dict[int, Breakpoint] = field(default_factory=dict)
    _next: int = 1

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, **of: object) -> Breakpoint:
        """Add a breakpoint; keywords are the fields of `Breakpoint`."""
        new = Breakpoint(self._next, **of)  # type: ignore[arg-type]
        self._all[self._next] = new
        self._next += 1
        return new

    def find(self, number: int) -> Breakpoint:
        """Find a breakpoint by number. Raises `UsageError` with the known numbers."""
        if number not in self._all:
            known = ", ".join(map(str, self._all)) or "none"
            raise UsageError(
                f"breakpoint {number} does not exist", hint=f"breakpoints are: {known}"
            )
        return self._all[number]

    @property
    def last(self) -> int:
        """Number of the breakpoint that was made last."""
        return self._next - 1

    def delete(self, number: int) -> None:
        del self._all[self.find(number).number]

    def clear(self, origin: str | None = None) -> int:
        """Remove all, or those of an origin. Returns their number."""
        gone = [one.number for one in self if origin is None or one.origin == origin]
        for number in gone:
            del self._all[number]
        return len(gone)

    def hit(self, one: Breakpoint) -> None:
        """Count a hit; remove a temporary breakpoint."""
        one.hits += 1
        if one.once:
            self._all.pop(one.number, None)

    def begin(self) -> None:
        """Reset the counts of evaluations: a run begins."""
        for one in self:
            one.looked, one.unknown, one.why = 0, 0, ""

    def undecided(self) -> Breakpoint | None:
        """A breakpoint with a condition that never had a value, so that it could not be hit."""
        return next((one for one in self if one.looked and one.unknown == one.looked), None)

    def unseen(self) -> Breakpoint | None:
        """A breakpoint with a condition that was never evaluated in the run."""
        conditional = (one for one in self if one.enabled and (one.condition or one.watch))
        return next((one for one in conditional if not one.looked), None)

    @property
    def name_call(self) -> bool:
        """True if a condition depends on the number of the run, so that it may still hold in
        another run.
        """
        return any(one.enabled and one.condition and one.condition.names_call for one in self)

    def partly_decided(self) -> list[Breakpoint]:
        """Breakpoints with a condition that had no value at some of the operators."""
        return [one for one in self if one.enabled and 0 < one.unknown < one.looked]


class LineSelector(Selector):
    """Selects the operators of lines of Python. text: as the user wrote it. places: "path:line".
    key: the field: "file", or "frame" for the operators that are called from a line."""

    def __init__(self, text: str, places: frozenset[str], key: str) -> None:
        super().__init__("*")
        self.text, self._places, self._key = text, places, key

    def matches(self, fields: Fields) -> bool:
        """Return True if one of the lines is selected."""
        return not self._places.isdisjoint(fields[self._key])


def fields_of_stop(stop: Stop) -> Fields:
    """Fields of a stop for selectors, and "frame": the lines of its stack."""
    nodes = stop.nodes
    # "softmax" for "aten._softmax.default"
    stems = [stem(node.op) for node in nodes] or [stem(stop.op)]
    return {
        # A node in a branch or loop has a path: "submodule_0/aten_mul_tensor".
        "name": [stop.name, *([stop.path] if stop.path else ()), *(node.name for node in nodes)],
        "op": [stop.op, stop.name.removeprefix(KERNEL_PREFIX), *(one.op for one in nodes), *stems],
        "module": [stop.module] if stop.module else [],
        "type": [
            kind
            for node in nodes
            if node.modules and (kind := node.modules[-1].type.rpartition(".")[2])
        ],
        "file": [str(line) for line in stop.lines],
        "frame": [str(line) for line in stop.stack],
        "delegate": [stop.backend] if stop.backend else [],
        "handle": [str(handle) for handle in stop.handles],
        "id": [] if stop.instruction is None else [str(stop.instruction)],
        "kind": [stop.kind],
        **tensor_fields(
            str(value.tensor)
            for node in nodes
            for value in node.outputs
            if value.tensor is not None
        ),
    }
