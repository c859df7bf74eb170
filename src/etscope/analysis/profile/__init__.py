"""Profiles, tables and timelines of the events of a dump, and the nodes behind the events."""
