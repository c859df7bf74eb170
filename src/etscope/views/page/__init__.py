"""The report's page: its data from a run's files, and the HTML file that holds both.

`web/` has the page's front end, `web/src/document.ts` the form of the data.
"""

from __future__ import annotations

from etscope.views.page.document import SCHEMA, document_of
from etscope.views.page.html import built_page, escaped_json, page_html
from etscope.views.page.run import FileFact, ReportRun

__all__ = [
    "SCHEMA",
    "FileFact",
    "ReportRun",
    "built_page",
    "document_of",
    "escaped_json",
    "page_html",
]
