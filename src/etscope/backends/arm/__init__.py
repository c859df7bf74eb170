"""Arm's backends: Ethos-U, VGF and TOSA."""
