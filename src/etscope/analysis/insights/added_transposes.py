"""Transposes that XNNPACK adds around its operators, for values of another layout."""

from __future__ import annotations

from etscope.analysis.graphs.run_graph import RunGraph
from etscope.analysis.profile.profile import Leaf
from etscope.analysis.program.xnnpack_events import event_kind


def added_transposes(run: RunGraph) -> dict[int, tuple[Leaf, ...]]:
    """The transposes without a node, by the instruction of their delegate call: XNNPACK
    convolves with the channels last, and lays out what comes with the channels first."""

    def found() -> dict[int, tuple[Leaf, ...]]:
        return {
            number: added
            for number, members in run.events_of_calls.items()
            if (added := tuple(one for one in members if _is_added(one)))
        }

    return run.once("added transposes", found)


def _is_added(member: Leaf) -> bool:
    leaf = member[1]
    return (
        event_kind(leaf.name) == "Transpose"
        and not leaf.attribution.nodes
        and len(leaf.attribution.inputs) == 1
        and leaf.attribution.inputs[0].count(",") == 3
    )


def transposes_at(
    run: RunGraph, entering: set[tuple[int, str]], leaving: set[tuple[int, str]]
) -> list[Leaf]:
    """The added transposes of values that go into a call or come out of it, each given as the
    call's instruction with the sizes of the value."""
    return [
        member
        for number, members in added_transposes(run).items()
        for member in members
        if (number, sizes(member[1].attribution.inputs[0])) in entering
        or (number, sizes((member[1].attribution.outputs or ("",))[0])) in leaving
    ]


def sizes(tensor: object) -> str:
    """The sizes of a tensor's text ("float32[1, 8]"), without its type: a value may be quantized
    before it is laid out."""
    return str(tensor).partition("[")[2]
