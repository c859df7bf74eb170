"""A language model at work: its methods, the calls of a generation, and its pace."""
