"""Serialized `ExportedProgram`s (JSON and .pt2), checked before torch rebuilds them."""
