"""Changes of layout, from times alone; `copies` has them with a graph."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import RECORD_NEEDED, Facts, Level
from etscope.analysis.insights.leaf_times import quoted
from etscope.analysis.insights.node_words import time_of_kinds
from etscope.analysis.insights.rule import rule
from etscope.analysis.insights.thresholds import LAYOUT_SHARE
from etscope.analysis.profile.profile import Row
from etscope.analysis.program.xnnpack_events import event_kind
from etscope.model.finding import Explanation, Finding, Sureness


@rule("Changes of layout at run time")
def layout_conversions(facts: Facts) -> Iterator[Finding]:
    """Changes of layout at run time: channels first to last, and transposes that cancel."""
    run = facts.run_graph if Level.FULL in facts.level else None
    if run is None:
        yield from _layout_by_time(facts)
        return
    from etscope.analysis.insights.rules.copies import changes_of_layout

    yield from changes_of_layout(facts, run)


# -- all of them, by the names of kernels and events

# What moves or converts values without computing any: kernels by the start of their names, and the
# names that XNNPACK gives such operators.
_LAYOUT_KERNELS = (
    "permute_copy", "transpose_copy", "t_copy", "clone", "_clone_dim_order", "_to_copy",
    "_to_dim_order_copy", "_conj_physical", "expand_copy", "copy_", "contiguous",
    "quantize_", "dequantize_", "choose_qparams",
)  # fmt: skip
_LAYOUT_DELEGATED = ("Transpose", "Convert", "Copy")


def _layout_by_time(facts: Facts) -> Iterator[Finding]:
    """Find all changes of layout and type together, which compute nothing: from times alone."""
    time = facts.time
    members = [one for one in facts.free(time.members) if _is_layout(one[1])]
    ticks = time.ticks(members)
    if time.share(ticks) < LAYOUT_SHARE:
        return
    kinds = time.by_kind(members, _kind_of)
    listed = list(kinds)
    longest = max(members, key=lambda one: time.averages[id(one[1])])
    sentence = f"Changes of layout and type ({', '.join(listed[:4])}) take {time.with_share(ticks)}"
    if len(members) > 1:
        sentence += (
            f" in {len(members):,} places, the most in {longest[1].name} of instruction "
            f"{longest[0].head.instruction_id}, {time.text(time.ticks([longest]))}"
        )
    yield facts.finding(
        "layout-conversions",
        f"{sentence}{time.lines([longest])}.",
        members,
        Explanation(
            Sureness.MEASURED,
            tuple(time_of_kinds(time, kinds)),
            remedies=(RECORD_NEEDED,),
        ),
        " or ".join(f"name:{quoted(name)}*" for name in listed),
        by=("op", listed[0]),
    )


def _is_layout(row: Row) -> bool:
    if row.kind == "kernel":
        name = row.name.rpartition("::")[2]
        return name.startswith(_LAYOUT_KERNELS)
    return row.kind == "delegated" and _kind_of(row) in _LAYOUT_DELEGATED


def _kind_of(row: Row) -> str:
    """The name of an operator up to its overload, or to the types that XNNPACK names."""
    if row.kind == "delegated":
        return event_kind(row.name)
    return row.name.partition(".")[0]
