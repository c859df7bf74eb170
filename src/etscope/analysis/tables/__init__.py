"""Tables of a profile: its rows with their work, its coverage, its roofline."""
