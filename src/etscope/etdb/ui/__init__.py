"""Command line, prompt and full-screen interface of etdb."""
