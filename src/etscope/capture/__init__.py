"""Open a run: its dump, record, program and logged values.

from etscope.capture import open_capture

capture = open_capture("ran")  # the folder of a run, or its files in any order
print(capture.profiles())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Capture
    from etscope.capture.files import RunFiles, open_capture

__all__ = ["Capture", "RunFiles", "open_capture"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Capture": "etscope.analysis.profile.trace",
        "RunFiles": "etscope.capture.files",
        "open_capture": "etscope.capture.files",
    },
)
