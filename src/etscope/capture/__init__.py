"""The files of a run: which belong together, and what they are opened as."""
