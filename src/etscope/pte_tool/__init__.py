"""Upstream's `executorch.devtools.pte_tool`: what differs between two programs."""
