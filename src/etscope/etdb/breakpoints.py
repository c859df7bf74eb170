"""Breakpoints and watchpoints: the stops and conditions at which a run stops."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterator, Sequence
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
    execution: the positions of the execution of its line in which the last hit was. passes: the
    hits in it are ignored.
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
    execution: range = range(0)
    passes: bool = False

    def is_new(self, stops: Sequence[Stop], position: int) -> bool:
        """Return True for a hit at a stop, unless the last one was in the same execution of the
        line."""
        if position in self.execution:
            return False
        if isinstance(self.selector, LineSelector):
            self.execution = self.selector.execution(stops, position)
        return True

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
        """Remove all, or the ones of an origin. Returns their number."""
        gone = [one.number for one in self if origin is None or one.origin == origin]
        for number in gone:
            del self._all[number]
        return len(gone)

    def hit(self, one: Breakpoint, *, is_new: bool = True) -> None:
        """Count a hit that is new; remove a temporary breakpoint."""
        one.hits += is_new
        if one.once:
            self._all.pop(one.number, None)

    def begin(self) -> None:
        """Reset the counts of evaluations: a run begins."""
        for one in self:
            one.looked, one.unknown, one.why, one.execution = 0, 0, "", range(0)

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

    def execution(self, stops: Sequence[Stop], position: int) -> range:
        """Find the positions of the execution of the line that a stop belongs to.

        A loop, or a module that is called again at once, executes a line several times in a row:
        its operators then come in equal groups. A line of equal parts (`x + y + z`) has as many
        groups in one execution.
        """
        stack = stops[position].stack
        depth = next((at for at, line in enumerate(stack) if str(line) in self._places), None)
        if depth is None:
            return range(position, position + 1)
        frames = stack[: depth + 1]
        first, last = position, position + 1
        while first and stops[first - 1].stack[: depth + 1] == frames:
            first -= 1
        while last < len(stops) and stops[last].stack[: depth + 1] == frames:
            last += 1
        count, found = last - first, stops[first:last]
        # Layers of a list differ in their modules, and passes over the same layer do not.
        for is_same_module in (True, False):
            kinds = [(one.op, one.module if is_same_module else "") for one in found]
            divisors = (n for n in range(1, count + 1) if not count % n)
            group = next(n for n in divisors if kinds[n:] == kinds[: count - n])
            if group < count:
                several = group * _equal_parts(frames[-1].text, by_name=is_same_module)
                group = group if count % several else several
                break
        first += (position - first) // group * group
        return range(first, first + group)


def _equal_parts(text: str, *, by_name: bool) -> int:
    """The number of equal parts of a statement: 2 for `x + y + z`. by_name: calls of different
    functions are different."""
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError):  # the head of a loop
        return 1
    parts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts[ast.dump(node.func) if by_name else ""] += 1
        elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
            parts[type(node.op).__name__] += 1
    return math.gcd(*parts.values()) or 1


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
