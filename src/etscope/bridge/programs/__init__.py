"""Exported programs of torch, to and from the members of an ETRecord."""
