"""Command line and prompt of etdb."""
