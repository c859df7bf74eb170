"""Everything about a backend of ExecuTorch: how to export for it, and how to read its output.

Each backend has a module, or a folder if its tools write files: how to export for it, what its
delegate logs, and those files. `recipes` has those that are only exported for. `registry` has the
tables of all backends, `common` what several of them share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.backends.registry.exports import (
        BACKENDS,
        Backend,
        Chosen,
        Option,
        check_options,
        chosen,
        quantizing,
    )

__all__ = ["BACKENDS", "Backend", "Chosen", "Option", "check_options", "chosen", "quantizing"]

_EXPORTS = "etscope.backends.registry.exports"

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, _EXPORTS))
