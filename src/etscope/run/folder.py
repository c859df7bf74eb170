"""The temporary folder of a run."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class Folder:
    """A new folder that goes when `remove` is called, or with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="etscope-run-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        self._finalizer()
