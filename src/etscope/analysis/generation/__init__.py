"""Analyses of a language model's generation: its phases, and what grows with the context."""
