"""Profiles and timelines of the events of a dump, and its logged values."""
