"""Numerics: the errors of a run's values, and the operators that cause them."""
