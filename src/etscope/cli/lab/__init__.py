"""The commands of `etscope lab`."""
