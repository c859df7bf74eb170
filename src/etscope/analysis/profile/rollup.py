"""Sums of a profile's time by operator, module, line and so on: the only maker of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from etscope.analysis.profile.profile import InstructionRows, Leaf, MethodProfile, Row, Ticks
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import matches_module, module_type
from etscope.errors import EtscopeWarning, MissingDataError

ROOT, NO_MODULE = "(root)", "(no module)"
# "op" is what the runtime or backend calls it, "operator" what the model does, on any backend.
GROUPINGS = (
    "op", "operator", "type", "module", "module_type", "source", "delegate", "backend",
)  # fmt: skip
_DEEPEST = 100  # levels of modules; deeper ones are joined, as a hostile path may have any number
# Operators that a quantized model has around each of its operators.
_AROUND = ("quantize", "dequantize", "choose_qparams")

# The group of a leaf.
Name = Callable[[InstructionRows, Row], str]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Leaves of a profile that have something in common.

    ticks, calls: int64 [runs], the sums over `members`. own: for a module in `Rollup.tree`, the
    part that is not in a module inside it; None if everything is. depth, parent: for a module in
    `Rollup.tree`, the number of modules around it, and the index of the innermost of them.
    """

    name: str
    members: Sequence[Leaf]
    ticks: Ticks
    calls: Ticks
    own: Group | None = None
    depth: int = 0
    parent: int | None = None

    @property
    def rows(self) -> list[Row]:
        return [leaf for _, leaf in self.members]

    @property
    def average(self) -> float:
        """Ticks of a run, the mean over the runs."""
        return float(self.ticks.mean())


Measure = Callable[[Group], float]
AVERAGE: Measure = attrgetter("average")


@dataclass(frozen=True, slots=True, eq=False)
class Rollup:
    """The leaves of a profile in groups, in order of first use.

    The ticks of `groups`, of `others` and `profile.unaccounted` add up to `profile.total` in each
    run. others: the leaves that were not selected.
    """

    profile: MethodProfile
    groups: tuple[Group, ...]
    others: Group

    def share(self, group: Group) -> float:
        """The group's part of the method's time; 0.0 if that is 0."""
        total = float(self.profile.total.mean())
        return group.average / total if total else 0.0

    def largest(self, measure: Measure = AVERAGE) -> list[Group]:
        """Return the groups, the largest `measure` first."""
        return sorted(self.groups, key=measure, reverse=True)

    def tree(self, measure: Measure | None = AVERAGE) -> list[Group]:
        """Return modules with all that is inside them, each before its children. Modules of depth
        0 add up to all groups.

        measure: the modules inside another are sorted by it, the largest first; None: in order of
        first use. Only groups by module have a tree.
        """
        parts: dict[str, list[Group]] = {}
        around: dict[str, str | None] = {}
        for group in self.groups:
            above: str | None = None
            for name in modules_around(group.name):
                parts.setdefault(name, []).append(group)
                around[name], above = above, name
        own = {group.name: group for group in self.groups}
        inside: dict[str | None, list[Group]] = {}
        for name, groups in parts.items():
            whole = own.get(name)
            if whole is None or len(groups) > 1:
                whole = Group(
                    name,
                    [member for group in groups for member in group.members],
                    np.sum([group.ticks for group in groups], axis=0),
                    np.sum([group.calls for group in groups], axis=0),
                )
            inside.setdefault(around[name], []).append(replace(whole, own=own.get(name)))
        ordered: list[Group] = []
        waiting: list[tuple[Group, int | None]] = [
            (group, None)
            for group in sorted(inside.get(None, ()), key=lambda group: group.name != NO_MODULE)
        ]
        while waiting:
            group, parent = waiting.pop()
            depth = 0 if parent is None else ordered[parent].depth + 1
            here = len(ordered)
            ordered.append(replace(group, depth=depth, parent=parent))
            children = inside.get(group.name, [])
            if measure is not None:
                children = sorted(children, key=measure, reverse=True)
            waiting += [(child, here) for child in reversed(children)]
        return ordered


def rollup(
    profile: MethodProfile, by: str | Name, *, keep: Callable[[Row], bool] | None = None
) -> Rollup:
    """Add up the leaves of a profile by one of `GROUPINGS`, or by the name that `by` returns.

    A leaf of several nodes counts for what they have in common: the innermost module that holds
    them all. A leaf with several lines is in a group of just these lines; a leaf without a line or
    module is in a group with a name that says so. keep: selects leaves, see `InstructionRows.kept`.
    """
    name = by if callable(by) else lambda call, leaf: group_name(call, leaf, by)
    table: dict[str, list[Leaf]] = {}
    others: list[Leaf] = []
    for call in profile.instructions:
        kept = call.leaves if keep is None else call.kept(keep)
        for leaf in kept:
            table.setdefault(name(call, leaf), []).append((call, leaf))
        if len(kept) < len(call.leaves):
            known = set(map(id, kept))
            others += [(call, leaf) for leaf in call.leaves if id(leaf) not in known]
    groups = tuple(_group(profile, name, members) for name, members in table.items())
    return Rollup(profile, groups, _group(profile, "", others))


def _group(profile: MethodProfile, name: str, members: Sequence[Leaf]) -> Group:
    ticks, calls = np.zeros_like(profile.total), np.zeros_like(profile.total)
    for _, leaf in members:
        ticks += leaf.ticks
        calls += leaf.calls
    return Group(name, members, ticks, calls)


# -- Names.


def module_name(path: str | None) -> str:
    """Return the name of the group of a module; path: "" is the root, None unknown."""
    return NO_MODULE if path is None else path or ROOT


def modules_around(name: str) -> Iterator[str]:
    """Yield the names of the modules around one, outermost first, and its own."""
    yield name if name == NO_MODULE else ROOT
    if name in (NO_MODULE, ROOT):
        return
    around = ""
    for part in name.split(".", _DEEPEST - 1):
        around = f"{around}.{part}" if around else part
        yield around


def group_name(call: InstructionRows, leaf: Row, by: str) -> str:
    """Return the group of a leaf in one of `GROUPINGS`."""
    found, head = leaf.attribution, call.head
    match by:
        case "op":
            return leaf.kernel_name
        case "operator":
            return _operators(call, leaf)
        case "type":
            return leaf.name if leaf.depth and leaf.kind == "unaccounted" else leaf.kind
        case "module":
            return module_name(found.module)
        case "module_type":
            types = {kind for node in found.located if (kind := module_type(node))}
            return types.pop() if len(types) == 1 else "(several)" if types else "(none)"
        case "source":
            lines = found.lines
            if not lines:
                where = f", module {found.module}" if found.module else ""
                return f"(no source line{where})"
            if len(lines) == 1:
                return str(lines[0])
            last = lines[-1].line if lines[-1].file == lines[0].file else lines[-1]
            return f"{lines[0]} … {last} ({len(lines)} lines)"
    if head.kind != "delegate":
        return "(not delegated)"
    if by == "backend":
        return operator_of(head)
    return f"{head.attribution.backend_id or 'delegate'} #{head.instruction_id}"


def operator_of(row: Row) -> str:
    """Return a name that another export keeps: the operators of the nodes, the backend of a
    delegate call, or the name of the row."""
    if row.kind == "delegate":
        return row.attribution.backend_id or row.name
    return ", ".join(row.attribution.op_types) or row.name


def _operators(call: InstructionRows, leaf: Row) -> str:
    """The operators of the model behind a leaf, which are the same on all backends: "convolution",
    "linear + relu"; the name of the event where they are not known, and the backend of a call that
    no events divide."""
    if leaf.kind == "unaccounted":
        return f"(rest of {operator_of(call.head)})"
    if leaf.kind == "delegate":
        return operator_of(leaf)
    names = [op.rpartition("::")[2].split(".") for op in leaf.attribution.op_types]
    short = list(dict.fromkeys(one[1] if len(one) > 2 else one[0] for one in names))
    own = [name for name in short if not name.startswith(_AROUND)]
    return " + ".join(own or short) or leaf.kernel_name


def module_total(profiles: Iterable[MethodProfile], name: str, scale: Scale) -> float:
    """Return what `Inspector.find_total_for_module` does: the average time of a module's operators
    in one run, in the scale's unit."""
    total, known = 0.0, set[str]()
    found, undivided, fused = False, set[str](), set[str]()
    for profile in profiles:
        for instruction in profile.instructions:
            is_told = any(row.attribution.nodes for row in instruction.below)
            for leaf in instruction.leaves:
                nodes = leaf.attribution.located
                inside = [matches_module(node.modules, name) for node in nodes if node.modules]
                # A kernel or an event is one piece of work; a whole call or its rest are many.
                is_one = leaf.kind != "delegate" and bool(leaf.attribution.nodes)
                paths = [{one.path for one in node.modules if one.path} for node in nodes]
                if paths:
                    merge = set.union if is_one or not is_told else set.intersection
                    known |= merge(*paths)
                if any(inside) if is_one else inside and all(inside):
                    ticks = leaf.ticks if leaf.kernel_ticks is None else leaf.kernel_ticks
                    total += float(scale(ticks.mean()))
                    found = True
                elif any(inside):
                    (fused if is_told else undivided).add(str(leaf.instruction_id))
    if undivided:
        where = (
            f"the delegate calls of instructions {', '.join(sorted(undivided))} ran "
            f"{name!r} together with other modules, without events that show its part"
        )
        if not found:
            raise MissingDataError(
                where, hint="log the delegate's own events: build the delegate's runtime with them"
            )
        warnings.warn(f"{where}: this time is not in the total", EtscopeWarning, stacklevel=3)
    if not found:
        raise MissingDataError(
            f"no event belongs to a module {name!r}"
            + (
                ": its operators were fused into those of others in the delegate calls of "
                f"instructions {', '.join(sorted(fused))}"
                if fused
                else ""
            ),
            hint="modules are: " + ", ".join(sorted(known))
            if known
            else "modules are known when an ETRecord is given",
        )
    return total
