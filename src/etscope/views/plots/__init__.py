"""Draw figures with matplotlib."""
