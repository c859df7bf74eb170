"""ETDump and debug buffer: events, logged values and their tensors."""
