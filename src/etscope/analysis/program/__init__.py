"""The instructions of a program, the nodes and lines behind them, and what fits a program."""
