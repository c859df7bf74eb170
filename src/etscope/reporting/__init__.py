"""Reports of runs: HTML file, local server, TensorBoard plugin."""
