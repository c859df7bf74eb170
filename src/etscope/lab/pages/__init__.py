"""The lab's web pages: jobs, a job's result, histories, two jobs side by side, devices.

HTML that the server renders; a small script (built from `web/src/lab`) draws the charts, and keeps
a page up to date while jobs are at work. Everything comes from this server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter

    from etscope.lab.lab import Lab

__all__ = ["router"]


def router(lab: Lab) -> APIRouter:
    """The routes of all pages, with those of their forms, drawings and files."""
    from etscope.lab.pages._router import router_of

    return router_of(lab)
