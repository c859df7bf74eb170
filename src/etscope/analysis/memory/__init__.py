"""The owners of bytes: in files, in the memory that a program plans, and in a process."""
