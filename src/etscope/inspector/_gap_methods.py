"""The methods of `Inspector` that compare a device's values with a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from etscope.analysis.profile.trace import Trace
    from etscope.formats.program.bpte import BundledFile
    from etscope.inspector._error_plots import PlottedGap, PlottedNumerics


class NumericGaps:
    """A part of `Inspector`, which has the trace and the bundled program."""

    trace: Trace
    _bundle: BundledFile | None

    def calculate_numeric_gap(
        self,
        distance: Any,
        disable_debug_handle_valdiation: bool = False,
        reference_graph: str | None = None,
        *,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
    ) -> pd.DataFrame:
        """Compare the values that the device logged with those of a graph of the ETRecord, computed
        by PyTorch on the same inputs. `numeric_gap` has the same with all that is known of it.

        distance: "MSE", "L1", "SNR", or another metric of `etscope.analysis.metrics`; or a
            `NumericalComparatorBase`.
        disable_debug_handle_valdiation: compare with the exported program even if parts of the edge
            program do not say which of its nodes they come from.
        reference_graph: "exported_program", "edge_dialect_exported_program" or another graph of the
            record; by default the exported program, where the edge program leads back to it.
        method: "forward" by default, or the only one that ran.
        run: which of the method's runs, from 0; by default the first that has values.
        inputs: of that run; by default those of its bundled test case, or the record's
            representative inputs.

        Columns: aot_debug_handle, aot_ops (nodes of the reference graph), aot_intermediate_output,
        runtime_ops, runtime_debug_handle, runtime_intermediate_output, gap (a list: one number for
        each pass of a loop) and stacktraces (by node). One row for each output of an instruction,
        in the order of the reference. Values are tensors in a temporary file.

        Raises `NumericGapError` when values, record, inputs or the reference graph are missing, or
        nothing can be compared; `UsageError` for an unknown distance.
        """
        from etscope.diagnosis.numeric_gap import calculate

        if getattr(distance, "inspector", self) is None:  # upstream's comparators look at theirs
            distance.inspector = self
        return calculate(
            self.trace,
            distance,
            self._bundle,
            reference_graph=reference_graph,
            best_effort=disable_debug_handle_valdiation,
            method=method,
            run=run,
            inputs=inputs,
        )

    def numeric_gap(
        self,
        metrics: Sequence[str] = ("mse",),
        reference_graph: str | None = None,
        *,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
        disable_debug_handle_validation: bool = False,
    ) -> PlottedGap:
        """The comparison of `calculate_numeric_gap` by several metrics, with its coverage: what was
        compared, and why all else was not. No values are kept. `.plot_errors()` draws it."""
        from etscope.diagnosis.numeric_gap import gap_of, metric_of
        from etscope.inspector._error_plots import plotted_gap

        names = [metric_of(name) or "" for name in metrics]
        return plotted_gap(
            gap_of(
                self.trace,
                names,
                reference_graph,
                method=method,
                run=run,
                inputs=inputs,
                bundle=self._bundle,
                best_effort=disable_debug_handle_validation,
            )
        )

    def diagnose_numerics(
        self,
        metric: str = "sqnr",
        *,
        tolerance: float | None = None,
        reference_graph: str | None = None,
        method: str | None = None,
        run: int | None = None,
        inputs: Any = None,
        previous: Sequence[Any] | None = None,
    ) -> PlottedNumerics:
        """Which operator's numbers go wrong, and which line of Python that is: of each logged value
        the total error to the reference, the operator's own, and the one that it inherited.

        metric: of `etscope.analysis.metrics`. tolerance: the worst error of an operator that is
        fine, in that metric; by default what is usual for the type. Rounding is always allowed for.
        reference_graph: the edge program by default. method, run, inputs: as for
        `calculate_numeric_gap`. previous: of a model that keeps state, the inputs of each run since
        it was loaded, in order, up to this one; by default those of their test cases, or this
        run's, with a warning if nothing tells that they are.

        `.verdict` names the first operator that is wrong, `.first`, `.suspects` and `.odd_origin`
        are rows, `.table()` has all, `.plot_errors()` draws it; `etscope.analysis.numerics.limits`
        says what is allowed.

        Raises what `numeric_gap` raises.
        """
        from etscope.diagnosis.numerics import numerics_of
        from etscope.inspector._error_plots import plotted_numerics

        found = numerics_of(
            self.trace,
            metric=metric,
            tolerance=tolerance,
            reference_graph=reference_graph,
            method=method,
            run=run,
            inputs=inputs,
            previous=previous,
            bundle=self._bundle,
        )
        return plotted_numerics(found)
