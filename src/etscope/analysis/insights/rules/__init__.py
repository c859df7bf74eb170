"""The rules of insights, a module for each theme."""
