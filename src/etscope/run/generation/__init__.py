"""Generate tokens with a language model: its methods, the plan of its calls, and the results."""
