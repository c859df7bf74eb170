"""Upstream's `executorch.devtools.backend_debug`: which operators of a graph are delegated."""

from __future__ import annotations

from etscope.backend_debug.delegation_info import (
    DelegationBreakdown,
    get_delegation_info,
    print_delegation_info,
)

__all__ = ["DelegationBreakdown", "get_delegation_info", "print_delegation_info"]
