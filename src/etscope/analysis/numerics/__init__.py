"""Where the numbers of a run depart from the reference."""
