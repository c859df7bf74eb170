"""ETRecord: a zip of graphs, debug handles and delegate maps."""
