"""Measure a job on the machine that has its device."""
