"""Files of tensors (torch.save, .npy, .npz, .safetensors) and of exported programs (.pt2), and the
checks of programs before torch rebuilds them."""
