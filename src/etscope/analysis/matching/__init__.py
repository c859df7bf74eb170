"""Match the values and instructions of a program with the nodes of a graph."""
