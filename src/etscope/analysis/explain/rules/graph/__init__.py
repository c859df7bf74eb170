"""Rules that look at the graph: what ran where, and how values are made and moved."""
