"""The graphs of a record and of the executed program, with what was measured."""
