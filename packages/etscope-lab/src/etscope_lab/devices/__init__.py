"""Devices of the lab: a driver for each kind of device."""
