"""The connection to a runner; see docs/reference/etdb-protocol.md."""
