"""The findings below the tables of a run: the first three of `etscope explain`, in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.capture.files import RunFiles
from etscope.formats.run_json import RUN_ETDP

if TYPE_CHECKING:
    from etscope.analysis.profile.profile import MethodProfile
    from etscope.analysis.profile.scale import Scale
    from etscope.cli.output.tables import Findings
    from etscope.model.finding import Finding
    from etscope.run import Run

_SHOWN = 3  # a run's output should fit a screen; explain shows all


def first_of(found: Sequence[Finding]) -> list[Finding]:
    """Return the first findings about the model, without findings about a busy machine."""
    return [one for one in found if one.kind != "unsteady"][:_SHOWN]


def first_findings(run: Run, folder: Path | None) -> Findings:
    """Return the function that returns the first findings of a profile, each with one remedy.

    folder: the folder of a kept run.
    """
    from etscope.analysis.insights.facts import Facts
    from etscope.analysis.insights.insights import insights
    from etscope.analysis.work.roofline import choose_calibration
    from etscope.model.finding import Files

    # From the saved files, so that `etscope explain` finds the same.
    trace = run.trace
    if folder is not None:
        trace = RunFiles(dump=folder / RUN_ETDP).with_saved().open(force=run.forced)
    calibration = choose_calibration(None, trace.saved_run)

    def findings(profile: MethodProfile, scale: Scale) -> tuple[dict[str, Any], ...]:
        found = insights(Facts(trace, profile, scale, calibration))
        short = [
            replace(
                one,
                command=(),
                explanation=replace(
                    one.explanation, evidence=(), sites=(), remedies=one.explanation.remedies[:1]
                ),
            )
            for one in first_of(found)
            if one.explanation is not None
        ]
        return tuple(one.plain(Files()) for one in short)

    return findings
