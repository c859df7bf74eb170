"""The methods of `Inspector` that show all there is: a report, and what a notebook displays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etscope.units import TimeScale

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace
    from etscope.formats.bytes.source import PathLike
    from etscope.formats.program.bpte import BundledFile
    from etscope.model.events import EventBlock


class Reports:
    """A part of `Inspector`, which has the trace and the events."""

    trace: Trace
    event_blocks: list[EventBlock]
    _bundle: BundledFile | None
    _source_time_scale: TimeScale
    _target_time_scale: TimeScale

    def report(
        self,
        path: PathLike,
        *,
        title: str | None = None,
        numerics: bool | None = None,
        inputs: Any = None,
        method: str | None = None,
    ) -> None:
        """Write the report, one HTML file that opens anywhere without network: the times by
        operator, module, line and graph node, memory, numerics. "-" is standard output.

        numerics: whether to compare logged values with a reference; None for where values and
        reference are there. inputs: those that ran, as for `diagnose_numerics`. method: whose
        values are compared; None for "forward" or the only one that ran.

        Raises `UsageError` for a place that cannot be written, `MissingDependencyError` when the
        page was not built with this installation, and with `numerics=True` what
        `diagnose_numerics` raises.
        """
        from etscope.analysis.profile.scale import Scale
        from etscope.reporting.report import ReportOptions, input_of_trace
        from etscope.views.output import open_output
        from etscope.views.page import document_of, page_html

        options = ReportOptions(
            numerics=numerics,
            inputs=None if inputs is None else lambda *_: inputs,
            method=method,
        )
        scale = Scale(self._source_time_scale, self._target_time_scale)
        found = input_of_trace(self.trace, self.event_blocks, scale, options, self._bundle)
        text = page_html(document_of([found], title))
        with open_output(path) as out:
            out.write(text)

    def _repr_html_(self) -> str:
        """What a notebook shows: how long the methods took, and their longest operators."""
        from etscope.analysis.profile.scale import Scale
        from etscope.views.page.static import summary_html

        scale = Scale(self._source_time_scale, self._target_time_scale)
        return summary_html(self.trace, scale)
