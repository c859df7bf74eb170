"""Commands that make a program and run it."""
