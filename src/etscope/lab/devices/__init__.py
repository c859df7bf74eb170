"""Devices of the lab: one driver a kind, by name in `DRIVERS`."""
