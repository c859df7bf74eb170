"""The engine: assigns queued jobs to devices and records the results."""
