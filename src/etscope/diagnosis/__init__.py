"""Compare a run with its reference: numeric gap and diagnosis."""
