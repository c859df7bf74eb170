"""Bytes to plain data and back: one module for each file format. No torch, no pandas."""
