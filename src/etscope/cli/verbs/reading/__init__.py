"""Commands that read what ran, how long and why."""
