"""Each claim about speed, as a measurement of both sides on the same files."""
