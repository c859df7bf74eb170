"""Findings: what matters in a run, told from its profile, memory plan and numeric diagnosis."""
