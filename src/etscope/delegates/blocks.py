"""Decode all events that delegates logged in the runs of a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from etscope.delegates import decoded
from etscope.delegates.logged import LoggedCall
from etscope.model.event_table import Block, EventKey, Meaning

__all__ = ["meanings"]


def meanings(block: Block, backend: Callable[[EventKey], str | None]) -> dict[int, Meaning]:
    """Return the meaning of each event that a delegate logged, by its index in the block's keys;
    `parent` is such an index, too. backend: the id of the backend that logged an event, if known.

    The events of one call of the delegate are decoded together.
    """
    calls: dict[tuple[int | None, int | None], list[int]] = {}
    for index in filter(block.is_logged_in_delegate, block.profiled):
        calls.setdefault((block.keys[index].instruction, block.parents[index]), []).append(index)
    found: dict[int, Meaning] = {}
    for (_, around), members in calls.items():
        keys = [block.keys[index] for index in members]
        is_call = around is not None and block.keys[around].role == "delegate"
        call = LoggedCall(
            names=[key.name for key in keys],
            identifiers=["" if key.delegate_id is None else key.delegate_id for key in keys],
            start=block.starts[members],
            ticks=block.ticks[members],
            call_start=block.starts[around] if is_call else None,
            call_ticks=block.ticks[around] if is_call else None,
            metadata=[block.metadata(index) for index in members],
        )
        told = decoded(backend(keys[0]), call)
        for index, meaning in zip(members, told, strict=True):
            parent = None if meaning.parent is None else members[meaning.parent]
            columns = meaning.columns
            if index in block.backwards:
                runs = int(block.backwards[index].sum())
                columns = {**columns, "problem": f"ends before it starts in {runs:,} runs"}
            found[index] = replace(meaning, parent=parent, columns=columns)
    return found
