"""Decode the events inside delegate calls, one module per backend."""
