"""Upstream's `executorch.devtools.debug_format`: the graph of a record as plain nested objects."""
