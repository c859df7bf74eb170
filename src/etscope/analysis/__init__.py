"""What we find out: pure functions from values to one frozen result each."""
