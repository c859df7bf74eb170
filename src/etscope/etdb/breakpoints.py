"""Breakpoints and watchpoints: where, and on what condition, a run is to stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from etscope.errors import UsageError
from etscope.etdb.expressions.expression import Expression
from etscope.etdb.targets.target import Stop
from etscope.model.selector import Fields, Selector

WATCH_NAN, WATCH_INF = "nan", "inf"


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """One of them. selector: the stops it is at, all if None. condition: what must hold there.
    watch: "nan" or "inf" for numbers of any output, "" for none. once: gone when it is hit.
    looked: how often its condition was looked at in this run; unknown: how often it had no value,
    and why the last time."""

    number: int
    what: str
    selector: Selector | None = None
    condition: Expression | None = None
    watch: str = ""
    once: bool = False
    enabled: bool = True
    hits: int = 0
    looked: int = 0
    unknown: int = 0
    why: str = ""


@dataclass
class Breakpoints:
    """All of them, by number."""

    _all: dict[int, Breakpoint] = field(default_factory=dict)
    _next: int = 1

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, **of: object) -> Breakpoint:
        """A new one; keywords are the fields of `Breakpoint`."""
        new = Breakpoint(self._next, **of)  # type: ignore[arg-type]
        self._all[self._next] = new
        self._next += 1
        return new

    def delete(self, number: int) -> None:
        """Remove one."""
        self._find(number)
        del self._all[number]

    def clear(self) -> int:
        """Remove all; how many there were."""
        count = len(self._all)
        self._all.clear()
        return count

    def enable(self, number: int, on: bool) -> None:
        """Let one be, or stop there again."""
        self._all[number] = replace(self._find(number), enabled=on)

    def set_condition(self, number: int, condition: Expression | None) -> None:
        """Another condition, or none."""
        self._all[number] = replace(self._find(number), condition=condition)

    def hit(self, one: Breakpoint) -> None:
        """Count a hit; one for once is gone."""
        if one.once:
            self._all.pop(one.number, None)
        else:
            now = self._all[one.number]
            self._all[one.number] = replace(now, hits=now.hits + 1)

    def looked_at(self, one: Breakpoint, why: str | None) -> None:
        """Count a look at a condition; `why` it had no value, None when it had one."""
        self._all[one.number] = replace(
            one,
            looked=one.looked + 1,
            unknown=one.unknown + (why is not None),
            why=why or one.why,
        )

    def passed(self, one: Breakpoint, count: int) -> None:
        """Count stops at which the run itself looked at a condition, and it did not hold."""
        now = self._all.get(one.number)
        if now is not None and count:
            self._all[one.number] = replace(now, looked=now.looked + count)

    def begin(self) -> None:
        """A run begins: nothing was looked at yet."""
        for one in self:
            self._all[one.number] = replace(one, looked=0, unknown=0, why="")

    def undecided(self) -> Breakpoint | None:
        """One whose condition had no value wherever it was looked at: it could not be hit."""
        return next((one for one in self if one.looked and one.unknown == one.looked), None)

    def unseen(self) -> Breakpoint | None:
        """One whose condition was looked at nowhere in the run: nothing is known of it."""
        conditional = (one for one in self if one.enabled and (one.condition or one.watch))
        return next((one for one in conditional if not one.looked), None)

    def partly_decided(self) -> list[Breakpoint]:
        """Those whose condition had no value at some of the operators that it was looked at."""
        return [one for one in self if one.enabled and 0 < one.unknown < one.looked]

    def _find(self, number: int) -> Breakpoint:
        if number not in self._all:
            known = ", ".join(map(str, self._all)) or "none"
            raise UsageError(f"there is no breakpoint {number}", hint=f"breakpoints are: {known}")
        return self._all[number]


def fields_of_stop(stop: Stop) -> Fields:
    """What a stop offers to a selector."""
    nodes = stop.nodes
    return {
        "name": [stop.name, *(node.name for node in nodes)],
        "op": [stop.op, stop.name, *(node.op for node in nodes), *_plain(stop)],
        "module": [stop.module] if stop.module else [],
        "type": [
            kind
            for node in nodes
            if node.modules and (kind := node.modules[-1].type.rpartition(".")[2])
        ],
        "file": [str(line) for line in stop.lines],
        "delegate": [stop.backend] if stop.backend else [],
        "handle": [str(handle) for handle in stop.handles],
        "id": [] if stop.instruction is None else [str(stop.instruction)],
        "kind": [stop.kind],
    }


def _plain(stop: Stop) -> list[str]:
    """Operators without the marks of their variants: "softmax" of "aten._softmax.default"."""
    from etscope.model.graph import stem

    return [stem(node.op) for node in stop.nodes] or [stem(stop.op)]
