"""The lab over HTTP: the API under /api/v1, its documentation, and the pages.

`create_app` makes the application, `serve` runs it. `security` authenticates requests, and
`middleware` checks every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._lazy import lazy_names

if TYPE_CHECKING:
    from etscope_lab.server.app import create_app
    from etscope_lab.server.settings import Settings

__all__ = ["Settings", "create_app"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {"create_app": "etscope_lab.server.app", "Settings": "etscope_lab.server.settings"},
)
