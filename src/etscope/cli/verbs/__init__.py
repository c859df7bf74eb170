"""One module for each command of `etscope`."""
