"""Upstream's `executorch.devtools.etdump`: the content of an ETDump as objects, and its bytes.

For large dumps `etscope.formats.etdump` is the way: columns instead of an object for each event.
"""
