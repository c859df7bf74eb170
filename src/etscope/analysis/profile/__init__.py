"""Where the time of a run went: runs, events and their nodes, profiles, timelines."""
