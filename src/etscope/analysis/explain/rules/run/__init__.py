"""Rules that look at the times of a run, the work in it, and the machine."""
