"""Artefact store: files by the SHA-256 of their content."""
