"""Small things that every layer uses: optional packages, lazy names, options, exit codes."""
