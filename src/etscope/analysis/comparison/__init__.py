"""Compare two runs, sets of times, or outputs with expected outputs."""
