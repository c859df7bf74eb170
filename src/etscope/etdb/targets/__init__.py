"""What the debugger walks: recorded runs, the reference, the runtime."""
