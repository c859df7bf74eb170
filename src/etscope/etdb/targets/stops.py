"""What there is to say of an operator at which a run stops, from what is known behind its event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.profile.blocks import EventKey
from etscope.analysis.profile.correlate import Attribution, handle_list
from etscope.analysis.profile.profile import KERNEL_PREFIX
from etscope.analysis.profile.source_location import common_module
from etscope.analysis.program.compatibility import stem
from etscope.etdb.targets.target import Stop
from etscope.model.graph import Node
from etscope.model.source import source_lines


def stop_of(
    key: EventKey,
    kind: str,
    found: Attribution,
    linked: LinkedGraph | None,
    paths: Mapping[int, str],
) -> Stop:
    """The stop at an operator, of no run yet.

    key: the event that names it. kind: "kernel", "delegate", "delegated" or "control". linked: the
    edge graph, which tells the parts of an operator that was decomposed from each other; None
    without a record. paths: of its nodes, by their `id`.
    """
    stop = _stop(key, kind, replace(found, nodes=_nodes(key, found, linked)))
    return replace(stop, path=_path(stop, paths))


def _nodes(key: EventKey, found: Attribution, linked: LinkedGraph | None) -> tuple[Node, ...]:
    if linked is None or key.delegate_id is not None or key.instruction is None:
        return found.nodes
    return linked.ran(key.instruction) or found.nodes


def _stop(key: EventKey, kind: str, found: Attribution) -> Stop:
    nodes = found.nodes
    stack = source_lines(nodes[-1].stack_trace) if nodes else ()
    name = key.name or found.operator or (str(key.delegate_id) if key.delegate_id else "")
    if name == "OPERATOR_CALL":  # of the runtime's own operators, which log no name
        name = found.operator or name
    return Stop(
        position=0,
        instruction=key.instruction,
        name=name or f"instruction {key.instruction}",
        op=_op(key, kind, found),
        kind=kind,
        nodes=nodes,
        lines=found.lines,
        stack=stack or tuple(found.stack),
        module=common_module(nodes),
        handles=tuple(handle_list(found.debug_handles)),
        backend=found.backend_id,
        delegate_id=key.delegate_id,
        depth=0 if key.delegate_id is None else 1,
    )


def _path(stop: Stop, paths: Mapping[int, str]) -> str | None:
    """What the stop's value is found by among those of its graph."""
    return paths.get(id(stop.nodes[-1]), stop.node) if stop.nodes else None


def _op(key: EventKey, kind: str, found: Attribution) -> str:
    if kind == "delegate":
        return found.backend_id or "delegate call"
    if kind == "delegated":
        return key.name or str(key.delegate_id)
    return stem(found.operator or key.name.removeprefix(KERNEL_PREFIX)) or key.name


__all__ = ["stop_of"]
