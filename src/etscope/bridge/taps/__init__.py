"""Make intermediate values of a program outputs of it."""
