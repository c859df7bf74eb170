"""Results: pure functions from values to one frozen result each."""
