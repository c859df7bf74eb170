"""The instructions of a program, and whether files belong together."""
