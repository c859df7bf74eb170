"""Expressions over tensors."""
