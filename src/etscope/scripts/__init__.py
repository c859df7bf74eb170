"""Upstream's `executorch.devtools.scripts`."""
