"""Commands that show, convert and keep runs."""
