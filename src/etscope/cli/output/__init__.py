"""Tables, profiles and progress bars that commands print."""
