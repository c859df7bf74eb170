"""Faults that a program has before it runs, outside of its kernels: memory, state, operators."""
