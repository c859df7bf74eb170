"""The modules that ran, as a tree with the time of each, for an icicle plot.

The time of a leaf counts for the innermost module that holds all nodes behind it. A delegate call
that no events divide counts as a whole, by all of its nodes, as does what is left of a call.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import common_module, matches_module
from etscope.errors import EtscopeWarning, MissingDataError

NO_MODULE = "(no module)"
_DEEPEST = 100  # levels of the tree; deeper modules are joined


@dataclass(slots=True)
class ModuleTime:
    """A module, in a list of which parents stand before children.

    path: "" for the root, "blocks.0.conv", or `NO_MODULE`. parent: its index in the list.
    total, own: average ticks a run, with and without the modules below. rows: indices in the
    profile's rows of what counts for the module itself.
    """

    path: str
    parent: int | None
    depth: int
    type: str | None = None
    total: float = 0.0
    own: float = 0.0
    rows: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def module_times(profile: MethodProfile) -> list[ModuleTime]:
    """Return the modules of the profile in pre-order, those side by side in order of first use.
    The totals of those without a parent add up to what the profile's instructions took."""
    tree = _Tree()
    for instruction in profile.instructions:
        for number, leaf in instruction.numbered_leaves:
            nodes = leaf.attribution.located
            for node in nodes:
                for frame in node.modules:
                    tree.types.setdefault(frame.path, frame.type.rpartition(".")[2])
            tree.add(common_module(nodes), number, float(leaf.ticks.mean()))
    return tree.ordered()


def row_modules(profile: MethodProfile, modules: Sequence[ModuleTime]) -> list[int | None]:
    """Return, for each row, the index of the module that holds all its nodes."""
    index = {module.path: number for number, module in enumerate(modules)}
    found = []
    for instruction in profile.instructions:
        for row in (instruction.head, *instruction.below):
            path = row.attribution.module
            found.append(None if path is None else index.get(path))
    return found


class _Tree:
    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._parents: dict[str, str | None] = {}
        self._own: dict[str, float] = {}
        self._rows: dict[str, list[int]] = {}

    def add(self, path: str | None, row: int, ticks: float) -> None:
        path = NO_MODULE if path is None else self._with_all_around(path)
        self._parents.setdefault(path, None)
        self._own[path] = self._own.get(path, 0.0) + ticks
        self._rows.setdefault(path, []).append(row)

    def ordered(self) -> list[ModuleTime]:
        below: dict[str | None, list[str]] = {}
        for path, parent in self._parents.items():
            below.setdefault(parent, []).append(path)
        modules: list[ModuleTime] = []
        waiting: list[tuple[str, int | None]] = [(path, None) for path in below.get(None, ())]
        waiting.reverse()
        while waiting:
            path, above = waiting.pop()
            depth = 0 if above is None else modules[above].depth + 1
            own = self._own.get(path, 0.0)
            modules.append(
                ModuleTime(
                    path, above, depth, self.types.get(path), own, own, self._rows.get(path, [])
                )
            )
            here = len(modules) - 1
            waiting += [(child, here) for child in reversed(below.get(path, ()))]
        for module in reversed(modules):
            if module.parent is not None:
                modules[module.parent].total += module.total
        return modules

    def _with_all_around(self, path: str) -> str:
        """Add a path, cut at the deepest level, and all modules around it; return the path."""
        parts = path.split(".", _DEEPEST - 1) if path else []
        around = ""
        self._parents.setdefault("", None)
        for part in parts:
            inner = f"{around}.{part}" if around else part
            self._parents.setdefault(inner, around)
            around = inner
        return around


def module_total(profiles: Iterable[MethodProfile], name: str, scale: Scale) -> float:
    """Return the average time of a module's operators in one run; see
    `Inspector.find_total_for_module`."""
    total, known = 0.0, set[str]()
    found, undivided = False, set[str]()
    for profile in profiles:
        for instruction in profile.instructions:
            is_told = any(row.attribution.nodes for row in instruction.below)
            for leaf in instruction.leaves:
                nodes = leaf.attribution.located
                known.update(frame.path for node in nodes for frame in node.modules if frame.path)
                inside = [matches_module(node.modules, name) for node in nodes if node.modules]
                # A kernel or an event is one piece of work; a whole call or its rest are many.
                is_one = leaf.kind != "delegate" and bool(leaf.attribution.nodes)
                if any(inside) if is_one else inside and all(inside):
                    ticks = leaf.ticks if leaf.kernel_ticks is None else leaf.kernel_ticks
                    total += float(scale(ticks.mean()))
                    found = True
                elif any(inside) and not is_told:
                    undivided.add(str(leaf.instruction_id))
    if undivided:
        where = (
            f"the delegate calls of instructions {', '.join(sorted(undivided))} ran "
            f"{name!r} together with other modules, and logged no events that tell its part"
        )
        if not found:
            raise MissingDataError(
                where, hint="log the delegate's own events: build its runtime with them"
            )
        warnings.warn(f"{where}: it is not in the total", EtscopeWarning, stacklevel=3)
    if not found:
        raise MissingDataError(
            f"no event belongs to a module {name!r}",
            hint="modules are: " + ", ".join(sorted(known))
            if known
            else "modules are known when an ETRecord is given",
        )
    return total
