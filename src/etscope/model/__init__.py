"""Neutral data between files and views: `Table`, `Graph`, `Timeline`, and the event table."""
