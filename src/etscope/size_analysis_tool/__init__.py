"""Upstream's `executorch.devtools.size_analysis_tool`: the sizes of a record's tensors."""
