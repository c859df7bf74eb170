"""The connection to a runner; see docs/etdb-protocol.md."""
