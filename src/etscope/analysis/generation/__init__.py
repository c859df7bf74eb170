"""Analyses of a language model's generation."""
