"""Write graphs: DOT, JSON, Model Explorer."""
