"""Generate tokens with a language model: the prompt, the runs, and their result."""

SCHEMA = "etscope.generation/1"
