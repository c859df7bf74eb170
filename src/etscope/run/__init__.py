"""Run a program on the ExecuTorch runtime, and get its ETDump, debug buffer and outputs."""
