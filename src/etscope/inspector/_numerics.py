"""Which operator goes wrong: `analysis.numerics` on a trace, its record and inputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable
from typing import Any

from etscope.analysis.gap import NO_RECORD_HINT, check_values, chosen_run, runs_of
from etscope.analysis.numerics import (
    DEFAULT_METRIC,
    DeviceValues,
    Recomputation,
    Recomputed,
    diagnose,
)
from etscope.analysis.numerics_rows import Numerics
from etscope.analysis.trace import Trace
from etscope.errors import EtscopeWarning, NumericGapError, UsageError
from etscope.formats.bundled import BundledFile
from etscope.formats.etrecord import EDGE
from etscope.inspector._numeric_gap import method_that_ran
from etscope.inspector._reference import inputs_of_run, named_program, reference_of


def numerics_of(
    trace: Trace,
    *,
    metric: str = DEFAULT_METRIC,
    tolerance: float | None = None,
    reference_graph: str | None = None,
    method: str | None = None,
    run: int | None = None,
    inputs: Any = None,
    bundle: BundledFile | None = None,
) -> Numerics:
    """See `Inspector.diagnose_numerics`."""
    if tolerance is not None and math.isnan(tolerance):
        raise UsageError("a tolerance must be a number, not NaN")
    if trace.record is None:
        raise NumericGapError("a diagnosis needs an ETRecord", hint=NO_RECORD_HINT)
    wanted = method_that_ran(trace, method)
    chosen = chosen_run(trace, wanted, run)
    check_values(trace)
    given = inputs_of_run(trace, wanted, chosen, inputs, bundle)
    graph = reference_of(trace, wanted, reference_graph or EDGE, given).graph
    program, names = named_program(trace.record, graph)
    from etscope.bridge.local import flat_inputs, recompute
    from etscope.bridge.reference import keeps_state

    if keeps_state(program) and chosen.number != runs_of(trace, wanted)[0].number:
        warnings.warn(
            f"the model keeps state, and run {chosen.number} of the dump is compared with a "
            "reference that starts from the first state",
            EtscopeWarning,
            stacklevel=3,
        )

    def values(device: DeviceValues, nodes: Collection[str]) -> Iterable[Recomputed]:
        return recompute(program, given, device, nodes, names)

    return diagnose(
        trace,
        wanted,
        Recomputation(graph, flat_inputs(given), values),
        metric=metric,
        tolerance=tolerance,
        run=run,
    )
