"""Write event files for TensorBoard."""
