"""Lower PyTorch models to ExecuTorch programs."""
