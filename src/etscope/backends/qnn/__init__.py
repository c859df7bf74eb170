"""QNN, Qualcomm's runtime for the Hexagon Tensor Processor (HTP)."""
