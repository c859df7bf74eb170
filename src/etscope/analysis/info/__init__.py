"""Summaries of files: the answers of `etscope info`."""
