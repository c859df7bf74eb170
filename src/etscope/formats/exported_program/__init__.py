"""Parse the JSON and the symbolic sizes of serialized `ExportedProgram`s."""
