"""Upstream's `executorch.devtools.pte_tool`: the differences of two programs."""
