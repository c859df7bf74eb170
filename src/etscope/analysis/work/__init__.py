"""The work of operators: floating-point operations and bytes, counted from shapes."""
