"""Files of tensors: torch.save, .npy, .npz, .safetensors."""
