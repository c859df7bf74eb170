"""Match the files of vendor profilers to the delegate calls of a run."""
