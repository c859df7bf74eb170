"""The only modules with torch or executorch at module level. Imported inside functions."""
