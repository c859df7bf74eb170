"""Targets of the debugger: recorded runs, the reference, and the runtime."""
