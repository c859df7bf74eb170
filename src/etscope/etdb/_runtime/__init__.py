"""The program itself on the ExecuTorch runtime, under the debugger's hands."""
