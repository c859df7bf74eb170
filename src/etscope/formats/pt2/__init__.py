"""Files of `torch.export.save` (.pt2), and checks of programs before torch rebuilds them."""
