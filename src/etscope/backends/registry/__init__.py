"""The tables of all backends: export recipes, event decoders, value forms, tool files."""
