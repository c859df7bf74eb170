"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A shared machine makes any deadline flaky; the same examples each time make a failure repeatable.
settings.register_profile("etscope", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("etscope")
