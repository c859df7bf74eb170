"""The memory plans of a program's methods for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etscope.analysis.memory.memory import MemoryPlan
from etscope.views.page.method import ShownMethod
from etscope.views.page.tables import Json, table_document


def memory_documents(plans: Mapping[str, MemoryPlan], methods: Sequence[ShownMethod]) -> list[Json]:
    """The `Memory` of each method; its instructions point at the rows of the runs, if it ran."""
    ran = {shown.profile.method: shown for shown in methods}
    return [_document(plan, ran.get(name)) for name, plan in plans.items()]


def _document(plan: MemoryPlan, shown: ShownMethod | None) -> Json:
    numbers = range(len(plan.labels))
    return {
        "method": plan.method,
        "summary": table_document(plan.summary()),
        "live": list(plan.live_bytes),
        "labels": list(plan.labels),
        "rows": [None if shown is None else shown.row_of(number, None) for number in numbers],
        "peak": plan.peak_bytes,
        "values": table_document(plan.table()),
    }
