"""The instructions of a program, their nodes and lines, and checks that files belong together."""
