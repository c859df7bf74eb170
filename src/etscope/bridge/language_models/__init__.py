"""Language models of transformers as methods that ExecuTorch's runners call."""
