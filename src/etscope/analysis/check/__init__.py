"""Check a program or run against an earlier one: `measure`, then `compare`."""
