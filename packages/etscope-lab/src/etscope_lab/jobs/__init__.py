"""Jobs: specification, states, records, results."""
