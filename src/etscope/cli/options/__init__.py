"""Options that several commands share, and the files they open."""
