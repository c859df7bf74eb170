"""Read and write bytes: mapped files, FlatBuffers, zip archives, atomic writes."""
