"""The memory that a program plans and uses."""
