"""Compute the reference of a run in PyTorch."""
