"""An Inspector of an artefact, for the tests of it."""

from __future__ import annotations

from typing import Any

from etscope import Inspector
from tests.support.artifacts import artifacts


def open_artifact(name: str, **options: Any) -> Inspector:
    """With its record and its debug buffer."""
    files = artifacts(name)
    return Inspector(
        etdump_path=files.etdump,
        etrecord=files.etrecord,
        debug_buffer_path=files.debug_buffer,
        **options,
    )
