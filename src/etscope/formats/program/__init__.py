"""ExecuTorch programs (.pte) and bundled programs (.bpte)."""
