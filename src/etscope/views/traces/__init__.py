"""Write timelines as traces: Perfetto, Chrome, speedscope."""
