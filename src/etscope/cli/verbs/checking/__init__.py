"""Commands that find where the numbers go wrong."""
