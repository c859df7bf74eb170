"""The total that `Inspector.find_total_for_module` returns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import matches_module
from etscope.errors import EtscopeWarning, MissingDataError


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
            f"{name!r} together with other modules, without events that show its part"
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
