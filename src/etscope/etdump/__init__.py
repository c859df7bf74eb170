"""Upstream's `executorch.devtools.etdump`: the content of an ETDump as objects, and its bytes.

For large dumps, use `etscope.formats.etdump`: columns instead of an object for each event.
"""
