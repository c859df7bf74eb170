"""Statistics of repeated measurements: compare two sets of samples, fit growth."""
