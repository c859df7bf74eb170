"""Everything about a backend of ExecuTorch: how to export for it, and how to read its output.

Each backend has a folder, or a module if it is small: how to export for it (`export`), what its
delegate logs (`events`, `values`), and the files that its tools write. `registry` has the tables of
all backends, `common` what several of them share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.backends.common.options import Option
    from etscope.backends.registry.exports import (
        BACKENDS,
        Backend,
        Chosen,
        check_options,
        chosen,
        quantizing,
    )

__all__ = ["BACKENDS", "Backend", "Chosen", "Option", "check_options", "chosen", "quantizing"]

_EXPORTS = "etscope.backends.registry.exports"

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, _EXPORTS))
